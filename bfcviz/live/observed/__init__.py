"""Another allocator's heap, seen from outside, as events of ours."""
