"""History: one heap over the steps that are shown, measured once for all timelines."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.axis import Clock
from bfcviz.model.timelines.notable_events import NotableEvents
from bfcviz.model.timelines.rolling import RollingTimeline

_FEW: Final = 2_000_000
"""Events that are soon read once more, for the signs among them."""


@dataclass(frozen=True)
class Signs:
    """Events that are drawn one by one.

    Attributes:
        events: in order.
        every: each stands for so many, itself included.
    """

    events: Events
    every: int = 1

    def among(self, start: int, stop: int) -> "Signs":
        """Those of the events [start, stop)."""
        first, end = np.searchsorted(self.events["seq"], [start, stop])
        return Signs(self.events[first:end], self.every)


@dataclass(frozen=True)
class History:
    """One heap over the steps that are shown: all that timelines draw, but for where the view stands.

    Attributes:
        trace: the trace.
        pool: which of its heaps.
        clock: where steps lie on the axis.
        steps: the steps that are shown; None: all there are.
        series: rows of TIMELINE, from one event before these steps to one after them.
        peak_before: the highest bytes_in_use before the first row, in bytes.
        failed: the OOM events among them.
        marks: the MARK events among them.
        wanted: bytes of the request that `too_small_share` is about; None: none.
        running: what was measured over the whole trace, for the next look at it.
    """

    trace: Trace
    pool: int
    clock: Clock
    steps: tuple[int, int] | None
    series: NDArray[np.void]
    peak_before: int
    failed: Signs
    marks: Signs
    wanted: int | None
    running: RollingTimeline = field(repr=False)

    @property
    def bytes_limit(self) -> int | None:
        """The heap's memory limit, None where it is not known."""
        return self.trace.origin.pools[self.pool].limit

    @property
    def xaxis(self) -> dict[str, Any]:
        """Plotly's settings of the axis."""
        return self.clock.xaxis(self.steps)


def history(trace: Trace, pool: int = 0, look: Look = PLAIN, before: History | None = None) -> History:
    """Measures one heap for the timelines: over `look.steps`, along `look.axis`, for `look.wanted`.

    The whole trace is read once. Whoever hands in the history made `before` of the same heap has only what
    was added since then read, and a narrow window; a wide one is put together from what is known. Wide:
    where it has no fewer rows than the picture has points.

    Raises:
        TraceError: events contradict each other.
    """
    wanted, clock = look.wanted or 0, Clock.of(trace, look.axis)
    known = before is not None and before.trace is trace and before.pool == pool
    running = before.running if known and before is not None else RollingTimeline(pool, wanted=wanted)
    start, stop = _events(clock, look.steps)
    points = timelines.intervals(stop - start)
    if running.wanted != wanted and running.holds(start, stop, points):
        running = RollingTimeline(pool, wanted=wanted)
    running.extend(trace)
    if running.holds(start, stop, points):
        part = running.part(start, stop, points)
    else:
        part = running.measure(trace, start, stop, points, wanted)
    return History(
        trace=trace,
        pool=pool,
        clock=clock,
        steps=look.steps,
        series=part.series,
        peak_before=part.peak_before,
        failed=_signs(running.failed, trace, start, stop),
        marks=_signs(running.marks, trace, start, stop),
        wanted=look.wanted,
        running=running,
    )


def _events(clock: Clock, steps: tuple[int, int] | None) -> tuple[int, int]:
    """The events whose values are seen: between the steps, and one to either side, where lines come in."""
    first, last = (clock.first, clock.last) if steps is None else steps
    start = min(max(first - 1, clock.first), max(clock.last - 1, clock.first))
    return start, min(max(last + 1, start), clock.last)


def _signs(notes: NotableEvents, trace: Trace, start: int, stop: int) -> Signs:
    """Those of the events [start, stop); read again where thinning has left few of them."""
    found = Signs(notes.events, notes.every).among(start, stop)
    if notes.every == 1 or stop - start > _FEW:
        return found
    again = NotableEvents(notes.kind, notes.pool)
    for block in trace.blocks(start, stop):
        again.take(block)
    return Signs(again.events, again.every)
