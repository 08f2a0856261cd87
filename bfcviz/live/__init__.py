"""Live frameworks: allocate their memory from our heaps (serve), or record their own allocators (observe).

::

    NumPy   -> numpy.handler (NEP 49) -> numpy_functions.h -> heap -> regions of HostSubAllocator
                                                          `-> NumPy's own memory: small requests, forked processes
    CuPy    -> cupy.hook -> cupy_functions.h ----> a heap for each stream -> regions of a GPU
    PyTorch -> torch_functions.h (torch.stream_table) -> (the same)
    RMM     -> rmm.serve ------------------------> (the same), with all that allocates through RMM
            -> rmm.observe ------> RMM's own resources; each request is recorded by a callback, or read from RMM's log

Enters: a limit, options, a log or recording. Leaves: the framework's arrays, and events in the heaps' logs.
`<framework>/serve.py` has `serve_<framework>`, `<framework>/observe.py` has `observe_<framework>`; `heap_provider`
finds them by the table in `bfcviz.frameworks`. The C functions have no Python version, so serving NumPy, CuPy and
PyTorch, and stacks, need the compiled build (`served_heap.require_compiled`).

May import allocator, events, frameworks, errors, units; never the model or pictures.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._live")
