"""NumPy's arrays in an instrumented heap of host memory."""
