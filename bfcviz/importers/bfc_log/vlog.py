"""Read a VLOG stream of `bfc_allocator.cc` as the full history of its heaps."""

import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Origin, Pool, RecordedFailure, Status
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.sorted_addresses import SortedAddresses
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.grammar import LogRecord
from bfcviz.importers.bfc_log.vlog_operations import (
    Act,
    VlogHeap,
    VlogOperation,
    VlogStream,
    collect_operations,
)
from bfcviz.importers.file_content import Limits
from bfcviz.importers.file_format import Format
from bfcviz.importers.heap_state import in_record_order, without
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.importers.tensorflow.comparison import Checks, compare
from bfcviz.importers.tensorflow.replay import HeapRules, replay
from bfcviz.importers.tensorflow.requests import ABSENT, REQUEST, Requests, match_frees
from bfcviz.native import MIN_CHUNK

# ------------------------------------------------------------------------------
# Find the chunk of each free that a VLOG stream of level 3 records only with its size.
#
# A free of N bytes freed one of the allocations of N bytes in use. Where there are several, later allocations tell
# which: memory that is allocated again was freed before. What remains open is decided in favour of the oldest.


class PlacedFrees(NamedTuple):
    """`guessed`: frees that could be of several chunks; `unknown`: of a size that is not in use."""

    guessed: int
    unknown: int


def place_frees(operations: Sequence[VlogOperation]) -> PlacedFrees:
    """Set the address of every FREE that has none.

    Args:
        operations: of one heap, in order.
    """
    if all(operation.address or operation.act is not Act.FREE for operation in operations):
        return PlacedFrees(0, 0)
    finder = _Finder()
    for number, operation in enumerate(operations):
        if operation.act is Act.ALLOCATE:
            finder.allocate(number, operation)
        elif operation.act is Act.FREE:
            finder.free(number, operation)
    return finder.finish()


class _Finder:
    def __init__(self) -> None:
        self._live: dict[int, tuple[int, VlogOperation]] = {}  # by address: number and allocation
        self._starts = SortedAddresses()
        self._waiting: defaultdict[int, list[tuple[int, VlogOperation]]] = defaultdict(list)  # frees, by size
        self._guessed = 0
        self._unknown = 0

    def allocate(self, number: int, operation: VlogOperation) -> None:
        """Chunks in use where this allocation lies were freed before."""
        start, stop = operation.address, operation.address + operation.requested
        before = self._starts.at_or_before(start)
        there = []
        if before >= 0 and before + self._live[before][1].requested > start:
            there.append(before)
        for address in self._starts.at_or_after(start):
            if address >= stop:
                break
            if address != before or not there:
                there.append(address)
        for address in there:
            self._resolve(address)
        self._add(number, operation)

    def free(self, number: int, operation: VlogOperation) -> None:
        if operation.address:
            self._remove(operation.address)
        else:
            insort(self._waiting[operation.requested], (number, operation), key=lambda each: each[0])

    def finish(self) -> PlacedFrees:
        """Place the frees that no later allocation explains."""
        live: defaultdict[int, deque[tuple[int, VlogOperation]]] = defaultdict(deque)
        for number, allocation in sorted(self._live.values(), key=lambda each: each[0]):
            live[allocation.requested].append((number, allocation))
        for size, frees in self._waiting.items():
            candidates = live[size]
            for number, free in frees:
                if candidates and candidates[0][0] < number:
                    self._guessed += len(candidates) > 1
                    free.address = candidates.popleft()[1].address
                else:
                    self._unknown += 1
        return PlacedFrees(self._guessed, self._unknown)

    def _add(self, number: int, operation: VlogOperation) -> None:
        if operation.address in self._live:  # no free explains it
            self._remove(operation.address)
        self._live[operation.address] = number, operation
        self._starts.add(operation.address)

    def _remove(self, address: int) -> None:
        if address in self._live:
            del self._live[address]
            self._starts.remove(address)

    def _resolve(self, address: int) -> None:
        """Give the chunk at `address` the first waiting free of its size that came after it."""
        number, allocation = self._live[address]
        frees = self._waiting[allocation.requested]
        at = bisect_left(frees, number, key=lambda each: each[0])
        if at < len(frees):
            self._guessed += len(frees) - at > 1  # which of the frees
            frees.pop(at)[1].address = address
        self._remove(address)


# ------------------------------------------------------------------------------
# Build the events of one heap from what a VLOG stream says of it.
#
# A stream that holds the creation of the heap and all its requests is replayed in our own heap, whose regions come
# from the stream. If every address equals the recorded one, the replay also gives the sizes of the chunks, which a
# stream does not hold. Otherwise a ledger takes the recorded regions and addresses, and computes the sizes by
# TensorFlow's rules.

_UNLIMITED = 1 << 62
_FIRST_REGION = 2 << 20  # with allow_growth
_WHOLE_BELOW = 128 << 20  # waste up to which a chunk under twice the request is not split
_REQUESTS = (Act.ALLOCATE, Act.FREE, Act.FAIL)
_UNKNOWN = (*REGION_FACTS, "bytes_in_use", "peak_bytes_in_use", "requested_bytes_in_use", "chunks_in_use")
"""Facts that a stream without the beginning, or without requests, does not tell."""


@dataclass
class VlogEvents:
    """The events of a heap, with the `order` of the record in `time`.

    Attributes:
        failures: in the order of the OOM events; their `event` is not set.
        check: how a replay compares with the log, as JSON values; empty without requests.
        facts: the unknown numbers.
        options: what the log shows of the heap's options.
        reasons: what is missing or was concluded.
    """

    events: Events
    failures: list[RecordedFailure]
    check: dict[str, object] = field(default_factory=dict)
    facts: dict[str, int | None] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def events_of_heap(heap: VlogHeap) -> VlogEvents:
    """The events of one heap; sets the addresses of its frees."""
    unfinished = {id(each) for each in heap.unfinished_frees()}
    operations = [each for each in heap.operations if id(each) not in unfinished]
    operations.sort(key=lambda each: each.order)
    placed = place_frees(operations)
    operations = [each for each in operations if each.address or each.act is not Act.FREE]
    requests = [each for each in operations if each.act in _REQUESTS]
    failures = [_failure(each, heap) for each in requests if each.act is Act.FAIL and not each.is_soft]
    replayed = None
    result = VlogEvents(np.empty(0, EVENT), failures)
    if heap.created and any(each.act is not Act.FAIL for each in requests):
        replayed, result.check = _replayed(heap, operations, requests)
    if replayed is not None:
        result.events = replayed
    else:
        history = _from_addresses(operations, trusts_free_chunks=heap.created)
        result.events = history.events()
        result.reasons = _what_is_missing(heap, requests, history, result.check)
        result.facts = {} if result.check else dict.fromkeys(_UNKNOWN)
    result.reasons += _about_frees(heap, placed)
    result.options = _options(heap, operations)
    return result


def _failure(operation: VlogOperation, heap: VlogHeap) -> RecordedFailure:
    return RecordedFailure(
        0, is_exact=operation.is_exact, rounded=operation.rounded, op=operation.op, has_heap=heap.created
    )


def _options(heap: VlogHeap, operations: Sequence[VlogOperation]) -> dict[str, object]:
    """TensorFlow's options, as far as the regions show them."""
    options: dict[str, object] = {"allocator_name": heap.name}
    regions = [each.requested for each in operations if each.act is Act.EXTEND]
    if heap.created and regions:
        doubled = regions[0] % _FIRST_REGION == 0 and (regions[0] // _FIRST_REGION).bit_count() == 1
        options["allow_growth"] = doubled
    if any(each.act is Act.RELEASE for each in operations):
        options["garbage_collection"] = True
    return options


# -- replay ---------------------------------------------------------------------------------------------------


def _replayed(
    heap: VlogHeap, operations: Sequence[VlogOperation], requests: Sequence[VlogOperation]
) -> tuple[Events | None, dict[str, object]]:
    """The events of a replay, None if every one differs from the log; and the best comparison."""
    rows = _rows(requests)
    allocations, unmatched = match_frees(rows)
    grants, granted, released = _grants(operations)
    pool = max(_peak_pool(operations), MIN_CHUNK)
    compared: list[Checks] = []
    events = None
    # A stream does not hold the limit. It matters only where it made a region smaller.
    for limit, allow_growth in ((_UNLIMITED, True), (pool, True), (pool, False)):
        replayed = replay(rows, allocations, HeapRules(limit, allow_growth, bool(released), grants))
        compared.append(compare(rows, replayed.rebuilt))
        same_regions = (
            _regions(replayed.events, Kind.EXTEND) == granted
            and [address for address, _ in _regions(replayed.events, Kind.RELEASE)] == released
        )
        if same_regions and not (compared[-1].differing or replayed.refused or unmatched):
            events = _finished(replayed.events, requests)
            break
    best = min(compared, key=lambda checks: checks.differing) if events is None else compared[-1]
    return events, {
        "pool": heap.name,
        "method": "tiled" if events is None else "replayed",
        "checked": best.checked,
        "matched": best.matched,
        "differing": best.differing,
        "differing_by_field": dict(best.fields),
        "first_differing": best.first,
        "frees_without_allocation": unmatched,
    }


def _rows(requests: Sequence[VlogOperation]) -> Requests:
    rows: Requests = np.zeros(len(requests), REQUEST)
    for name in ("size", "bytes_in_use", "bytes_available", "bytes_reserved", "peak_bytes_in_use"):
        rows[name] = ABSENT
    rows["fragmentation"] = -1
    for name in ("address", "requested", "bytes_in_use", "label", "thread"):
        rows[name] = [getattr(each, name) for each in requests]
    rows["free"] = [each.act is Act.FREE for each in requests]
    return rows


def _grants(
    operations: Sequence[VlogOperation],
) -> tuple[dict[int, list[tuple[int, int]]], list[tuple[int, int]], list[int]]:
    """The regions granted and released for each request, see `HeapRules`; all of them in order; the released ones."""
    grants: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    waiting: list[tuple[int, int]] = []
    granted, released, place = [], [], 0
    for each in operations:
        if each.act is Act.EXTEND:
            waiting.append((each.address, each.requested))
            granted.append(waiting[-1])
        elif each.act is Act.RELEASE:
            waiting.append((each.address, 0))
            released.append(each.address)
        else:
            if each.act is not Act.FREE and waiting:
                grants[place] += waiting
                waiting = []
            place += 1
    return dict(grants), granted, released


def _peak_pool(operations: Sequence[VlogOperation]) -> int:
    """The most bytes of all regions together: the limit, if the last region was cut to fit it."""
    regions: dict[int, int] = {}
    total = peak = 0
    for each in operations:
        if each.act is Act.EXTEND:
            regions[each.address] = each.requested
            total += each.requested
            peak = max(peak, total)
        elif each.act is Act.RELEASE:
            total -= regions.pop(each.address, 0)
    return peak


def _regions(events: Events, kind: Kind) -> list[tuple[int, int]]:
    rows = events[events["kind"] == kind]
    return list(zip(rows["address"].tolist(), rows["size"].tolist(), strict=True))


def _finished(events: Events, requests: Sequence[VlogOperation]) -> Events:
    """Events with the order of their record in `time`, and without the failures of optional requests."""
    soft = np.array([each.is_soft for each in requests], bool)
    at: NDArray[np.uint64] = events["time"]
    kept = without(events, (events["kind"] == Kind.OOM) & soft[at])
    orders = np.array([each.order for each in requests], np.int64)
    kept_at: NDArray[np.uint64] = kept["time"]
    kept["time"] = orders[kept_at]
    return kept


# -- recorded addresses ---------------------------------------------------------------------------------------


def _from_addresses(operations: Sequence[VlogOperation], *, trusts_free_chunks: bool) -> RecordedHistory:
    """The history with every chunk at its recorded address.

    Args:
        operations: in order.
        trusts_free_chunks: the free chunks of the ledger are those of the heap, because its beginning is known.
    """
    history = RecordedHistory()
    ledger = history.ledger
    for each in operations:
        history.at(each.order, each.thread)
        match each.act:
            case Act.EXTEND:
                ledger.grant(each.address, each.requested)
            case Act.RELEASE:
                ledger.release(each.address)
            case Act.FREE:
                ledger.free(each.address)
            case Act.ALLOCATE:
                size = -(-each.requested // MIN_CHUNK) * MIN_CHUNK
                free = ledger.free_chunks.get(each.address)
                if trusts_free_chunks and free is not None and free.size >= size:
                    waste = free.size - size
                    size = free.size if waste < min(size, _WHOLE_BELOW) else size
                ledger.allocate(each.address, size, each.requested, each.label)
            case Act.FAIL if not each.is_soft:
                ledger.oom(each.requested, each.label)
    return history


def _what_is_missing(
    heap: VlogHeap,
    requests: Sequence[VlogOperation],
    history: RecordedHistory,
    check: dict[str, object],
) -> list[str]:
    name = f"heap {heap.name!r}"
    chunks = sum(each.act is Act.ALLOCATE for each in requests)
    reasons = []
    if not any(each.act is not Act.FAIL for each in requests):
        reasons.append(
            f"{name}: the log holds its regions, but no allocations and frees: run the program again with "
            "TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=bfc_allocator=4"
        )
    if chunks and not heap.created:
        reasons.append(
            f"{name}: the log does not hold its creation, so chunks from before are missing, and the sizes of {chunks} "
            "chunks are their requests, rounded up to 256 bytes"
        )
    elif chunks:
        first = f" (first {check['first_differing']})" if check["differing"] else ""
        reasons.append(
            f"{name}: a replay differs from the log in {check['differing']} of {check['checked']} requests{first} or "
            f"in its regions, so the sizes of {chunks} chunks were computed by TensorFlow's rules"
        )
    if words := history.inconsistencies.words():
        reasons.append(f"{name}: {words}")
    return reasons


def _about_frees(heap: VlogHeap, placed: PlacedFrees) -> list[str]:
    reasons = []
    if placed.guessed:
        reasons.append(
            f"heap {heap.name!r}: {placed.guessed} frees could be of several chunks of the same size; one of them was "
            "chosen. Level 4 of the log has the addresses of frees"
        )
    if placed.unknown:
        what = "frees of a size that no chunk in use has were left out"
        reasons.append(f"heap {heap.name!r}: {placed.unknown} {what}")
    return reasons


# ------------------------------------------------------------------------------
# Read a VLOG stream of `bfc_allocator.cc` as the full history of its heaps.

_REQUEST_LINES = re.compile(
    r"\] (?:AllocateRaw \S{1,200} +\d|DeallocateRaw \S{1,200} +\d|\[mem-debug\] (?:All|Deall)ocateRaw,)"
)
_REGIONS = re.compile(r"\] (?:Allocated memory at |Deallocate region with ptr = )")


def holds_requests(text: str) -> bool:
    """Whether a log holds allocations and frees of a VLOG stream (level 3 or 4)."""
    return _REQUEST_LINES.search(text) is not None


def holds_regions(text: str) -> bool:
    """Whether a log holds regions of a VLOG stream (level 1 or more)."""
    return _REGIONS.search(text) is not None


def read_vlog(records: Iterable[LogRecord], path: Path, cut: Sequence[str] = ()) -> Trace:
    """The history in a VLOG stream.

    Args:
        records: of the file, in order.
        path: of the file.
        cut: why the end of the file is missing, if it is.

    Raises:
        FileError: there is no heap in it, or the file holds more than one of its size may.
    """
    labels = Labels()
    stream = collect_operations(records, labels, Limits.of(path))
    heaps = [heap for heap in stream.heaps if heap.operations]
    if not heaps:
        raise FileError(path, "", "a log of TensorFlow without a heap that allocated memory")
    found = [events_of_heap(heap) for heap in heaps[:MAX_POOLS]]
    events = in_record_order([heap.events for heap in found], stream.times)
    missing = (*cut, *_unfinished(stream))
    problems = [reason for heap in found for reason in heap.reasons] + _problems(stream, len(heaps))
    names = _names(heaps[:MAX_POOLS])
    pairs = list(zip(names, found, strict=True))
    origin = Origin(
        format=Format.TENSORFLOW_LOG.value,
        source=path.name,
        status=Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE,
        reasons=(*missing, *problems),
        pools=tuple(Pool(name, options=heap.options) for name, heap in pairs),
        details={
            "framework": "tensorflow",
            "checks": [heap.check | {"pool": name} if heap.check else {} for name, heap in pairs],
            "facts": [heap.facts for heap in found],
            "failures": _failures(events, found),
            "threads": {str(number): name for number, name in stream.threads.items()},
        },
    )
    return Trace.from_events(events, labels, origin)


def _failures(events: Events, found: list[VlogEvents]) -> list[dict[str, object]]:
    """One entry per OOM event; those of a heap are in its order."""
    waiting = [iter(heap.failures) for heap in found]
    places = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    return [replace(next(waiting[int(events["pool"][at])]), event=at).to_json() for at in places]


def _names(heaps: list[VlogHeap]) -> list[str]:
    """The name of each heap: with its process if several write the log, and numbered if it was created again."""
    writers = {heap.writer for heap in heaps}
    seen: Counter[str] = Counter()
    names = []
    for heap in heaps:
        name = f"{heap.writer} {heap.name}".strip() if len(writers) > 1 else heap.name
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} (run {seen[name]})")
    return names


def _unfinished(stream: VlogStream) -> list[str]:
    """What the log began, but did not end."""
    ends = [f"an allocation of {size} bytes" for heap in stream.heaps for size in heap.allocating.values()]
    ends += [f"a free of {each.requested} bytes" for heap in stream.heaps for each in heap.unfinished_frees()]
    more = f" and {len(ends) - 1} other operations" if len(ends) > 1 else ""
    return [f"the log ends at line {stream.last_line} in the middle of {ends[0]}{more}"] if ends else []


def _problems(stream: VlogStream, heaps: int) -> list[str]:
    problems = [f"left out: {count} {what}" for what, count in stream.left_out.items()]
    if heaps > MAX_POOLS:
        problems.append(f"{heaps - MAX_POOLS} of {heaps} heaps were left out; a trace holds {MAX_POOLS}")
    if stream.uncertain_failures:
        problems.append(
            f"{stream.uncertain_failures} failed requests may have been optional ones: TensorFlow reports only the "
            "first ten of those"
        )
    return problems
