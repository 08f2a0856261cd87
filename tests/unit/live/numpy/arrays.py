"""NumPy served from a heap: where an array lies, and what was allocated."""

import numpy as np

from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.live.numpy import serve_numpy, unserved


def served(limit="64MiB", **options):
    return serve_numpy(limit, log=EventLog(1 << 18), **options)


def is_ours(array, heap):
    """Whether an array's first and last byte lie in one chunk in use."""
    with unserved():
        begin, end = np.uint64(array.ctypes.data), np.uint64(array.ctypes.data + array.nbytes)
        chunks = heap.memory_map()
        chunks = chunks[chunks["in_use"]]
        return bool(np.any((chunks["address"] <= begin) & (chunks["address"] + chunks["size"] >= end)))


def allocations(heap):
    with unserved():
        events = heap.log.copy(0, heap.log.head)
        return events[events["kind"] == Kind.ALLOCATE]
