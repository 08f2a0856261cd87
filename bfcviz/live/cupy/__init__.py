"""CuPy: served from instrumented heaps on the GPU, or observed while its own pool works."""
