"""Replay recorded requests in our own heap. This is the only module where an importer uses the allocator.

A new region begins with the chunk of the request that made the heap extend. So the recorded address of that request is
the address of the region. A replay needs to know nothing else about the real sub-allocator.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.replay import ALLOCATE, FREE, Operations
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Events, Kind
from bfcviz.importers.tensorflow.comparison import Rebuilt
from bfcviz.importers.tensorflow.requests import Requests

_EVENTS_AN_OPERATION = 4
"""Maximum: EXTEND, SPLIT, ALLOCATE, and one RELEASE for an earlier EXTEND; or FREE and two MERGE."""
_LOG_STEP = 64  # the capacity of a log is a multiple of this


class _RecordedSubAllocator(PythonSubAllocator):
    """Grants every requested size, at the address recorded for the current request."""

    def __init__(self, addresses: NDArray[np.uint64]) -> None:
        super().__init__()
        self._addresses = addresses

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int]:  # noqa: ARG002  the address is recorded
        return int(self._addresses[self.operation]), num_bytes

    def free(self, address: int, num_bytes: int) -> None:
        """No effect: the memory is only address space."""


@dataclass(frozen=True)
class ReplayedRequests:
    """The result of a replay.

    Attributes:
        events: with the index of the request in `time`; without the OOM events of `refused` requests, which succeeded
            when they were recorded.
        rebuilt: the heap's numbers, one entry per request.
        refused: number of allocations for which the replay had no memory.
    """

    events: Events
    rebuilt: Rebuilt
    refused: int


def replay(
    requests: Requests, allocations: NDArray[np.int64], bytes_limit: int, *, allow_growth: bool
) -> ReplayedRequests:
    """Serve the requests from an empty heap, as TensorFlow 2.21 would.

    Args:
        requests: of one heap, in order.
        allocations: for each request, the index of the allocation that it is or frees; -1: unknown, it is skipped.
        bytes_limit: of the heap, in bytes.
        allow_growth: whether the heap starts small and grows.
    """
    # Every recorded request succeeded, so if one needs garbage collection, that was allowed.
    options = AllocatorOptions(allow_growth=allow_growth, garbage_collection=True, honour_alignment=False)
    log = EventLog(-(-(len(requests) + 1) * _EVENTS_AN_OPERATION // _LOG_STEP) * _LOG_STEP)
    heap = BFCAllocator(_RecordedSubAllocator(requests["address"]), bytes_limit, options, log=log)
    result = heap.replay(
        Operations(
            kind=np.where(requests["free"], FREE, ALLOCATE).astype(np.uint8),
            id=allocations,
            size=np.where(requests["free"], 0, requests["requested"]),
            label=requests["label"],
            time=np.arange(len(requests), dtype=np.int64),
            thread=requests["thread"],
        )
    )
    rebuilt = Rebuilt(
        address=result.address,
        size=result.allocated_size,
        bytes_in_use=result.bytes_in_use,
        free_bytes=result.pool_bytes - result.bytes_in_use,
        largest_free_chunk=result.largest_free_chunk,
    )
    events = Reader(log, 0).read(log.head)
    refused = events["kind"] == Kind.OOM
    return ReplayedRequests(events[~refused], rebuilt, int(np.count_nonzero(refused)))
