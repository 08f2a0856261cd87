"""Replay recorded requests in our own heap. This is the only module where an importer uses the allocator.

A new region begins with the chunk of the request that made the heap extend. So the recorded address of that request is
the address of the region. A replay needs to know nothing else about the real sub-allocator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import ALLOCATE, FREE, Operations
from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Events, Kind
from bfcviz.importers.heap_state import without
from bfcviz.importers.tensorflow.comparison import Rebuilt
from bfcviz.importers.tensorflow.requests import Requests

_EVENTS_AN_OPERATION = 4
"""Maximum: EXTEND, SPLIT, ALLOCATE, and one RELEASE for an earlier EXTEND; or FREE and two MERGE."""
_LOG_STEP = 64  # the capacity of a log is a multiple of this


RecordedGrants = Mapping[int, Sequence[tuple[int, int]]]
"""Address and size of the regions granted for each request, by its index, in order; size 0: a release.

No other region was granted or released.
"""


class _RecordedSubAllocator(PythonSubAllocator):
    """Grants the recorded regions; without a record, every size at the address recorded for the current request."""

    def __init__(self, addresses: NDArray[np.uint64], grants: RecordedGrants | None) -> None:
        super().__init__()
        self._addresses = addresses
        self._grants = None if grants is None else {place: list(each) for place, each in grants.items()}

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:  # noqa: ARG002  it is recorded
        if self._grants is None:
            return int(self._addresses[self.operation]), num_bytes
        waiting = self._grants.get(self.operation)
        return waiting.pop(0) if waiting and waiting[0][1] >= num_bytes else None

    def free(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  the memory is only address space
        """Note a release: a grant after it may follow."""
        waiting = None if self._grants is None else self._grants.get(self.operation)
        if waiting and (address, 0) in waiting:
            waiting.remove((address, 0))


@dataclass(frozen=True)
class ReplayedRequests:
    """The result of a replay.

    Attributes:
        events: with the index of the request in `time`; without the OOM events of `refused` requests.
        rebuilt: the heap's numbers, one entry per request.
        refused: number of allocations that succeeded when they were recorded, but failed in the replay.
    """

    events: Events
    rebuilt: Rebuilt
    refused: int


class HeapRules(NamedTuple):
    """What a replay assumes of the heap.

    Attributes:
        bytes_limit: of the heap, in bytes.
        allow_growth: whether the heap starts small and grows.
        garbage_collection: whether it may release regions. True where this is not recorded: if a request that
            succeeded needs it, it was allowed.
        grants: the regions, where they are recorded.
    """

    bytes_limit: int
    allow_growth: bool
    garbage_collection: bool = True
    grants: RecordedGrants | None = None


def replay(requests: Requests, allocations: NDArray[np.int64], rules: HeapRules) -> ReplayedRequests:
    """Serve the requests from an empty heap, as TensorFlow 2.21 would.

    Args:
        requests: of one heap, in order. An allocation with address 0 failed.
        allocations: for each request, the index of the allocation that it is or frees; -1: unknown, it is skipped.
        rules: of the heap.
    """
    options = AllocatorOptions(
        allow_growth=rules.allow_growth, garbage_collection=rules.garbage_collection, honour_alignment=False
    )
    log = EventLog(-(-(len(requests) + 1) * _EVENTS_AN_OPERATION // _LOG_STEP) * _LOG_STEP)
    heap = BFCAllocator(
        _RecordedSubAllocator(requests["address"], rules.grants), rules.bytes_limit, options, log=log
    )
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
    refused &= requests["address"][events["time"]] != 0
    return ReplayedRequests(without(events, refused), rebuilt, int(np.count_nonzero(refused)))
