"""TensorFlow's and JAX's memory settings, and the plan of devices that follows from them."""
