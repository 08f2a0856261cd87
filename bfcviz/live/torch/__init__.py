"""PyTorch's CUDA memory: served from instrumented heaps, or observed through its memory history."""
