"""Live frameworks: allocate their memory from our heaps (serve), or record their own allocators (observe).

::

    NumPy   -> NumpyHandler (NEP 49) -> numpy_functions.h -> heap -> regions of HostSubAllocator
                                                         `-> NumPy's own memory: small requests, forked processes
    CuPy    -> CupyHook -> cupy_functions.h ------> a heap for each stream -> regions of a GPU
    PyTorch -> torch_functions.h (StreamTable) ---> (the same)
    RMM     -> serve_rmm ------------------------> (the same), with all that allocates through RMM
            -> observe_rmm ------> RMM's own resources; each request is recorded by a callback, or read from RMM's log

Enters: a limit, options, a log or recording. Leaves: the framework's arrays, and events in the heaps' logs.
`<framework>.py` has `serve_<framework>` and `observe_<framework>`, of PyTorch `torch/serve.py` and `torch/observe.py`;
`heap_provider` finds them by the table in `bfcviz.frameworks`. `c_callbacks` has what frameworks call: C functions,
which have no Python version. So serving NumPy, CuPy and PyTorch, and stacks, need the compiled build
(`served_heap.require_compiled`).

May import allocator, events, frameworks, errors, units; never the model or pictures.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._live")
