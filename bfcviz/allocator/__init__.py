"""The instrumented heap: TensorFlow's best-fit-with-coalescing allocator, writing an event for all it does.

::

    0x7f0000000000                                        0x7f0000200000
    |AAAAAAAA|BBBB|........|CCCCCCCCCCCCCCCC|..................|   one region: chunks in use, chunks free
              ^ prev        next ^           ^ a split's remainder

In: requests and frees, from Python (`bfc.BFCAllocator`), from C pointers, or as whole arrays (`replay`). Out:
addresses, events in a log, and a look at the books (`memory_map`, `stats`). `heap` chooses, `space` keeps the
books, `bins` and `chunks` are its shelves, `sub_allocators` bring the regions. May import errors, units, native
and events; knows no model and draws nothing.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._heap")
