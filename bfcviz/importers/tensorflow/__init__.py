"""TensorFlow's and XLA's profiler traces (`xplane.pb`): read, rebuilt as events, compared with what was recorded."""
