"""History: the totals of a heap over the steps shown, measured once for all timelines."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.figures.timelines import axis as timelines
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.figures.timelines.thinned_events import ThinnedEvents, thinned_events
from bfcviz.model.timelines.rolling import RollingTimeline


@dataclass(frozen=True)
class History:
    """The totals of a heap over the steps shown: everything timelines draw, except the line at the step.

    Attributes:
        trace: the trace.
        pool: the heap of the trace, by number.
        step_axis: the x axis.
        steps: the steps shown; None: all.
        series: TIMELINE records, from one event before these steps to one after them.
        peak_before: the highest bytes_in_use before the first row, in bytes.
        failed: the OOM events in these steps.
        marks: the MARK events in these steps.
        wanted: the request size of `too_small_share`, in bytes; None: no request.
        running: the measurements of the whole trace, which the next history reuses.
    """

    trace: Trace
    pool: int
    step_axis: StepAxis
    steps: tuple[int, int] | None
    series: NDArray[np.void]
    peak_before: int
    failed: ThinnedEvents
    marks: ThinnedEvents
    wanted: int | None
    running: RollingTimeline = field(repr=False)

    @property
    def bytes_limit(self) -> int | None:
        """The heap's memory limit in bytes; None if unknown."""
        return self.trace.origin.pools[self.pool].limit

    @property
    def xaxis(self) -> dict[str, Any]:
        """Plotly's settings of the axis."""
        return self.step_axis.xaxis(self.steps)


def measure_history(
    trace: Trace, pool: int = 0, look: Look = PLAIN, before: History | None = None
) -> History:
    """Measure a heap for the timelines: over `look.steps`, along `look.axis`, for `look.wanted`.

    Reads the whole trace once. With the history made `before` of the same heap it reads only the events added
    since then and a narrow window; a wide window is assembled from measurements. A window is wide if it has at
    least as many measured rows as the picture has points.

    Raises:
        TraceError: events contradict each other.
    """
    wanted, step_axis = look.wanted or 0, StepAxis.of(trace, look.axis)
    known = before is not None and before.trace is trace and before.pool == pool
    running = before.running if known and before is not None else RollingTimeline(pool, wanted=wanted)
    start, stop = _events(step_axis, look.steps)
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
        step_axis=step_axis,
        steps=look.steps,
        series=part.series,
        peak_before=part.peak_before,
        failed=thinned_events(running.failed, trace, start, stop),
        marks=thinned_events(running.marks, trace, start, stop),
        wanted=look.wanted,
        running=running,
    )


def _events(step_axis: StepAxis, steps: tuple[int, int] | None) -> tuple[int, int]:
    """The events whose values are shown: those between the steps, and one beyond each end, for the lines."""
    first, last = (step_axis.first, step_axis.last) if steps is None else steps
    start = min(max(first - 1, step_axis.first), max(step_axis.last - 1, step_axis.first))
    return start, min(max(last + 1, start), step_axis.last)
