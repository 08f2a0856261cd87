"""RMM: served from instrumented heaps, or observed by callbacks or by its log."""
