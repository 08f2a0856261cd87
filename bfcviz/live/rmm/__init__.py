"""RMM: served from instrumented heaps, or observed through its log."""
