"""Read logs that hold every allocation and free of a heap: a full history, where a dump is one moment.

::

    records --> vlog_operations: a VlogStream, what each heap did --> vlog_events: its events --> vlog: a Trace
    records --> log_memory: the allocations of tensors --------------------------------------------> a Trace

`choice` decides between them and the dumps. `vlog` reads the VLOG stream of `bfc_allocator.cc`, `log_memory` the
`__LOG_MEMORY__` lines of TensorFlow 1. May import: as `bfcviz.importers`.
"""
