"""TensorFlow: windows of its own profiler, recorded into a folder."""
