"""The timeline of a trace that grows, by time: one row an interval; every event is read once, memory is bounded.

`rolling` has rows of equally many events, which is right for one heap. Here all rows last equally long, so that the
timelines of several heaps can be drawn over one time axis.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import joined
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.state.model import Model
from bfcviz.model.timelines.extremes import merge_rows
from bfcviz.model.timelines.timeline import TIMELINE, measured

POINTS: Final = 100
SHORTEST_NS: Final = 10_000_000
"""The duration of a row at the beginning; it doubles as the trace grows."""

MOST_EVENTS: Final = 1 << 20
"""Events read by one call: a call takes a fraction of a second."""


class TimeTimeline:
    """The series of one pool in at most `2 * points` rows of equal duration; an interval without events has no row.

    Args:
        pool: which heap of the trace.
        points: half the most rows.

    Attributes:
        step: events read.
        width_ns: duration of a row.
        failed: number of OOM events.
        begin_ns: time of the first event; None before it.
    """

    def __init__(self, pool: int = 0, points: int = POINTS) -> None:
        self.pool, self.points = pool, points
        self.step = 0
        self.width_ns = SHORTEST_NS
        self.failed = 0
        self.begin_ns: int | None = None
        self._series = np.zeros(0, TIMELINE)
        self._model: Model | None = None

    @property
    def series(self) -> NDArray[np.void]:
        """The rows measured so far, of TIMELINE; `time` is that of the last event in the row."""
        return self._series

    def extend(self, trace: Trace, most: int = MOST_EVENTS) -> bool:
        """Read new events of `trace`, which must be the same one each time, at most `most`; returns whether more wait.

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
        rows = joined([self._series[-1:], measured(model, ends)])  # the last row may continue
        self._series = joined([self._series[:-1], merge_rows(rows, self._bucket(rows))])
        self.failed += int(np.count_nonzero((block["kind"] == Kind.OOM) & (block["pool"] == self.pool)))
        self.step = model.step

    def _widen(self, trace: Trace, start: int, stop: int) -> None:
        """Double the duration until all events before `stop` have room; merge the rows so far."""
        if self.begin_ns is None:
            self.begin_ns = int(trace.read(start, start + 1)["time"][0])
        before, end = self.width_ns, int(trace.read(stop - 1, stop)["time"][0])
        while (end - self.begin_ns) // self.width_ns >= 2 * self.points - 1:
            self.width_ns *= 2
        if self.width_ns != before and len(self._series):
            self._series = merge_rows(self._series, self._bucket(self._series))

    def _bucket(self, rows: NDArray[np.void]) -> NDArray[np.uint64]:
        found: NDArray[np.uint64] = (np.maximum.accumulate(rows["time"]) // self.width_ns).view(np.uint64)
        return found
