"""TraceIndex: what searches, timelines and colours need of all events of one heap, found in one pass.

::

    events    |  65,536  |  65,536  |  65,536  |  ...      read once, block by block
    index     rows of every total; every OOM and MARK; bytes times steps of each label; states to seek from

The peak, the worst fragmentation, marks, failures and the set-up of a program then cost no second pass. The index is
of a trace that no longer grows; a live trace is followed by `growing_timeline`.
"""

from collections.abc import Collection
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, TraceError
from bfcviz.events.event_source import wrong_fields
from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.block_index import PARTS, REST, BlockEntry, entry_of, parts_of, with_byte_steps, with_sums
from bfcviz.model.growing_timeline import RollingTimeline
from bfcviz.model.snapshots import Snapshots
from bfcviz.model.timelines import TIMELINE

MOST_NOTABLE: Final = 1 << 18
"""OOMs and marks of all heaps that an index keeps (16 MiB); with more, they are searched in the events."""

HELD: Final = np.dtype([("start", "<u8"), ("stop", "<u8"), ("label", "<u4"), ("byte_steps", "<f8")])
"""Bytes times steps in use of one label (or `REST`) within the events [start, stop)."""

LEAST_EVENTS: Final = 1 << 22
"""A shorter trace is read, for finer timelines than those that are stored: it takes less than a second."""

_NUMBERS: Final = ("thread", "stream")


class TraceIndex:
    """The index of one heap of a trace that does not grow; made by `index_of`.

    Attributes:
        length: events of the trace.
        rolling: the series of the heap.
        byte_steps: bytes in use times steps in use, summed over the trace, by label number.
    """

    def __init__(self, trace: Trace, pool: int, least: int = LEAST_EVENTS) -> None:
        """Read what is stored with the blocks of a trace of at least so many events, or else all events.

        Raises:
            TraceError: events contradict each other.
        """
        self.length = len(trace)
        self.pool = pool
        self.byte_steps: NDArray[np.float64] = np.zeros(0)
        self._ranges: dict[str, tuple[int, int]] = {}
        self._found: list[Events] = []
        self._count = 0
        self._held = np.zeros(0, HELD)
        entries = _stored_entries(trace) if self.length >= least else None
        rolling = RollingTimeline(pool)
        if entries is None and trace.first:
            raise TraceError("the first events were dropped, and nothing is stored with the others")
        if entries is None:
            rolling.extend(trace, self._look_at)
        else:
            self._held = joined([_indexed_held_labels(entry, pool) for entry in entries])
            rolling.adopt(joined([entry.pools[pool].rows for entry in entries]), self.length)
            for entry in entries:
                self._take(entry)
            for events in self._found:
                rolling.take(events, trace.labels)
        self.rolling = rolling.copy()  # a reference to the trace would keep both alive
        self._notable = joined(self._found) if self._found else np.zeros(0, EVENT)
        del self._found

    @property
    def varied(self) -> frozenset[str]:
        """Which of `thread` and `stream` differ between allocations of the heap."""
        return frozenset(name for name, (low, high) in self._ranges.items() if low != high)

    def notable(self, kinds: Collection[Kind], pool: int | None, start: int, stop: int) -> Events | None:
        """All events of `kinds` in [start, stop) of a pool (None: of any); None where the index does not keep them."""
        if self._count > MOST_NOTABLE or not {Kind.OOM, Kind.MARK}.issuperset(kinds):
            return None
        first, end = np.searchsorted(self._notable["seq"], np.array([start, stop], np.uint64))
        events = self._notable[first:end]
        wanted = np.isin(events["kind"], [int(kind) for kind in kinds])
        return taken(events, wanted if pool is None else wanted & (events["pool"] == pool))

    @property
    def knows_holders(self) -> bool:
        """Whether `held_within` has something: it is only stored with blocks."""
        return len(self._held) > 0

    def held_within(self, start: int, stop: int) -> NDArray[np.void]:
        """Bytes times steps in use by label, of HELD, of the parts of the trace that overlap [start, stop)."""
        found: NDArray[np.void] = self._held[(self._held["stop"] > start) & (self._held["start"] < stop)]
        return found

    def snapshots(self) -> Snapshots | None:
        """The states that the pass kept, for a model of its own of the same heap."""
        return self.rolling.snapshots()

    def _look_at(self, block: Events) -> None:
        self._keep_notable(taken(block, block["kind"] >= Kind.OOM))
        self.byte_steps = with_byte_steps(self.byte_steps, block, self.pool, "label", self.length)
        if len(self.varied) < len(_NUMBERS):
            allocations = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self.pool)
            for name in _NUMBERS:
                values = block[name][allocations]
                if len(values):
                    self._widen(name, int(values.min()), int(values.max()))

    def _take(self, entry: BlockEntry) -> None:
        """As `_look_at`, from what is stored with a block."""
        found = entry.pools[self.pool]
        if entry.notable is not None:
            self._keep_notable(entry.notable)
        labels = found.labels[found.labels["label"] != REST]
        numbers, totals = labels["label"], labels["byte_steps"].astype(np.float64)
        self.byte_steps = with_sums(self.byte_steps, numbers, totals)
        for name, (low, high) in found.ranges.items():
            self._widen(name, low, high)

    def _keep_notable(self, found: Events) -> None:
        self._count += len(found)
        if len(found) and self._count <= MOST_NOTABLE:
            self._found.append(found)

    def _widen(self, name: str, low: int, high: int) -> None:
        least, most = self._ranges.get(name, (low, high))
        self._ranges[name] = min(low, least), max(high, most)


def _indexed_held_labels(entry: BlockEntry, pool: int) -> NDArray[np.void]:
    rows, labels = entry.pools[pool].rows, entry.pools[pool].labels
    stop, count = int(rows["step"][-1]), int(rows["events"].sum())
    edges = np.array(parts_of(count), np.uint64) + np.uint64(stop - count)
    found = np.zeros(len(labels), HELD)
    found["start"], found["stop"] = edges[labels["part"]], edges[labels["part"] + 1]
    found["label"], found["byte_steps"] = labels["label"], labels["byte_steps"]
    return found


_MOST_ENTRIES: Final = 1 << 29
"""Bytes of all entries in memory: 25 kB for 262,144 events of one heap, where few are notable."""


def _stored_entries(trace: Trace) -> list[BlockEntry] | None:
    """What is stored with each block of a trace; None where something is missing, damaged or incomplete."""
    stored = trace.index_entries()
    if not stored:
        return None
    entries, stop, nbytes = [], trace.first, 0
    for each in stored:
        try:
            entry = entry_of(each, len(trace.origin.pools))
        except TraceError:
            return None
        start, stop = stop, _stop_of(entry)
        nbytes += entry.nbytes
        is_next = start < stop <= len(trace)
        if nbytes > _MOST_ENTRIES or not is_next or not _is_whole(entry, start, stop, trace):
            return None
        entries.append(entry)
    return entries if stop == len(trace) else None


def _stop_of(entry: BlockEntry) -> int:
    """The last step of its rows."""
    return int(entry.pools[0].rows["step"].max(initial=0))


def _is_whole(entry: BlockEntry, start: int, stop: int, trace: Trace) -> bool:
    """Whether all that it says is possible for the events [start, stop): a file can say anything."""
    labels = len(trace.labels)
    return (
        all(_has_rows(pool.rows, start, stop) and _has_labels(pool.labels, labels) for pool in entry.pools)
        and entry.notable is not None
        and _are_notable(entry.notable, start, stop, trace)
    )


def _has_rows(rows: NDArray[np.void], start: int, stop: int) -> bool:
    """Whether the rows follow each other from `start` to `stop`, and their extremes lie there."""
    ends = np.append(np.uint64(start), rows["step"])
    if int(ends[-1]) != stop or not (ends[1:] > ends[:-1]).all() or (np.diff(ends) != rows["events"]).any():
        return False
    return bool(all((rows[name] <= stop).all() for name in TIMELINE.names or () if name.endswith("_step")))


def _has_labels(found: NDArray[np.void], labels: int) -> bool:
    """Whether parts and labels exist, and the sums are numbers."""
    known = (found["label"] == REST) | (found["label"] < labels)
    return bool((known & (found["part"] < PARTS) & np.isfinite(found["byte_steps"])).all())


def _are_notable(events: Events, start: int, stop: int, trace: Trace) -> bool:
    """Whether they are valid OOMs and marks of [start, stop), in order."""
    seq = events["seq"]
    wrong = wrong_fields(events, len(trace.origin.pools)) | (events["kind"] < Kind.OOM)
    wrong |= (seq < start) | (seq >= stop) | (events["label"] >= len(trace.labels))
    return not wrong.any() and bool((seq[1:] > seq[:-1]).all())


_Indexes = WeakKeyDictionary[Trace, dict[tuple[int, int], TraceIndex | None]]

_made: _Indexes = WeakKeyDictionary()
"""By pool and length; None: it cannot be made."""

_summaries: _Indexes = WeakKeyDictionary()
"""As `_made`, those of `summary_index_of`."""

_making: Final = Lock()


def index_of(trace: Trace, pool: int = 0) -> TraceIndex | None:
    """The index of a heap; the first call for it reads all events of a trace that is not long.

    None for a trace that grows, whose events are wrong or cannot be read, or that dropped its first events and has
    nothing stored with the others.
    """
    return _kept_trace_index(_made, trace, pool, LEAST_EVENTS)


def summary_index_of(trace: Trace, pool: int = 0) -> TraceIndex | None:
    """The index of a heap for its extremes and notable events, not for pictures: also a short trace is not read.

    Its timelines have as few rows as are stored with the trace. None as for `index_of`.
    """
    return _kept_trace_index(_summaries, trace, pool, 0)


def _kept_trace_index(known: _Indexes, trace: Trace, pool: int, least: int) -> TraceIndex | None:
    if trace.following:
        return None
    with _making:
        made, key = known.setdefault(trace, {}), (pool, len(trace))
        if key not in made:
            try:
                made[key] = TraceIndex(trace, pool, least)
            except BfcvizError:  # the caller reads the events it needs, and raises
                made[key] = None
        return made[key]


def known_index(trace: Trace, pool: int | None = None) -> TraceIndex | None:
    """The index of a heap (None: of any) where `index_of` made one of all events that the trace has now."""
    return _known_trace_index(_made, trace, pool)


def known_notable(trace: Trace) -> TraceIndex | None:
    """An index of any heap for its `notable`, whatever made it."""
    return _known_trace_index(_made, trace, None) or _known_trace_index(_summaries, trace, None)


def _known_trace_index(indexes: _Indexes, trace: Trace, pool: int | None) -> TraceIndex | None:
    made, length = indexes.get(trace, {}), len(trace)
    found = (index for (of, at), index in list(made.items()) if at == length and pool in (None, of))
    return next((index for index in found if index is not None), None)
