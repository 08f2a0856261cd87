"""Timelines: each total over a range of steps, in as many rows as a picture has pixels; also of a trace that grows.

The timeline of a trace that grows, by steps or by time, reads each event once, and its memory is bounded.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import valued_marks
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.events.trace import Trace
from bfcviz.model import array_access, extremes
from bfcviz.model.model import Model
from bfcviz.model.pool_state import PoolState
from bfcviz.model.state_snapshots import Snapshots

# ------------------------------------------------------------------------------
# Every total over a range of steps, in as many rows as a picture has pixels; every extreme is kept.
#
# One compiled pass applies the events and records the lowest and highest value of every series after each event.

TOTALS: Final = (
    "bytes_in_use",
    "requested_bytes_in_use",
    "pool_bytes",
    "free_bytes",
    "largest_free_chunk",
    "too_small_bytes",
)
"""Series in bytes, in the order of `array_access`. The last one: bytes in free chunks smaller than a given request."""

RATIOS: Final = ("external_fragmentation", "internal_fragmentation", "reserved_not_in_use", "too_small_share")
"""Series of 0..1, in the order of `array_access`: the measures of `fragmentation`, and too_small_bytes / free_bytes."""

SERIES: Final = TOTALS + RATIOS
"""All series."""


def _timeline_fields(series: str) -> list[tuple[str, str]]:
    value = "<f8" if series in RATIOS else "<u8"
    return [
        (f"{series}_min", value),
        (f"{series}_max", value),
        (f"{series}_last", value),
        (f"{series}_min_step", "<u8"),
        (f"{series}_max_step", "<u8"),
        (f"{series}_min_time", "<i8"),
        (f"{series}_max_time", "<i8"),
    ]


TIMELINE = np.dtype(
    [
        ("step", "<u8"),
        ("time", "<i8"),
        ("events", "<u8"),
        *(f for series in SERIES for f in _timeline_fields(series)),
    ]
)
"""One bucket of consecutive events: its last step, the time of its last event, how many events it holds.

For each of SERIES: the lowest and the highest value after any of its events, the value after the last one, and the
first step, with its time, of the lowest and the highest value.
"""

_HEAD: Final = array_access.HEAD_WORDS
_TOTALS_END: Final = _HEAD + array_access.SERIES_WORDS * array_access.TOTALS
_ALL_BITS: Final = (1 << 64) - 1


def timeline(  # noqa: PLR0913  a range and how to measure it
    trace: Trace,
    pool: int = 0,
    start: int | None = None,
    stop: int | None = None,
    points: int = 2000,
    *,
    wanted: int = 0,
) -> NDArray[np.void]:
    """A timeline: the series after each of the events [start, stop), in at most `points` buckets of equal length.

    With at most `points` events every event has its row, and min, max and last are equal. Events of other pools
    count as steps without a change.

    Args:
        trace: the events.
        pool: index of the pool.
        start: the first event; None: the first event of the trace.
        stop: one past the last event; None: the end of the trace.
        points: the most rows.
        wanted: size in bytes of the request for `too_small_bytes`.

    Returns:
        Array of TIMELINE, ascending by step; empty where the range is.

    Raises:
        TraceError: the range lies outside the trace, or events contradict each other.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not 0 <= start <= stop <= len(trace) or points < 1:
        raise TraceError(
            f"a timeline of steps {start} to {stop} in {points} points is not possible: "
            f"the trace has {len(trace)} events"
        )
    model = Model(trace, pool)
    model.table.watch(wanted)
    model.seek(start)
    return measured(model, timeline_parts(start, stop, points))


def timeline_parts(start: int, stop: int, points: int) -> list[int]:
    """The end of each of at most `points` buckets of equal length of a timeline."""
    count = stop - start
    buckets = min(count, points)
    return [start + count * (i + 1) // buckets for i in range(buckets)]


def measured(
    model: Model, ends: Sequence[int], seen: Callable[[Events], object] | None = None
) -> NDArray[np.void]:
    """Rows of a timeline: move `model` to the last of `ends`; a row for the events up to each of them.

    Args:
        model: at the step where the first bucket begins; `PoolState.watch` sets the size for `too_small_bytes`.
        ends: ascending steps after the model's.
        seen: called with each block of events.

    Raises:
        TraceError: events contradict each other; the model stays at the last correct step.
    """
    table = model.table
    table.extremes()  # drop what an interrupted pass may have left
    out = np.zeros(len(ends), TIMELINE)
    row, begin = 0, model.step
    for block in model.trace.blocks(begin, ends[-1] if ends else begin):
        if seen is not None:
            seen(block)
        before = model.step
        while (at := model.step - before) < len(block):
            part = block[at : ends[row] - before]
            model.measure(part)
            if model.step == ends[row]:
                put_row(out, row, table, begin, int(part["time"][-1]))
                row, begin = row + 1, model.step
    return out


def put_row(rows: NDArray[np.void], at: int, table: PoolState, begin: int, time: int) -> None:
    """Make row `at` of TIMELINE of what `table` measured since step `begin`, up to an event of this time in ns."""
    words = np.frombuffer(rows[at : at + 1], np.uint64)  # `view` takes three times as long
    totals, ratios = table.extremes()
    step = table.step
    words[0], words[1], words[2] = step, time & _ALL_BITS, step - begin
    words[_HEAD:_TOTALS_END] = np.frombuffer(totals, np.uint64)
    words[_TOTALS_END:] = np.frombuffer(ratios, np.uint64)


def highest_between(series: NDArray[np.void], steps: NDArray[np.int64]) -> NDArray[np.uint64]:
    """From a timeline, the most bytes in use from each ascending step to the next; a row ends at each."""
    starts = np.searchsorted(series["step"], steps[:-1], side="right")
    stops = np.searchsorted(series["step"], steps[1:], side="right")
    values = series["bytes_in_use_max"]
    return np.array(
        [values[start:stop].max(initial=0) for start, stop in zip(starts, stops, strict=True)], np.uint64
    )


# ------------------------------------------------------------------------------
# The timeline of a trace that grows: every event is read once, memory is bounded; and its notable events.

MOST: Final = 1000
"""The most events that are kept."""


class NotableTimelineEvents:
    """The events of one kind and pool that a timeline shows; thinned evenly where there are too many.

    Attributes:
        kind, pool: which events these are.
        events: the kept events in order: all, or every second, every fourth, ... one.
        total: number of such events.
        every: one of `every` events is kept.
    """

    def __init__(self, kind: Kind, pool: int, most: int = MOST) -> None:
        self.kind, self.pool = kind, pool
        self.total = 0
        self.every = 1
        self._most = most
        self.events = np.zeros(0, EVENT)

    def take(self, block: Events) -> None:
        """Add the next events of the trace to those that a timeline shows."""
        found = taken(block, (block["kind"] == self.kind) & (block["pool"] == self.pool))
        if not len(found):
            return
        self.events = joined([self.events, found[-self.total % self.every :: self.every]])
        self.total += len(found)
        while len(self.events) > self._most:
            self.events = self.events[::2]
            self.every *= 2


MOST_VALUES: Final = 1 << 17
"""Marks with a measured value that are kept: 8 MiB."""

POINTS: Final = 2400


@dataclass(frozen=True)
class TimelineRange:
    """A timeline of a range of events.

    Attributes:
        series: rows of TIMELINE.
        peak_before: the highest bytes_in_use before the first event.
    """

    series: NDArray[np.void]
    peak_before: int


class RollingTimeline:
    """A timeline of one pool from the first step on, in at most `2 * points` rows of equally many events.

    With no more events than that, each event has its row, as in `timeline`. With more, pairs of neighbouring rows
    merge: a row then covers 2, 4, 8, ... events and keeps the lowest and highest value after any of them.

    Args:
        wanted: size in bytes of the request for `too_small_bytes`.

    Attributes:
        step: events read.
        series: the rows measured so far, of TIMELINE; events that the trace dropped unread leave a gap.
        length: events per row, a power of two; the last row may have fewer.
        failed: the OOM events.
        marks: the MARK events.
        values: those of them with a measured value, such as a loss.
    """

    def __init__(self, pool: int = 0, points: int = POINTS, wanted: int = 0) -> None:
        self.pool, self.points, self.wanted = pool, points, wanted
        self.step = 0
        self.length = 1
        self.failed, self.marks = (NotableTimelineEvents(kind, pool) for kind in (Kind.OOM, Kind.MARK))
        self.values = NotableTimelineEvents(Kind.MARK, pool, MOST_VALUES)
        self.series = np.zeros(0, TIMELINE)
        self._model: Model | None = None
        self._states: Snapshots | None = None

    def extend(self, trace: Trace, look_at: Callable[[Events], object] | None = None) -> None:
        """Read the new events of a timeline's `trace`, the same one each time; `look_at` gets each block.

        Raises:
            TraceError: events contradict each other; rows measured before are kept.
        """
        model = self._model_of(trace)
        start, stop = max(self.step, trace.first), len(trace)
        if start == stop:
            return
        model.seek(start)
        length, rows = self._lengthened(stop)
        ends = [*range((start // length + 1) * length, stop, length), stop]
        seen: list[Events] = []

        def look(block: Events) -> None:
            seen.append(taken(block, block["kind"] >= Kind.OOM))
            if look_at is not None:
                look_at(block)

        new = measured(model, ends, look)
        new = joined([rows[-1:], new])  # the last row may not have been full
        self.series = joined([rows[:-1], extremes.merge_rows(new, _rolling_timeline_buckets(new, length))])
        self.step, self.length = stop, length
        for events in seen:
            self.take(events, trace.labels)

    def take(self, events: Events, labels: Labels) -> None:
        """Keep the next OOMs and marks of a timeline."""
        self.failed.take(events)
        self.marks.take(events)
        self.values.take(valued_marks(labels, events))

    def adopt(self, rows: NDArray[np.void], step: int) -> None:
        """Take rows of a timeline that were measured before: those of all events up to `step`."""
        while -(-step // self.length) > 2 * self.points or self.length < int(rows["events"].max(initial=1)):
            self.length *= 2
        self.series = extremes.merge_rows(rows, _rolling_timeline_buckets(rows, self.length))
        self.step = step

    def copy(self) -> "RollingTimeline":
        """A timeline with the same rows, to extend and measure independently; it refers to no trace yet."""
        made = copy.copy(self)
        made.failed, made.marks, made.values = map(copy.copy, (self.failed, self.marks, self.values))
        vars(made).update(_states=self.snapshots(), _model=None)
        return made

    def snapshots(self) -> Snapshots | None:
        """The states that a timeline's passes kept, for another model; None before the first pass."""
        if self._model is not None:
            return self._model.snapshots()
        return None if self._states is None else self._states.copy()

    def holds(self, start: int, stop: int, points: int) -> bool:
        """Whether a timeline has enough rows of the events [start, stop) for a picture of `points`."""
        return self.length == 1 or stop - start >= points * self.length

    def part(self, start: int, stop: int, points: int) -> TimelineRange:
        """The rows of a timeline that cover the events [start, stop), merged to at most `points`."""
        if start == stop:
            return TimelineRange(self.series[:0], 0)
        holding = np.searchsorted(self.series["step"], np.array([start, stop - 1], np.uint64), "right")
        first, end = int(holding[0]), int(holding[1]) + 1
        peak = int(self.series["bytes_in_use_max"][:first].max(initial=0))
        return TimelineRange(extremes.downsample(self.series[first:end], points), peak)

    def measure(self, trace: Trace, start: int, stop: int, points: int, wanted: int) -> TimelineRange:
        """A timeline as of `timeline`, but faster: after `extend` the model reaches `start` from near."""
        model = self._model_of(trace)
        model.seek(start)
        peak = model.stats().peak_bytes_in_use
        model.table.watch(wanted)
        try:
            return TimelineRange(measured(model, timeline_parts(start, stop, points)), peak)
        finally:
            model.table.watch(self.wanted)

    def _model_of(self, trace: Trace) -> Model:
        if self._model is None or self._model.trace is not trace:
            self._model = Model(trace, self.pool, self._states)
            self._model.table.watch(self.wanted)
        return self._model

    def _lengthened(self, stop: int) -> tuple[int, NDArray[np.void]]:
        """The row length that a timeline needs up to `stop`, and the rows so far merged to it."""
        length = self.length
        while -(-stop // length) > 2 * self.points:
            length *= 2
        if length == self.length:
            return length, self.series
        return length, extremes.merge_rows(self.series, _rolling_timeline_buckets(self.series, length))


def _rolling_timeline_buckets(rows: NDArray[np.void], length: int) -> NDArray[np.uint64]:
    bucket: NDArray[np.uint64] = (rows["step"] - np.uint64(1)) // np.uint64(length)
    return bucket


# ------------------------------------------------------------------------------
# The timeline of a trace that grows, by time: one row an interval; every event is read once, memory is bounded.
#
# `RollingTimeline` has rows of equally many events, which is right for one heap. Here all rows last equally long, so
# that the timelines of several heaps can be drawn over one time axis.

INTERVALS: Final = 100
SHORTEST_NS: Final = 10_000_000
"""The duration of a row at the beginning; it doubles as the trace grows."""

MOST_EVENTS: Final = 1 << 20
"""Events read by one call: a call takes a fraction of a second."""


class TimeTimeline:
    """A timeline of one pool in at most `2 * points` rows of equal duration; no row where no events are.

    Attributes:
        step: events read.
        series: the rows measured so far, of TIMELINE; `time` is that of the last event in the row.
        width_ns: duration of a row.
        failed: number of OOM events.
        begin_ns: time of the first event; None before it.
    """

    def __init__(self, pool: int = 0, points: int = INTERVALS) -> None:
        self.pool, self.points = pool, points
        self.step = 0
        self.width_ns = SHORTEST_NS
        self.failed = 0
        self.begin_ns: int | None = None
        self.series = np.zeros(0, TIMELINE)
        self._model: Model | None = None

    def extend(self, trace: Trace, most: int = MOST_EVENTS) -> bool:
        """Read new events of a timeline's `trace`, the same each time, at most `most`; returns whether more wait.

        Raises:
            TraceError: events contradict each other; rows measured before are kept.
        """
        if self._model is None:
            self._model = Model(trace, self.pool)
        model = self._model
        start = max(self.step, trace.first)
        stop = min(start + most, len(trace))
        if start == stop:
            return False
        if model.step != start:
            model.seek(start)
        self._widen(trace, start, stop)
        for block in trace.blocks(start, stop):
            self._take(model, block)
        return stop < len(trace)

    def _take(self, model: Model, block: Events) -> None:
        times = np.maximum.accumulate(block["time"])  # threads may write their events a little out of order
        cuts = np.flatnonzero(np.diff(times // self.width_ns)) + 1
        ends = [model.step + int(cut) for cut in (*cuts, len(block))]
        rows = joined([self.series[-1:], measured(model, ends)])  # the last row may continue
        self.series = joined([self.series[:-1], extremes.merge_rows(rows, self._bucket(rows))])
        self.failed += int(np.count_nonzero((block["kind"] == Kind.OOM) & (block["pool"] == self.pool)))
        self.step = model.step

    def _widen(self, trace: Trace, start: int, stop: int) -> None:
        """Double the duration of a timeline's rows until all events before `stop` have room; merge them."""
        if self.begin_ns is None:
            self.begin_ns = int(trace.read(start, start + 1)["time"][0])
        before, end = self.width_ns, int(trace.read(stop - 1, stop)["time"][0])
        while (end - self.begin_ns) // self.width_ns >= 2 * self.points - 1:
            self.width_ns *= 2
        if self.width_ns != before and len(self.series):
            self.series = extremes.merge_rows(self.series, self._bucket(self.series))

    def _bucket(self, rows: NDArray[np.void]) -> NDArray[np.uint64]:
        found: NDArray[np.uint64] = (np.maximum.accumulate(rows["time"]) // self.width_ns).view(np.uint64)
        return found
