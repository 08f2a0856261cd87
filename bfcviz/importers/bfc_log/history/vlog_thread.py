"""VlogThread: a thread of a VLOG stream, with its operations whose records are not complete yet."""

from collections import deque

from bfcviz.importers.bfc_log.history.vlog_stream import VlogHeap, VlogOperation
from bfcviz.importers.tensorflow.requests import ABSENT

_RECENT = 64
"""The most operations in each queue of a thread."""

_Recent = deque[VlogOperation]


class VlogThread:
    """What one thread is doing. Where records name no threads, this is what all do; so it holds some operations.

    Attributes:
        number: of the thread, from 1.
        heap: of its last record with a name.
        last: its last operation.
        allocated: operations whose record of level 4 was not seen yet.
        freed: the same.
        failed: the record of the failure was seen, but not yet that of the end of the request.
        peak: bytes in use, from a record of level 2.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.heap: VlogHeap | None = None
        self.last: VlogOperation | None = None
        self.allocated, self.freed, self.failed = (_Recent(maxlen=_RECENT) for _ in range(3))
        self.peak = ABSENT


def taken(recent: _Recent, address: int | None, requested: int) -> VlogOperation | None:
    """Take the first operation with this address and size; None: any address."""
    for place, operation in enumerate(recent):
        if operation.requested == requested and address in (None, operation.address):
            del recent[place]
            return operation
    return None
