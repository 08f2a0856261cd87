"""Allocators around an allocator: each adds one thing, all compose, and each is an allocator itself.

In: an allocator. Out: one with the same methods that also tracks (`tracking`), guards against overruns (`guard`),
fills with NaN (`nan_fill`), limits (`limit`), waits for memory (`retry`) or tells of thresholds (`alert`). Those that
touch memory do it through `access`. May import what its parent may. Frees go through the wrapper that allocated: what
goes to the heap past it is not seen.
"""
