"""Read logs that hold every allocation and free of a heap: a full history, where a dump is one moment.

::

    records --> operations: what each heap did --> heaps: its events --> vlog: a Trace
    records --> log_memory: the allocations of tensors ----------------------> a Trace

`vlog` reads the VLOG stream of `bfc_allocator.cc`, `log_memory` the `__LOG_MEMORY__` lines of TensorFlow 1.
May import: as `bfcviz.importers`.
"""
