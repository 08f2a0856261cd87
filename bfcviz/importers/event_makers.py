"""How an importer makes the events of heaps: of the chunks of a moment, or of recorded allocations; their one order.

`events_of_state` takes the chunks that a file holds, `RecordedHistory` takes its allocations and frees one by one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.ledger import Inconsistencies, Ledger
from bfcviz.events.log import EventLog
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.schema import EVENT, Events, Kind, bin_numbers
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.native import MAX_REGIONS

# ------------------------------------------------------------------------------
# The events that build a heap state, for files that hold the chunks of one moment and no history.
#
# ::
#
#     regions    [ aaaa | .... | bb | ......... ]      from the file
#     events     EXTEND                                the whole region is one free chunk
#                SPLIT ALLOCATE(a)  SPLIT              for each chunk from left to right
#                SPLIT ALLOCATE(b)
#
# The file does not say how the heap came into this state. These events are one way to it, so a reader must not take
# their order for the order of the requests: an importer that uses them sets `details["history"]` to `STATE_ONLY`.


HEAP_CHUNK = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),  # the size where the file does not say it; ignored for free chunks
        ("label", "<u4"),
        ("stream", "<u2"),
        ("in_use", "?"),
    ]
)
"""One chunk of a state, free or in use."""

HeapChunks = NDArray[np.void]
"""An array of `HEAP_CHUNK`."""


class HeapRegion(NamedTuple):
    """One region of an imported heap: the half-open range of its addresses."""

    address: int
    size: int


def regions_of(chunks: HeapChunks, begins: NDArray[np.bool_] | None = None) -> list[HeapRegion]:
    """The regions of a file that does not name them: a gap between two chunks begins a new one.

    Args:
        chunks: shape (n,) of HEAP_CHUNK, by ascending address, without overlaps.
        begins: shape (n - 1,): whether the second chunk, the third, ... begins a region although there is no gap.
    """
    if not len(chunks):
        return []
    stops: NDArray[np.uint64] = chunks["address"] + chunks["size"]
    is_first: NDArray[np.bool_] = chunks["address"][1:] != stops[:-1]
    if begins is not None:
        is_first |= begins
    first = np.flatnonzero(np.concatenate(([True], is_first)))
    last = np.concatenate((first[1:], [len(chunks)])) - 1
    starts = chunks["address"][first].tolist()
    return [HeapRegion(start, stop - start) for start, stop in zip(starts, stops[last].tolist(), strict=True)]


def events_of_state(chunks: HeapChunks, regions: list[HeapRegion]) -> Events:
    """EXTEND, SPLIT and ALLOCATE events after which the heap has exactly these chunks; `pool` and `time` are 0.

    Args:
        chunks: shape (n,) of HEAP_CHUNK, by ascending address; they tile every region.
        regions: by ascending address.

    Raises:
        TraceError: the chunks do not tile the regions; the message names the first address that is wrong.
    """
    if len(regions) > MAX_REGIONS:
        raise TraceError(f"{len(regions)} regions were given; a trace can number {MAX_REGIONS}")
    slots = _region_of_each_chunk(chunks, regions)
    stops = np.array([region.address + region.size for region in regions], np.uint64)[slots]
    is_first = np.concatenate(([True], slots[1:] != slots[:-1]))[: len(chunks)]
    address: NDArray[np.uint64] = chunks["address"]
    ends: NDArray[np.uint64] = address + chunks["size"]
    is_split = ends < stops
    # Three rows a chunk, of which those that do not happen are dropped.
    rows: Events = np.zeros((len(chunks), 3), EVENT)
    extends, splits, allocates = rows[:, 0], rows[:, 1], rows[:, 2]
    handles = np.arange(len(chunks), dtype=np.uint32)
    rows["chunk"], rows["region"] = handles[:, None], slots[:, None]
    extends["kind"], splits["kind"], allocates["kind"] = Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE
    extends["address"], extends["size"] = address, stops - address
    extends["requested"] = extends["size"]
    splits["address"], splits["size"], splits["other"] = ends, stops - ends, handles + 1
    for field in ("address", "size", "requested", "label", "stream"):
        allocates[field] = chunks[field]
    rows["bin"] = bin_numbers(rows["size"])
    allocates["other"] = np.cumsum(chunks["in_use"])
    happens = np.stack([is_first, is_split, chunks["in_use"]], axis=1)
    events: Events = joined([rows.reshape(-1)[happens.reshape(-1)]])
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


def _region_of_each_chunk(chunks: HeapChunks, regions: list[HeapRegion]) -> NDArray[np.intp]:
    """The region of each chunk of a file, by its index; checks that the chunks tile the regions."""
    starts = np.array([region.address for region in regions], np.uint64)
    stops = starts + np.array([region.size for region in regions], np.uint64)
    slots: NDArray[np.intp] = np.searchsorted(starts, chunks["address"], "right") - 1
    address: NDArray[np.uint64] = chunks["address"]
    ends: NDArray[np.uint64] = address + chunks["size"]
    expected = np.concatenate((address[:1], ends[:-1]))
    is_first = np.concatenate(([True], slots[1:] != slots[:-1]))[: len(chunks)]
    outside = slots < 0
    expected[is_first] = starts[slots[is_first]]
    wrong = outside | (expected != address) | (chunks["size"] == 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise TraceError(
            f"the chunk at {int(chunks['address'][at]):#x} does not begin where the last one ends"
        )
    last = np.flatnonzero(np.concatenate((is_first[1:], [True]))[: len(chunks)])
    if len(last) != len(regions) or (chunks["address"][last] + chunks["size"][last] != stops).any():
        raise TraceError(f"{len(chunks)} chunks do not fill {len(regions)} regions")
    return slots


def failed_request(requested: int, free_bytes: int, largest_free_chunk: int, label: int = 0) -> Events:
    """One OOM event of an import, to append to the events of a state; `pool` and `time` are 0."""
    event: Events = np.zeros(1, EVENT)
    event["kind"], event["requested"], event["label"] = Kind.OOM, requested, label
    event["address"], event["size"] = free_bytes, largest_free_chunk
    event["bin"] = bin_numbers(np.array([max(1, requested)], np.uint64))
    return event


def without_repeated_chunks(chunks: HeapChunks) -> NDArray[np.bool_]:
    """Which chunks of a file to keep, so that none stands there twice; `chunks` ascend."""
    kept = np.ones(len(chunks), np.bool_)
    address: NDArray[np.uint64] = chunks["address"]
    size: NDArray[np.uint64] = chunks["size"]
    kept[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return kept


def without_overlapping_chunks(chunks: HeapChunks) -> NDArray[np.bool_]:
    """Which chunks of a file to keep, so that none overlaps another; of two, the one that another follows directly."""
    kept = np.ones(len(chunks), np.bool_)
    stops = chunks["address"] + chunks["size"]
    if not len(chunks) or not (chunks["address"][1:] < stops[:-1]).any():
        return kept
    starts, ends = chunks["address"].tolist(), stops.tolist()
    known = set(starts)
    before: list[int] = []
    for at, start in enumerate(starts):
        while before and ends[before[-1]] > start:
            if ends[at] in known and ends[before[-1]] not in known:
                kept[before.pop()] = False
            else:
                kept[at] = False
                break
        if kept[at]:
            before.append(at)
    return kept


def with_gaps_as_chunks(chunks: HeapChunks) -> tuple[HeapChunks, int]:
    """The chunks of a file, and a free chunk for each gap between two of them."""
    stops = (chunks["address"] + chunks["size"])[:-1]
    where = np.flatnonzero(chunks["address"][1:] != stops)
    free: HeapChunks = np.zeros(len(where), HEAP_CHUNK)
    free["address"], free["size"] = stops[where], chunks["address"][1:][where] - stops[where]
    free["requested"] = free["size"]
    together = joined([chunks, free])
    return taken(together, np.argsort(together["address"], kind="stable")), len(free)


# ------------------------------------------------------------------------------
# RecordedHistory: the events of one heap, from the allocations and frees that a file recorded.


REPORT = np.dtype(
    [
        ("time", "<i8"),  # nanoseconds
        ("kind", "u1"),  # a `Kind`, or a number of the importer's
        ("address", "<u8"),
        ("size", "<u8"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("label", "<u4"),
        ("in_use", "<i8"),  # what the file itself says after the report: bytes in use; -1: it says nothing
        ("pool_bytes", "<i8"),  # bytes of the pool; -1: it says nothing
    ]
)
"""One allocation, free or failed request in a file."""

Reports = NDArray[np.void]
"""An array of `REPORT`."""


def numbers_of(names: dict[str, int], name: str) -> int:
    """The number that an importer gives a thread or stream, in order of first use from 1; 0 after 65,535 names."""
    known = names.get(name)
    if known is None:
        known = names[name] = len(names) + 1 if len(names) < 0xFFFF else 0
    return known


def numbered_names(names: Iterable[str], word: str = "") -> list[tuple[str, int]]:
    """The names of imported heaps, each with its number among equal ones, from 1; from the second on it is in the name.

    `word` stands before it there: `gpu`, `gpu (dump 2)`.
    """
    seen, found = Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append((name if seen[name] == 1 else f"{name} ({word}{seen[name]})", seen[name]))
    return found


_MOST: Final = 4 * MAX_REGIONS  # events of one report: an allocation may cross every region
_CAPACITY: Final = 2 * (_MOST + 64) // 64 * 64


class RecordedHistory:
    """Writes the events of one heap in the order in which its file recorded them; not thread-safe.

    A `Ledger` derives regions, splits and merges. It leaves out and counts impossible reports: the importer turns
    `inconsistencies` into reasons of the trace's origin.

    ::

        history = RecordedHistory()
        history.at(time_ns, thread=1)  # before each report
        history.ledger.allocate(0x7000, 512, requested=400, label=3)
        history.at(later_ns)
        history.ledger.free(0x7000)
        events = history.events()

    Attributes:
        ledger: takes the reports.
    """

    def __init__(self) -> None:
        self._log = EventLog(_CAPACITY)
        self.ledger = Ledger(self._log)
        self._events: Events = np.empty(0, EVENT)
        self._copied = 0

    @property
    def inconsistencies(self) -> Inconsistencies:
        """Counts of reports that were left out, and of inferred events."""
        return self.ledger.inconsistencies

    def at(self, time: int, thread: int = 0) -> None:
        """Set the time, in nanoseconds from 0 up, and the thread of the next report. Earlier times are raised."""
        if self._log.head - self._copied > _CAPACITY - _MOST:
            self._copy(spare=True)
        self._log.begin_operation(time, thread)
        self.ledger.thread = thread

    def mark(self, label: int, value: int = 0) -> None:
        """Write a mark."""
        self._log.put(Kind.MARK, 0, 0, 0, value, 0, 0, label, self.ledger.thread, 0, -1, 0)

    def events(self) -> Events:
        """All events; nothing may be reported afterwards."""
        self._copy(spare=False)
        return self._events

    def _copy(self, *, spare: bool) -> None:
        """Copy the new events from the ring."""
        head = self._log.head
        if head > len(self._events) or not spare:
            # In place where the system can: a large history is never in memory twice.
            self._events.resize(head + head // 2 * spare, refcheck=False)
        self._log.copy_into(self._events[self._copied : head], self._copied)
        self._copied = head


# ------------------------------------------------------------------------------
# One order for the events that an importer made of several heaps: one after another, by time, or as recorded.


def one_after_another(logs: Sequence[Events]) -> Events:
    """The events of imported heap 0, then those of heap 1, ...: for states, or where there are no common times.

    Args:
        logs: one per heap; `seq` of each counts from 0, and `other` of a FREE is the `seq` of its ALLOCATE.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.arange(len(together)))


def by_time(logs: Sequence[Events]) -> Events:
    """The events of all imported heaps in the order of their `time`; events of one heap keep their order.

    Args:
        logs: as for `one_after_another`; `time` never decreases within a log.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.argsort(together["time"], kind="stable"))


def without(log: Events, dropped: NDArray[np.bool_]) -> Events:
    """A copy of the events of one imported heap without some of them, numbered again.

    Args:
        log: `seq` counts from 0.
        dropped: shape (n,); no ALLOCATE or FREE.
    """
    events: Events = taken(log, np.flatnonzero(~dropped))
    place = np.cumsum(~dropped) - 1
    frees = events["kind"] == Kind.FREE
    born: NDArray[np.uint64] = events["other"][frees]
    events["other"][frees] = place[born]
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


def _in_order(logs: Sequence[Events], order_of: Callable[[Events], NDArray[np.intp]]) -> Events:
    """The events of all imported heaps in the order of `order_of`; those of a single heap are not copied."""
    if len(logs) > MAX_POOLS:
        raise TraceError(f"the file holds {len(logs)} heaps; a trace can have {MAX_POOLS}")
    for pool, log in enumerate(logs):
        log["pool"] = pool
    if len(logs) == 1:
        return logs[0]
    together = joined(list(logs))
    return reordered(together, order_of(together), [len(log) for log in logs])


def reordered(together: Events, order: NDArray[np.intp], lengths: Sequence[int], first: int = 0) -> Events:
    """Events of imported heaps in another order; renumbers `seq`, and `other` of each FREE, the `seq` of its ALLOCATE.

    Args:
        together: the logs one after another; changed in place.
        order: index of each event in `together`.
        lengths: of the logs.
        first: index where the first log begins.
    """
    place = np.empty(len(together), np.uint32)
    place[order] = np.arange(len(together), dtype=np.uint32)
    for length in lengths:
        log = together[first : first + length]
        frees = log["kind"] == Kind.FREE
        # A log is complete, so the original seq of an event is its index.
        log["other"][frees] = place[first + log["other"][frees]]
        first += length
    events: Events = taken(together, order)
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


def in_record_order(logs: Sequence[Events], times: Sequence[int]) -> Events:
    """One stream of events; times in ns from the first record, and never earlier than those of a record before.

    Args:
        logs: one per heap, with the number of the record in `time`.
        times: ns of each record; 0: before the first record with a time.
    """
    events = by_time(logs)
    clock = np.maximum.accumulate(np.array(times, np.int64))
    first = clock[clock > 0][:1]
    if len(first):
        events["time"] = np.maximum(clock - first, 0)[events["time"]]
    else:
        events["time"] = 0
    return events


def interleave(logs: Sequence[Events], marks: Events, times: NDArray[np.int64]) -> Events:
    """One stream of events from the logs of imported heaps 0, 1, ... and the marks.

    Args:
        logs: one per pool, complete and in order; their `time` is the index of the request.
        marks: come before other events with the same index.
        times: time of each request in nanoseconds, by index; replaces the index in `time`.
    """
    for pool, log in enumerate(logs):
        log["pool"] = pool
    together: Events = joined([marks, *logs])
    order = np.argsort(together["time"], kind="stable")
    woven = reordered(together, order, [len(log) for log in logs], first=len(marks))
    woven["time"] = times[woven["time"]]
    return woven
