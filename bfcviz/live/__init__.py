"""A framework and our heap, at work together: the framework's memory comes from a `BFCAllocator` (serve).

::

    NumPy -> handler (NEP 49) -> gate -> Heap -> regions of HostSubAllocator
                                  `-> NumPy's own memory: small requests, forked processes, after the end
    CuPy  -> cupy_hook -> cupy_gate -> a Heap for each stream -> regions of a GPU
    PyTorch -> pluggable -> lanes ----> (the same)
    RMM   -> rmm_served --------------> (the same), and what allocates through RMM

In: a limit, options, where to record. Out: arrays as ever, and events in the heap's log. `numpy` is for people,
`handler` what NumPy holds, `gate` the C functions it calls (no Python runs in them but to name a stack that is new).
Those have no Python twin: serving NumPy, CuPy and PyTorch, and stacks, need the compiled build (`compiled`).

Every allocation carries what a thread is busy with (`labels`) and, if wanted, who called (`stacks`, by `walker` and
`walk`); `marks` are the program's steps and phases. `provider` is the base of all that serves or observes, `adapters`
begins one by the table in `bfcviz.frameworks`. `record`, with `startup` in Python's own, is what `bfcviz record` does
in a process. May import allocator, events, frameworks, errors, units; never the model or pictures.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._live")
