"""TensorFlow's and JAX's memory settings, and the device plan they give."""
