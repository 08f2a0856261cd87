"""What all timelines share: the x axis, the totals over the steps shown, marks and failed requests."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.marks import (
    Phase,
    PhaseEnd,
    mark_value,
    measured_names,
    phase_ends,
    phases_among,
    value_text,
)
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.figures.panel import LINES, Floats
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import Theme, translucent
from bfcviz.figures.view_options import PLAIN, Axis, Look
from bfcviz.model.equal_steps import step_marks
from bfcviz.model.timelines import NotableTimelineEvents, RollingTimeline
from bfcviz.model.trace_index import index_of
from bfcviz.units import exact_bytes

# ------------------------------------------------------------------------------
# The x axis of all timelines: positions of steps, lines through intervals, the line at the step shown.

POINTS: Final = 1000
"""Points of a line, at most: plotly redraws every line at every step, in time proportional to its points."""

_MARGIN: Final = 0.012  # of the width: room at the right end, so that the last event is not cut off

_MOST_TICKS: Final = 12
_ROUND: Final = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]  # strides of ticks

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class StepAxis:
    """Maps steps to positions on the x axis of all timelines of a trace, and back; for its length when it was made."""

    trace: Trace
    # whether positions are steps or times. The time of a step is that of its last event; step 0 has no event and,
    # like the first step of a live window, takes the time of the first event.
    axis: Literal["step", "time"]
    # first, last: the steps at the ends of the axis
    first: int
    last: int
    unit: float = 1.0  # steps or nanoseconds per unit of the axis; the same for every window of the trace
    symbol: str = "step"  # the symbol of the unit
    # the steps at which the program's own steps end, ascending; its ticks count them. None: the ticks are positions.
    marks: NDArray[np.int64] | None = field(default=None, compare=False)
    mark_name: str = ""  # the name of these marks

    @classmethod
    def of(cls, trace: Trace, axis: Axis = "step") -> "StepAxis":
        """The axis of the trace at its present length; without marks that separate steps, `mark` is `step`."""
        first, last = trace.first, len(trace)
        if axis == "mark":
            name, seqs = step_marks(trace)
            return cls(trace, "step", first, last, marks=seqs + 1 if len(seqs) else None, mark_name=name)
        if axis == "step":
            return cls(trace, axis, first, last)
        span = _axis_time_at_step(trace, last) - _axis_time_at_step(trace, first)
        # The largest unit of which the axis has two.
        unit = next(((ns, name) for ns, name in _NANOSECONDS if span >= 2 * ns), _NANOSECONDS[-1])
        return cls(trace, axis, first, last, *unit)

    @property
    def title(self) -> str:
        """The title of the timelines' x axis, with its unit."""
        if self.marks is not None:
            return f"number of the mark {harmless(repr(self.mark_name), 30)} (distances are events)"
        return "step (number of events applied)" if self.axis == "step" else f"time ({self.symbol})"

    @property
    def hover(self) -> str:
        """A position on the timelines' x axis, as a part of a plotly hover template."""
        return "step %{x:,.0f}" if self.axis == "step" else f"%{{x:,.9~f}} {self.symbol}"

    def position(self, step: int) -> float:
        """The position of `step` on the timelines' x axis."""
        return (step if self.axis == "step" else _axis_time_at_step(self.trace, step)) / self.unit

    def positions(self, steps: NDArray[Any], times: NDArray[Any]) -> Floats:
        """The positions on the timelines' x axis of steps with known times, in nanoseconds; same shape."""
        where = steps if self.axis == "step" else times
        found: Floats = where.astype(np.float64) / self.unit
        return found

    def step_at(self, x: float) -> int:
        """The step shown at position `x`: the last one at or before it, else the first."""
        if self.axis == "step":
            return min(max(int(x + 1e-6), self.first), self.last)
        wanted = x * self.unit + 0.5  # + 0.5 ns: times as floats are not exact
        low, high = self.first, self.last
        while low < high:
            middle = (low + high + 1) // 2
            if _axis_time_at_step(self.trace, middle) <= wanted:
                low = middle
            else:
                high = middle - 1
        return low

    def range(self, steps: tuple[int, int] | None) -> list[float]:
        """The ends of the timelines' x axis: exactly these steps, or (None) all steps and a small margin."""
        first, last = (self.first, self.last) if steps is None else steps
        left, right = self.position(first), self.position(last)
        if right <= left:
            right = left + 1.0 / self.unit
        return [left, right + (_MARGIN * (right - left) if steps is None else 0.0)]

    def xaxis(self, steps: tuple[int, int] | None) -> dict[str, Any]:
        """Plotly's settings of the timelines' x axis for `steps` (None: all)."""
        first, last = self.range(None)
        found: dict[str, Any] = {"title": {"text": self.title}, "range": self.range(steps)}
        found |= {"minallowed": first, "maxallowed": last}
        if self.marks is not None:
            return found | self._mark_ticks(self.marks, steps)
        return found | ({"tickformat": ",~f"} if self.axis == "step" else {})

    def _mark_ticks(self, marks: NDArray[np.int64], steps: tuple[int, int] | None) -> dict[str, Any]:
        """Ticks of timelines at some of the marks in the window, at round numbers and not too close."""
        left, right = self.range(steps)
        numbers = np.flatnonzero((marks >= left) & (marks <= right)) + 1
        every = next(stride for stride in _ROUND if len(numbers) <= _MOST_TICKS * stride)
        apart = (right - left) / _MOST_TICKS / 2
        ticks: list[int] = []
        for number in numbers[numbers % every == 0].tolist():
            if not ticks or marks[number - 1] - marks[ticks[-1] - 1] >= apart:
                ticks.append(number)
        return {
            "tickvals": marks[np.array(ticks, np.intp) - 1].astype(np.float64),
            "ticktext": [f"{number:,}" for number in ticks],
        }


def _axis_time_at_step(trace: Trace, step: int) -> int:
    if len(trace) == trace.first:
        return 0
    event = max(step - 1, trace.first)  # the window of a live trace may have moved on: then its first event
    return int(trace.read(event, event + 1)["time"][0])


def drawn_intervals(events: int) -> int:
    """The intervals of a timeline to draw of so many events: one per event, or `POINTS` / 2 with two points each."""
    return POINTS if events <= POINTS else POINTS // 2


def is_exact(series: NDArray[np.void]) -> bool:
    """Whether every interval of a timeline is a single event: then least, greatest and last value are the same."""
    return not len(series) or int(series["events"].max()) == 1


def envelope(series: NDArray[np.void], field: str, step_axis: StepAxis) -> tuple[Floats, Floats]:
    """The area of a timeline between least and greatest value of each interval, as a closed line of shape `hv`.

    If every interval is a single event, the line through the events, which encloses no area.
    """
    if is_exact(series):
        return upper_edge(series, field, step_axis)
    ends = _timeline_interval_ends(series, field, step_axis)
    high, low = (series[f"{field}_{end}"].astype(np.float64) for end in ("max", "min"))
    # Backwards, a line of shape `hv` keeps the value of the interval that it has just left.
    return np.append(ends, ends[::-1]), np.concatenate([high, high[-1:], low[::-1], low[:1]])


def upper_edge(
    series: NDArray[np.void], field: str, step_axis: StepAxis, end: str = "max"
) -> tuple[Floats, Floats]:
    """A line of a timeline through the greatest value of each interval; `end="min"`: through the least."""
    if is_exact(series):
        return step_axis.positions(series["step"], series["time"]), series[f"{field}_last"].astype(np.float64)
    values = series[f"{field}_{end}"].astype(np.float64)
    return _timeline_interval_ends(series, field, step_axis), np.append(values, values[-1:])


def _timeline_interval_ends(series: NDArray[np.void], field: str, step_axis: StepAxis) -> Floats:
    """Where each interval of a timeline begins, and where the last one ends, shape (n + 1,)."""
    extremes = [series[:1][f"{field}_{end}_{step_axis.axis}"] for end in ("min", "max")]
    begin = np.minimum(*extremes).astype(np.float64) / step_axis.unit  # of the first: no row says more
    return np.append(begin, step_axis.positions(series["step"], series["time"]))


def step_line(step_axis: StepAxis, step: int | None, top: float, theme: Theme) -> dict[str, Any]:
    """The vertical line on a timeline at the step shown; None: no line."""
    position = np.nan if step is None else step_axis.position(step)
    return {
        **LINES,
        "name": "this step",
        "meta": step_axis.axis,
        "x": np.array([position, position]),
        "y": np.array([0.0, top]),
        "line": {"color": theme.highlight, "width": 2},
    }


def timeline_steps(step_axis: StepAxis, look: Look) -> tuple[int, int]:
    """The steps that the timelines of a look show: its window, clipped to the steps of the trace."""
    first, last = look.steps or (step_axis.first, step_axis.last)
    first = min(max(first, step_axis.first), step_axis.last)
    return first, min(max(last, first), step_axis.last)


# ------------------------------------------------------------------------------
# The single events that timelines draw: marks and failed requests, evenly thinned if there are too many.

_FEW: Final = 2_000_000  # a window of at most so many events is read again for its marks and OOMs


@dataclass(frozen=True)
class DrawnEvents:
    """Events that the pictures of timelines draw one by one, evenly thinned if there are too many."""

    events: Events  # the events that are left, in order
    every: int = 1  # each stands for so many events, itself included; 1: not thinned

    def between(self, start: int, stop: int) -> "DrawnEvents":
        """Those of a timeline's events with start <= seq < stop."""
        first, end = np.searchsorted(self.events["seq"], [start, stop])
        return DrawnEvents(self.events[first:end], self.every)


def drawn_events(notes: NotableTimelineEvents, trace: Trace, start: int, stop: int) -> DrawnEvents:
    """The events of a timeline to draw with start <= seq < stop; read again if thinned and the window is small."""
    found = DrawnEvents(notes.events, notes.every).between(start, stop)
    if notes.every == 1 or stop - start > _FEW:
        return found
    again = NotableTimelineEvents(notes.kind, notes.pool)
    for block in trace.blocks(start, stop):
        again.take(block)
    return DrawnEvents(again.events, again.every)


# ------------------------------------------------------------------------------
# History: the totals of a heap over the steps shown, measured once for all timelines.


@dataclass(frozen=True)
class History:
    """The totals of a heap over the steps shown: everything timelines draw, except the line at the step."""

    # trace, pool: the heap
    trace: Trace
    pool: int
    step_axis: StepAxis  # the x axis
    steps: tuple[int, int] | None  # the steps shown; None: all
    series: NDArray[np.void]  # TIMELINE records, from one event before these steps to one after them
    peak_before: int  # the highest bytes_in_use before the first row, in bytes
    failed: DrawnEvents  # the OOM events in these steps
    marks: DrawnEvents  # the MARK events in these steps
    values: DrawnEvents  # those of them with a measured value, such as a loss
    wanted: int | None  # the request size of `too_small_share`, in bytes; None: no request
    # the measurements of the whole trace, which the next history reuses
    running: RollingTimeline = field(repr=False)

    @property
    def bytes_limit(self) -> int | None:
        """The heap's memory limit on a timeline, in bytes; None if unknown."""
        return self.trace.origin.pools[self.pool].limit

    @property
    def xaxis(self) -> dict[str, Any]:
        """Plotly's settings of the timelines' x axis."""
        return self.step_axis.xaxis(self.steps)


def measure_history(
    trace: Trace, pool: int = 0, look: Look = PLAIN, before: History | None = None
) -> History:
    """Measure a heap for its timelines: over `look.steps`, along `look.axis`, for `look.wanted`.

    Reads the whole trace once. With the history made `before` of the same heap it reads only the events added
    since then and a narrow window; a wide window is assembled from measurements. A window is wide if it has at
    least as many measured rows as the picture has points.

    Raises:
        TraceError: events contradict each other.
    """
    wanted, step_axis = look.wanted or 0, StepAxis.of(trace, look.axis)
    known = before is not None and before.trace is trace and before.pool == pool
    if known and before is not None:
        running = before.running
    else:
        index = None if wanted else index_of(trace, pool)
        running = RollingTimeline(pool, wanted=wanted) if index is None else index.rolling.copy()
    start, stop = _timeline_event_range(step_axis, look.steps)
    points = drawn_intervals(stop - start)
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
        failed=drawn_events(running.failed, trace, start, stop),
        marks=drawn_events(running.marks, trace, start, stop),
        values=DrawnEvents(running.values.events, running.values.every).between(start, stop),
        wanted=look.wanted,
        running=running,
    )


def _timeline_event_range(step_axis: StepAxis, steps: tuple[int, int] | None) -> tuple[int, int]:
    """The events whose values are shown: those between the steps, and one beyond each end, for the lines."""
    first, last = (step_axis.first, step_axis.last) if steps is None else steps
    start = min(max(first - 1, step_axis.first), max(step_axis.last - 1, step_axis.first))
    return start, min(max(last + 1, start), step_axis.last)


# ------------------------------------------------------------------------------
# Single events on a timeline: the user's marks, and failed requests (OOM).

MOST_MARKS: Final = 60
"""Equal parts of the axis, each with at most one mark: closer lines cannot be told apart."""

MOST_FAILURES: Final = 100
"""The same for OOMs."""


def marks(history: History, thinned: DrawnEvents, top: float, theme: Theme) -> dict[str, Any]:
    """A vertical line on a timeline at each of these marks, up to `top`; a triangle shows its label on hover."""
    events, name = _drawn_timeline_events(history, thinned, "mark", MOST_MARKS)
    across = positions_of(history, events)
    count = len(across)
    # A mark without a value has 0, as one of 0 has: other marks of the name tell whether it has values.
    above = np.unique(thinned.events["label"][thinned.events["size"] > 0]).tolist()
    valued = {history.trace.labels.name(label) for label in above}
    texts = [_timeline_mark_text(history, event, valued) for event in events]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "showlegend": bool(count),
        "x": np.repeat(across, 3),
        "y": np.tile([0.0, 0.985 * top, np.nan], count),
        "line": {"color": translucent(theme.muted, 0.7), "width": 1},
        "marker": {
            "symbol": "triangle-down",
            "size": np.tile([0.0, 9.0, 0.0], count),
            "color": theme.text,
            "line": {"width": 0},
        },
        "hovertext": [text for text in texts for _ in range(3)],
        "hoverinfo": "text",
    }


def failures(history: History, divisor: int, theme: Theme) -> dict[str, Any]:
    """A cross on a timeline at each OOM, at the height of the free bytes; `divisor` bytes are one unit."""
    events, name = _drawn_timeline_events(history, history.failed, "OOM", MOST_FAILURES)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": bool(len(events)),
        "x": positions_of(history, events),
        "y": events["address"].astype(np.float64) / divisor,
        "marker": {"symbol": "x", "size": 9, "color": theme.oom, "line": {"color": theme.paper, "width": 1}},
        "hovertext": [
            f"<b>OOM</b>: {exact_bytes(int(event['requested']))} requested"
            f"<br>free bytes {exact_bytes(int(event['address']))}"
            f"<br>largest free chunk {exact_bytes(int(event['size']))}"
            f"<br>step {int(event['seq']) + 1:,}"
            for event in events
        ],
        "hoverinfo": "text",
    }


def _drawn_timeline_events(
    history: History, thinned: DrawnEvents, name: str, parts: int
) -> tuple[Events, str]:
    """The first event in each of so many parts of the window; and `name`, with the number left out, if any."""
    left, right = history.step_axis.range(history.steps)
    across = positions_of(history, thinned.events)
    inside = np.flatnonzero((across >= left) & (across <= right))
    part = ((across[inside] - left) * (parts / (right - left))).astype(np.int64)
    first = inside[np.unique(part, return_index=True)[1]]
    total = len(inside) * thinned.every
    if len(first) == total:
        return thinned.events, name
    about = "" if thinned.every == 1 else "about "
    return thinned.events[first], f"{name} ({len(first):,} of {about}{total:,} shown)"


def positions_of(history: History, events: NDArray[np.void]) -> Floats:
    """The positions of the states after these events, on the timelines' x axis."""
    return history.step_axis.positions(events["seq"] + np.uint64(1), events["time"])


def _timeline_mark_text(history: History, event: np.void, valued: Collection[str]) -> str:
    name = history.trace.labels.name(int(event["label"]))
    value = value_text(mark_value(history.trace.labels, int(event["label"]), int(event["size"])))
    has_value = value or name in valued
    return "<br>".join(
        [
            f"<b>{harmless(name) or 'mark'}</b>",
            *([f"value {value or 0}"] if has_value else []),
            f"step {int(event['seq']) + 1:,}",
        ]
    )


# ------------------------------------------------------------------------------
# Phases on a timeline: bars along its top, inner phases below outer ones.


@dataclass(frozen=True)
class TimelineLanes:
    """The lanes of phases along the top of a timeline; phases that find no free lane are counted, not drawn."""

    count: int = 4  # number of lanes
    share: float = 0.055  # of the plot's height, of one lane
    width: int = 11  # of a bar, in pixels


_LETTER: Final = 0.012  # of the plot's width: about one letter of a name


class TimelinePhase(NamedTuple):
    """A phase: its name, its ends in axis units, clipped to the window, and its hover text."""

    name: str
    left: float
    right: float
    text: str


def without_phases(history: History) -> DrawnEvents:
    """The marks on a timeline that neither begin nor end a phase, nor have a value that `mark_values` draws."""
    events, labels = history.marks.events, history.trace.labels
    names = measured_names(labels, history.values.events)
    measured = [
        each for each in np.unique(history.values.events["label"]).tolist() if labels.name(each) in names
    ]
    drawn = np.isin(events["label"], measured)
    ends = np.array([name is not None for name in _timeline_phase_ends(history)], bool)
    return DrawnEvents(events[~drawn & ~ends], history.marks.every)


_DEFAULT_LANES: Final = TimelineLanes()


def phases(
    history: History, top: float, theme: Theme, lanes: TimelineLanes = _DEFAULT_LANES
) -> dict[str, Any]:
    """Bars of phases on a timeline, at `top`; none if marks were thinned, because ends may be missing."""
    bars = _phase_bars(history) if history.marks.every == 1 else []
    found, missed = _timeline_phases_in_lanes(bars, lanes.count)
    any_phase = any(name is not None for name in _timeline_phase_ends(history))
    name = "phase" if not missed else f"phase ({missed:,} more)"
    if any_phase and history.marks.every > 1:
        name = "phase (too many: zoom in)"
    left, right = history.step_axis.range(history.steps)
    wide = right - left
    shown = [
        harmless(phase.name) if phase.right - phase.left > _LETTER * wide * (len(phase.name) + 1) else ""
        for phase, _ in found
    ]
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": name,
        "showlegend": any_phase,
        "x": _timeline_phase_points((bar.left, (bar.left + bar.right) / 2, bar.right) for bar, _ in found),
        "y": _timeline_phase_points([(1 - lanes.share * (lane + 0.55)) * top] * 3 for _, lane in found),
        "line": {"color": translucent(theme.muted, 0.35), "width": lanes.width},
        "text": [text for name in shown for text in ("", name, "", "")],
        "textfont": {"size": 10, "color": theme.text},
        "hovertext": [phase.text for phase, _ in found for _ in range(4)],
        "hoverinfo": "text",
    }


def _timeline_phase_points(points: Iterable[Iterable[float]]) -> Floats:
    """Three points per phase, then a gap."""
    return np.array([value for three in points for value in (*three, np.nan)], np.float64)


def _timeline_phase_ends(history: History) -> list[PhaseEnd | None]:
    return phase_ends(history.marks.events, history.trace.labels)


def _phase_bars(history: History) -> list[TimelinePhase]:
    """All phases in a timeline's window, by their beginning, clipped to the window."""
    left, right = history.step_axis.range(history.steps)
    events = history.marks.events
    x = dict(zip(events["seq"].tolist(), positions_of(history, events).tolist(), strict=True))
    found = []
    for phase in phases_among(events, history.trace.labels):
        begins = left if phase.begins is None else max(x[phase.begins], left)
        ends = right if phase.ends is None else min(x[phase.ends], right)
        if begins <= ends:
            found.append(TimelinePhase(phase.name, begins, ends, _timeline_phase_text(phase)))
    return sorted(found, key=lambda bar: (bar.left, -bar.right))


def _timeline_phase_text(phase: Phase) -> str:
    first, last = ("…" if seq is None else f"{seq + 1:,}" for seq in (phase.begins, phase.ends))
    return f"<b>{harmless(phase.name)}</b><br>phase from step {first} to step {last}"


def _timeline_phases_in_lanes(
    found: list[TimelinePhase], lanes: int
) -> tuple[list[tuple[TimelinePhase, int]], int]:
    """Each phase in the highest lane that is free where it begins; and the number of phases without a lane."""
    free = [-np.inf] * lanes
    placed, missed = [], 0
    for phase in found:
        lane = next((number for number, until in enumerate(free) if until <= phase.left), None)
        if lane is None:
            missed += 1
            continue
        free[lane] = phase.right
        placed.append((phase, lane))
    return placed, missed
