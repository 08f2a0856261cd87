"""Reconstruct events from recorded requests, and check them against every recorded number.

A heap that was recorded from its first request on is replayed in our own heap, which must make the same decisions: this
is the only module where an importer uses the allocator. If the beginning was not recorded, the chunks are placed at
their recorded addresses.

In a replay a new region begins with the chunk of the request that made the heap extend. So the recorded address of that
request is the address of the region. A replay needs to know nothing else about the real sub-allocator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import ALLOCATE, FREE, Operations
from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.events.label_table import Labels
from bfcviz.events.ledger import Ledger
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Pool
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.importers.event_makers import interleave, without
from bfcviz.native import MAX_REGIONS
from bfcviz.units import format_bytes

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
RecordedRequestRows = NDArray[np.void]
"""An array of `REQUEST`."""


def unknown_requests(count: int) -> RecordedRequestRows:
    """Requests to be reconstructed, without any number that a file may leave out."""
    rows: RecordedRequestRows = np.zeros(count, REQUEST)
    for name in ("size", "bytes_in_use", "bytes_available", "bytes_reserved", "peak_bytes_in_use"):
        rows[name] = ABSENT
    rows["fragmentation"] = -1.0
    return rows


@dataclass(frozen=True)
class RecordedRequests:
    """What a file recorded, to be reconstructed: the requests of all its heaps."""

    requests: RecordedRequestRows  # in order of time
    pools: tuple[str, ...]  # name of each heap, by `pool`
    labels: Labels
    threads: Mapping[int, str]  # name of each thread, by `thread`; numbers count from 1
    left_out: Mapping[str, int]  # number of unusable events, by reason


def match_frees(requests: RecordedRequestRows) -> tuple[NDArray[np.int64], int]:
    """For each recorded request the index of the allocation that it is or frees; -1: unknown; and how many are."""
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
    """Numbers of a reconstruction, one entry per request: its chunk, and the heap's bytes after it."""

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    bytes_in_use: NDArray[np.uint64]
    free_bytes: NDArray[np.uint64]
    largest_free_chunk: NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """How many recorded requests were compared with their reconstruction, and which differ."""

    checked: int  # requests compared
    matched: int  # requests whose recorded numbers all equal those of the reconstruction
    fields: Mapping[str, int]  # for each recorded field, the number of requests in which it differs
    first: str | None  # description of the first request that differs; None if none differs
    # Constant number of bytes in use beyond those of the requests; 0 if there are none, or if the number
    # changes.
    bytes_before: int

    @property
    def differing(self) -> int:
        """Recorded requests in which at least one number differs from the reconstruction."""
        return self.checked - self.matched

    def to_json(self, pool: str, method: str, unmatched: int, **more: object) -> dict[str, object]:
        """The checks of a reconstructed heap for `Origin.details`; `unmatched`: frees of addresses never allocated."""
        return {
            "pool": pool,
            "method": method,
            **more,
            "checked": self.checked,
            "matched": self.matched,
            "differing": self.differing,
            "differing_by_field": dict(self.fields),
            "first_differing": self.first,
            "frees_without_allocation": unmatched,
        }


def compare(requests: RecordedRequestRows, rebuilt: Rebuilt) -> Checks:
    """Compare all recorded numbers with their reconstruction; numbers that were not recorded count as equal."""
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


def _bytes_before_replay(requests: RecordedRequestRows, rebuilt: Rebuilt) -> int:
    recorded = requests["bytes_in_use"]
    extra = (recorded - rebuilt.bytes_in_use.astype(np.int64))[recorded != ABSENT]
    return int(extra[0]) if len(extra) and extra[0] > 0 and (extra == extra[0]).all() else 0


def fragmentation(rebuilt: Rebuilt) -> NDArray[np.float64]:
    """Fragmentation of a reconstruction, (free - largest) / free as by TensorFlow: NaN if no bytes are free."""
    free = rebuilt.free_bytes.astype(np.float64)
    largest = rebuilt.largest_free_chunk.astype(np.float64)
    result = np.full(len(free), np.nan)
    np.divide(free - largest, free, out=result, where=free > 0)
    return result


def _fragmentation_differs(recorded: NDArray[np.float64], rebuilt: Rebuilt) -> Mask:
    """Whether recorded fragmentation differs from the reconstruction, at the precision of the file."""
    absent = recorded < 0
    if absent.all():
        return ~absent
    exact = fragmentation(rebuilt)
    short = np.array_equal(_fragmentation_as_recorded(recorded), recorded, equal_nan=True)
    exact = _fragmentation_as_recorded(exact) if short else exact
    both_nan = np.isnan(exact) & np.isnan(recorded)
    differs: Mask = ~(absent | both_nan | (recorded == exact))
    return differs


def _fragmentation_as_recorded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fragmentation rounded to six significant digits, as a profile has it."""
    distinct, back = np.unique(values, return_inverse=True)
    short = np.array([float(f"{value:.{_SHORT_DIGITS}g}") for value in distinct.tolist()])
    return short[back] if len(short) else values


def _first_differing_request(requests: RecordedRequestRows, rebuilt: Rebuilt, wrong: Mask) -> str | None:
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
    """The recorded ones of the numbers that a reconstruction is compared by, as text."""
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
        """Note a release in a reconstruction: a grant after it may follow."""
        waiting = None if self._grants is None else self._grants.get(self.operation)
        if waiting and (address, 0) in waiting:
            waiting.remove((address, 0))


@dataclass(frozen=True)
class ReconstructionReplay:
    """The result of replaying recorded requests in our own heap."""

    events: Events  # with the index of the request in `time`; without the OOM events of `refused` requests
    rebuilt: Rebuilt  # the heap's numbers, one entry per request
    refused: int  # number of allocations that succeeded when they were recorded, but failed in the replay


class HeapRules(NamedTuple):
    """What the replay of a reconstruction assumes of the heap."""

    bytes_limit: int  # of the heap, in bytes
    allow_growth: bool  # whether the heap starts small and grows
    # Whether it may release regions. True where this is not recorded: if a request that succeeded needs it, it
    # was allowed.
    garbage_collection: bool = True
    grants: RecordedGrants | None = None  # the regions, where they are recorded


def replay(
    requests: RecordedRequestRows, allocations: NDArray[np.int64], rules: HeapRules
) -> ReconstructionReplay:
    """Reconstruct a heap: serve the recorded requests from an empty heap, as TensorFlow 2.21 would.

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
    return ReconstructionReplay(without(events, refused), rebuilt, int(np.count_nonzero(refused)))


# ------------------------------------------------------------------------------
# Tell heaps apart that have the same name in one process: one for each NUMA node, or for each device.
#
# A profile names only the allocator. But each event carries the bytes in use after it, so it continues the heap that
# had that many bytes less (more, if it is a free) in use; a free belongs to the heap that has its chunk in use.

_MOST_HEAPS = 16


@dataclass
class _HeapOfRequests:
    """One of several heaps with one name to be reconstructed: what it has in use, its addresses, its requests."""

    in_use: int
    low: int
    high: int
    places: list[int] = field(default_factory=list)

    def distance(self, address: int) -> int:
        """Bytes between an address and those that the heap to be reconstructed used."""
        return max(self.low - address, address - self.high, 0)


def heaps_of(requests: RecordedRequestRows) -> list[NDArray[np.intp]]:
    """The indices of the recorded requests of each heap, in order of their first request; a single one if that fits.

    Every heap must begin with nothing in use. Where several heaps fit, the one that used the nearest addresses is
    taken: only a replay can show whether that is right.

    Returns:
        An empty list if some request fits no heap.
    """
    if (requests["bytes_in_use"] == ABSENT).any():
        return []
    heaps: list[_HeapOfRequests] = []
    live: dict[int, _HeapOfRequests] = {}
    columns = (requests[name].tolist() for name in ("address", "size", "bytes_in_use", "free"))
    for place, (address, size, after, free) in enumerate(zip(*columns, strict=True)):
        if free:
            heap = live.pop(address, None)
            if heap is None or heap.in_use != after + size:
                return []
        else:
            fitting = [each for each in heaps if each.in_use == after - size]
            if not fitting and (after != size or len(heaps) == _MOST_HEAPS):
                return []
            heap = min(fitting, key=lambda each: each.distance(address)) if fitting else None
            if heap is None:
                heap = _HeapOfRequests(0, address, address)
                heaps.append(heap)
            live[address] = heap
            heap.low, heap.high = min(heap.low, address), max(heap.high, address + size)
        heap.in_use = after
        heap.places.append(place)
    return [np.array(heap.places, np.intp) for heap in heaps]


_NO_STEP = (0, -1)


def step_marks(requests: RecordedRequestRows, label: int) -> Events:
    """A MARK before the first allocation of each step, for the reconstructed events.

    Frees are ignored: a chunk is often freed after its step. `time` holds the index of the request.
    """
    named = np.flatnonzero(~requests["free"] & ~np.isin(requests["step"], _NO_STEP))
    steps = requests["step"][named]
    begins = named[np.concatenate(([True], steps[1:] != steps[:-1]))] if len(named) else named
    marks: Events = np.zeros(len(begins), EVENT)
    marks["time"] = begins
    marks["size"] = requests["step"][begins].view(np.uint64)
    marks["pool"] = requests["pool"][begins]
    marks["thread"] = marks["by"] = requests["thread"][begins]
    marks["label"] = label
    marks["kind"] = Kind.MARK
    marks["bin"] = -1
    return marks


# ------------------------------------------------------------------------------
# Rebuild the events of a heap whose beginning was not recorded, from the recorded addresses.
#
# A profile that starts in the middle of a run does not say what was in the pool, so a replay cannot repeat the
# heap's decisions. A `Ledger` places every chunk at its recorded address. All requests are known beforehand: a
# region is a run of addresses that they touch.

_COLUMNS = ("address", "size", "requested", "label", "thread", "free")
_MOST_EVENTS = 3  # per request: SPLIT, SPLIT, ALLOCATE or FREE, MERGE, MERGE
_BLOCK = 8192  # requests


class PlacedChunks(NamedTuple):
    """The reconstructed events of one pool, and how well they agree with the recorded numbers."""

    # With the index of the request in `time`; chunks from before the first request are allocated first.
    events: Events
    chunks_before: int  # number of those chunks
    # Requests that were ignored: they allocate memory in use, or free where no chunk begins.
    contradicting: int
    bytes_not_seen: int  # bytes in use of chunks that no request mentions
    bytes_differing: int  # requests after which the recorded bytes in use are not those plus the known ones


def place_chunks(requests: RecordedRequestRows, label_before: int) -> PlacedChunks | None:
    """Reconstruct the events of one pool from recorded addresses; `label_before`: of what was in use before.

    None if the touched memory has more separate regions than a trace can number.
    """
    regions, before = _recorded_address_runs(requests), _from_before(requests)
    if len(regions) > MAX_REGIONS:
        return None
    most = len(regions) + _MOST_EVENTS * (len(before) + len(requests))
    log = EventLog((most // 64 + 1) * 64)
    ledger = Ledger(log)
    log.begin_operation(0)
    for start, stop in regions:
        ledger.cover(start, stop - start)
    for address, size, requested, *_ in _recorded_request_rows(requests[before]):
        ledger.allocate(address, size, max(0, requested), label_before)
    first, chunks_before = log.head, len(before) - ledger.inconsistencies.left_out
    known = np.empty(len(requests), np.int64)
    for place, (address, size, requested, label, thread, free) in enumerate(_recorded_request_rows(requests)):
        log.begin_operation(place)
        ledger.thread = thread
        if free:
            ledger.free(address)
        else:
            ledger.allocate(address, size, max(0, requested), label)
        known[place] = ledger.bytes_in_use
    events = log.copy(0, log.head)
    # The log wrote the thread of this process.
    events["by"][:first] = 0
    places: NDArray[np.uint64] = events["time"][first:]
    events["by"][first:] = requests["thread"][places]
    return PlacedChunks(events, chunks_before, ledger.inconsistencies.left_out, *_not_seen(requests, known))


def _recorded_request_rows(requests: RecordedRequestRows) -> Iterator[tuple[Any, ...]]:
    """The recorded requests as rows to reconstruct from; in blocks, for Python objects need ten times the memory."""
    for start in range(0, len(requests), _BLOCK):
        block = requests[start : start + _BLOCK]
        yield from zip(*(block[name].tolist() for name in _COLUMNS), strict=True)


def _recorded_address_runs(requests: RecordedRequestRows) -> list[tuple[int, int]]:
    """The addresses that recorded requests touch, as ascending, separate runs [start, stop)."""
    runs: list[tuple[int, int]] = []
    for start, size in sorted(zip(requests["address"].tolist(), requests["size"].tolist(), strict=True)):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], start + size))
        else:
            runs.append((start, start + size))
    return runs


def _from_before(requests: RecordedRequestRows) -> list[int]:
    """Indices of the recorded frees whose chunk was in use before the first request."""
    places, seen = [], set()
    for place, (address, free) in enumerate(
        zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    ):
        if free and address not in seen:
            places.append(place)
        seen.add(address)
    return places


def _not_seen(requests: RecordedRequestRows, known: NDArray[np.int64]) -> tuple[int, int]:
    """Recorded bytes in use beyond the known ones, which should be constant, and how many requests differ."""
    recorded = requests["bytes_in_use"] != ABSENT
    beyond = requests["bytes_in_use"][recorded] - known[recorded]
    if not len(beyond):
        return 0, 0
    values, counts = np.unique(beyond, return_counts=True)
    usual = int(np.argmax(counts))
    return int(values[usual]), len(beyond) - int(counts[usual])


# ------------------------------------------------------------------------------
# Reconstruct events from requests, and check them against every recorded number.

_TRUSTED = 0.99
"""The minimum share of matching addresses in a replay; below it, the recorded addresses are more reliable."""
_UNLIMITED = 1 << 62
_UNKNOWN = (*REGION_FACTS, "requested_bytes_in_use", "chunks_in_use")
"""Facts that are unknown if the beginning of the heap was not recorded."""


@dataclass(frozen=True)
class Reconstruction:
    """Reconstructed events of all heaps, and how they compare with the recorded numbers."""

    events: Events  # one stream, in order
    pools: tuple[Pool, ...]  # the heaps, with the options they must have had
    # For each heap, as JSON values: the method, and how many requests agree with a replay.
    checks: tuple[dict[str, object], ...]
    # For each heap, the totals that it recorded last, and None for unknown ones; they take precedence over the
    # events.
    facts: tuple[dict[str, int | None], ...]
    reasons: tuple[str, ...]  # descriptions of the differences; empty if everything agrees


@dataclass(frozen=True)
class _Heap:
    """The part of one heap in a reconstruction."""

    events: Events
    pool: Pool
    check: dict[str, object]
    reasons: list[str]
    facts: dict[str, int | None] = field(default_factory=dict)


def reconstruct(recorded: RecordedRequests) -> Reconstruction:
    """Reconstruct the events of every heap in `recorded`, interleaved, with a MARK at the start of each step."""
    before = recorded.labels.intern("in use before the profile began")
    requests = recorded.requests.copy()
    heaps: list[_Heap] = []
    spare = MAX_POOLS - len(recorded.pools)
    for number, name in enumerate(recorded.pools):
        places = np.flatnonzero(recorded.requests["pool"] == number)
        found = _heaps_of_name(recorded.requests[places], places, name, before)
        if len(found) > spare + 1:
            found = [(places, _reconstructed_heap(recorded.requests[places], places, name, before))]
        spare -= len(found) - 1
        for part, heap in found:
            requests["pool"][part] = len(heaps)
            heaps.append(heap)
    marks = step_marks(requests, recorded.labels.intern("step"))
    return Reconstruction(
        events=interleave([heap.events for heap in heaps], marks, requests["time"]),
        pools=tuple(heap.pool for heap in heaps),
        checks=tuple(heap.check for heap in heaps),
        facts=tuple(heap.facts for heap in heaps),
        reasons=tuple(reason for heap in heaps for reason in heap.reasons),
    )


def _heaps_of_name(
    requests: RecordedRequestRows, places: NDArray[np.intp], name: str, label_before: int
) -> list[tuple[NDArray[np.intp], _Heap]]:
    """The reconstructed heap with this name, and its requests; several ones if that makes every replay exact."""
    heap = _reconstructed_heap(requests, places, name, label_before)
    parts = heaps_of(requests) if heap.check["differing"] else []
    if len(parts) < 2:
        return [(places, heap)]
    names = [name, *(f"{name} ({number})" for number in range(2, len(parts) + 1))]
    found = [
        (places[part], _reconstructed_heap(requests[part], places[part], each, label_before))
        for part, each in zip(parts, names, strict=True)
    ]
    return [(places, heap)] if any(heap.check["differing"] for _, heap in found) else found


def _reconstructed_heap(
    requests: RecordedRequestRows, places: NDArray[np.intp], name: str, label_before: int
) -> _Heap:
    """Reconstruct one heap by replay; if too few addresses match, use the recorded addresses instead."""
    limit = _recorded_heap_limit(requests)
    allocations, unmatched = match_frees(requests)
    refuses_growth = False
    replayed = replay(requests, allocations, HeapRules(limit or _UNLIMITED, allow_growth=True))
    checks = compare(requests, replayed.rebuilt)
    if checks.differing:
        other = replay(requests, allocations, HeapRules(limit or _UNLIMITED, allow_growth=False))
        compared = compare(requests, other.rebuilt)
        if compared.differing < checks.differing:
            refuses_growth, replayed, checks = True, other, compared
        del other
    check = checks.to_json(name, "replayed", unmatched, allow_growth=not refuses_growth)
    if checks.fields["addr"] > len(requests) * (1 - _TRUSTED):
        placed = place_chunks(requests, label_before)
        if placed is not None:
            return _heap_from_addresses(
                placed, places, Pool(name, limit), check, _recorded_heap_facts(requests)
            )
    events = replayed.events
    order: NDArray[np.uint64] = events["time"]
    events["time"] = places[order]
    options: dict[str, Any] = {"allow_growth": not refuses_growth, "honour_alignment": False}
    return _Heap(
        events,
        Pool(name, limit, options),
        check,
        _reconstruction_differences(name, checks, replayed, unmatched),
    )


def _recorded_heap_limit(requests: RecordedRequestRows) -> int | None:
    """The recorded limit of a heap to be reconstructed: bytes in use, reserved and available; None if not recorded."""
    known = requests[(requests["bytes_available"] != ABSENT) & (requests["bytes_in_use"] != ABSENT)]
    reserved = np.where(known["bytes_reserved"] == ABSENT, 0, known["bytes_reserved"])
    limits, counts = np.unique(
        known["bytes_available"] + known["bytes_in_use"] + reserved, return_counts=True
    )
    usual = int(limits[np.argmax(counts)]) if len(limits) else 0
    return usual if 0 < usual <= _UNLIMITED else None


def _reconstruction_differences(
    name: str, checks: Checks, replayed: ReconstructionReplay, unmatched: int
) -> list[str]:
    """Descriptions of the differences between the reconstruction and the recorded numbers."""
    reasons = []
    if unmatched:
        reasons.append(f"{unmatched} frees of addresses never allocated in the profile were left out")
    if replayed.refused:
        reasons.append(f"{replayed.refused} requests failed in the replay")
    if checks.bytes_before:
        reasons.append(
            f"{format_bytes(checks.bytes_before)} were in use before the profile began, at unknown addresses: start "
            "the profile earlier, before the program creates the dataset and the model"
        )
    if checks.differing:
        counts = f"{checks.differing} of {checks.checked}"
        reasons.append(f"{counts} requests differ from the reconstruction; first {checks.first}")
    return [f"heap {name!r}: {reason}" for reason in reasons]


def _recorded_heap_facts(requests: RecordedRequestRows) -> dict[str, int | None]:
    """The totals that the heap recorded last; None for those that need a known beginning."""
    facts = dict.fromkeys(_UNKNOWN)
    for name in ("bytes_in_use", "peak_bytes_in_use"):
        known = requests[name][requests[name] != ABSENT]
        facts[name] = int(known[-1]) if len(known) and known[-1] >= 0 else None
    return facts


def _heap_from_addresses(
    placed: PlacedChunks,
    places: NDArray[np.intp],
    pool: Pool,
    check: dict[str, object],
    facts: dict[str, int | None],
) -> _Heap:
    """Reconstruct a heap from its recorded addresses, and say what those do not show."""
    events = placed.events
    order: NDArray[np.uint64] = events["time"]
    events["time"] = places[order]
    why = (
        "was in use before the profile began"
        if placed.chunks_before or placed.bytes_not_seen
        else f"cannot be replayed ({check['differing']} requests differ, first {check['first_differing']})"
    )
    shown = (
        f"heap {pool.name!r} {why}, so its regions are unknown: the picture shows only the memory that the "
        f"{check['checked']} requests touch. Chunks in use at the start: {placed.chunks_before}; "
        f"bytes in use in chunks that the profile does not mention: {format_bytes(placed.bytes_not_seen)}"
    )
    reasons = [shown]
    if placed.contradicting:
        reasons.append(
            f"heap {pool.name!r}: {placed.contradicting} requests overlap chunks in use and were left out"
        )
    if placed.bytes_differing:
        reasons.append(f"heap {pool.name!r}: bytes in use differ after {placed.bytes_differing} requests")
    more = {
        "method": "tiled",
        "allow_growth": None,
        "chunks_before": placed.chunks_before,
        "contradicting": placed.contradicting,
        "bytes_not_seen": placed.bytes_not_seen,
    }
    return _Heap(events, pool, check | more, reasons, facts)
