"""The instrumented heap: TensorFlow's best-fit-with-coalescing allocator, which records an event for each change.

::

    0x7f0000000000                                        0x7f0000200000
    |AAAAAAAA|BBBB|........|CCCCCCCCCCCCCCCC|..................|   one region: chunks in use, chunks free
              ^ prev        next ^           ^ a split's remainder

In: requests and frees, from Python (`bfc.BFCAllocator`), through C pointers (`c_api`), or as whole arrays
(`replay`). Out: addresses, events in a log, and the heap's state (`queries`). `heap` chooses chunks,
`chunks` stores them, changes them and writes the events, `sub_allocators` grant the regions.

The public face: `bfc`, `interface`, `sub_allocators`, `cuda`, `cuda_driver`, and `free_signal` for allocators that
wait; `bfcviz.devices` uses nothing else. May import formats, errors, units, native and events; knows no model and
draws nothing.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._heap")
