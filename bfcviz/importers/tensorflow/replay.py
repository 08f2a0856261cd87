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
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Events, Kind
from bfcviz.importers.join_heaps import without

# ------------------------------------------------------------------------------
# Requests: what a profile recorded of a heap, one row per allocation and free, before any reconstruction.

ABSENT = -(1 << 63)
"""In an integer column: not recorded. (In `fragmentation`, any number below 0 means this.)"""

REQUEST = np.dtype(
    [
        ("time", "<i8"),  # ns from the first row of the file
        ("step", "<i8"),  # the framework's step id; 0 and -1 mean none
        ("address", "<u8"),
        ("requested", "<i8"),  # bytes that the caller requested
        ("size", "<i8"),  # bytes of the chunk
        ("bytes_in_use", "<i8"),  # after this row
        ("bytes_available", "<i8"),  # the limit less what is in use and reserved
        ("bytes_reserved", "<i8"),
        ("peak_bytes_in_use", "<i8"),
        ("fragmentation", "<f8"),  # 1 - largest free chunk / free bytes after this row; NaN: nothing free
        ("label", "<u4"),
        ("thread", "<u2"),
        ("pool", "u1"),
        ("free", "?"),  # False: an allocation that succeeded
    ]
)
Requests = NDArray[np.void]
"""An array of `REQUEST`."""


@dataclass(frozen=True)
class RecordedRequests:
    """The requests of all heaps of one file.

    Attributes:
        requests: in order of time.
        pools: name of each heap, by `pool`.
        threads: name of each thread, by `thread`; numbers count from 1.
        left_out: number of unusable events, by reason.
    """

    requests: Requests
    pools: tuple[str, ...]
    labels: Labels
    threads: Mapping[int, str]
    left_out: Mapping[str, int]


def match_frees(requests: Requests) -> tuple[NDArray[np.int64], int]:
    """For each request the index of the allocation that it is or frees, -1 if unknown; and how many are unknown."""
    places = np.arange(len(requests), dtype=np.int64)
    live: dict[int, int] = {}
    unmatched = 0
    columns = zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    for place, (address, free) in enumerate(columns):
        if free:
            places[place] = live.pop(address, -1)
            unmatched += places[place] < 0
        else:
            live[address] = place
    return places, int(unmatched)


# ------------------------------------------------------------------------------
# Compare every recorded number with the same number of the reconstruction.

Mask = NDArray[np.bool_]

_SHORT_DIGITS = 6  # TraceMe writes doubles as absl::StrCat does: with six significant digits


@dataclass(frozen=True)
class Rebuilt:
    """Numbers of the reconstruction, one entry per request: its chunk, and the heap's bytes after it."""

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    bytes_in_use: NDArray[np.uint64]
    free_bytes: NDArray[np.uint64]
    largest_free_chunk: NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """How many requests were compared, and which differ.

    Attributes:
        checked: requests compared.
        matched: requests whose recorded numbers all equal those of the reconstruction.
        fields: for each recorded field, the number of requests in which it differs.
        first: description of the first request that differs; None if none differs.
        bytes_before: constant number of bytes in use beyond those of the requests; 0 if there are none, or if the
            number changes.
    """

    checked: int
    matched: int
    fields: Mapping[str, int]
    first: str | None
    bytes_before: int

    @property
    def differing(self) -> int:
        """Requests in which at least one number differs."""
        return self.checked - self.matched


def compare(requests: Requests, rebuilt: Rebuilt) -> Checks:
    """Compare all recorded numbers; numbers that were not recorded count as equal."""
    # TensorFlow's names: a reader of the result looks them up there.
    differs: dict[str, Mask] = {
        "addr": requests["address"] != rebuilt.address,
        "allocation_bytes": (requests["size"] != ABSENT)
        & (requests["size"] != rebuilt.size.astype(np.int64)),
        "bytes_allocated": (requests["bytes_in_use"] != ABSENT)
        & (requests["bytes_in_use"] != rebuilt.bytes_in_use.astype(np.int64)),
        "fragmentation": _fragmentation_differs(requests["fragmentation"], rebuilt),
    }
    wrong = np.logical_or.reduce(list(differs.values()))
    has_other_chunks = (differs["addr"] | differs["allocation_bytes"]).any()
    return Checks(
        checked=len(requests),
        matched=int(np.count_nonzero(~wrong)),
        fields={name: int(np.count_nonzero(mask)) for name, mask in differs.items()},
        first=_first_differing_request(requests, rebuilt, wrong),
        bytes_before=0 if has_other_chunks else _bytes_before_replay(requests, rebuilt),
    )


def _bytes_before_replay(requests: Requests, rebuilt: Rebuilt) -> int:
    recorded = requests["bytes_in_use"]
    extra = (recorded - rebuilt.bytes_in_use.astype(np.int64))[recorded != ABSENT]
    return int(extra[0]) if len(extra) and extra[0] > 0 and (extra == extra[0]).all() else 0


def fragmentation(rebuilt: Rebuilt) -> NDArray[np.float64]:
    """(free - largest) / free as TensorFlow computes it: NaN if no bytes are free."""
    free = rebuilt.free_bytes.astype(np.float64)
    largest = rebuilt.largest_free_chunk.astype(np.float64)
    result = np.full(len(free), np.nan)
    np.divide(free - largest, free, out=result, where=free > 0)
    return result


def _fragmentation_differs(recorded: NDArray[np.float64], rebuilt: Rebuilt) -> Mask:
    """Compare at the precision of the file."""
    exact = fragmentation(rebuilt)
    short = np.array_equal(_rounded_fragmentation(recorded), recorded, equal_nan=True)
    exact = _rounded_fragmentation(exact) if short else exact
    both_nan = np.isnan(exact) & np.isnan(recorded)
    # A negative number means that it was not recorded.
    differs: Mask = ~((recorded < 0) | both_nan | (recorded == exact))
    return differs


def _rounded_fragmentation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values rounded to six significant digits."""
    distinct, back = np.unique(values, return_inverse=True)
    short = np.array([float(f"{value:.{_SHORT_DIGITS}g}") for value in distinct.tolist()])
    return short[back] if len(short) else values


def _first_differing_request(requests: Requests, rebuilt: Rebuilt, wrong: Mask) -> str | None:
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    row = requests[at]
    return (
        f"request {at} ({'free' if row['free'] else 'allocation'} of {row['requested']} bytes): "
        f"recorded {_compared_numbers_text(row['address'], row['size'], row['bytes_in_use'], row['fragmentation'])}; "
        "reconstructed "
        + _compared_numbers_text(
            rebuilt.address[at],
            rebuilt.size[at],
            rebuilt.bytes_in_use[at],
            fragmentation(rebuilt)[at],
        )
    )


def _compared_numbers_text(address: int, size: int, bytes_in_use: int, fragmented: float) -> str:
    """The recorded ones of these numbers."""
    at = f"{'' if size == ABSENT else f'{size} bytes '}at {int(address):#x}"
    in_use = "" if bytes_in_use == ABSENT else f", {bytes_in_use} in use"
    return at + in_use + ("" if fragmented < 0 else f", fragmentation {fragmented:.6g}")


# ------------------------------------------------------------------------------
# Replay recorded requests in our own heap. This is the only module where an importer uses the allocator.

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
