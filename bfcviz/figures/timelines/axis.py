"""The x axis of all timelines: positions of steps, lines through intervals, the line at the step shown."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.style.view_options import Axis
from bfcviz.model.holders.equal_steps import step_marks

POINTS: Final = 1000
"""Points of a line, at most: plotly redraws every line at every step, in time proportional to its points."""

_MARGIN: Final = 0.012  # of the width: room at the right end, so that the last event is not cut off

_MOST_TICKS: Final = 12
_ROUND: Final = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]  # strides of ticks

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class StepAxis:
    """Maps steps to positions on the x axis of all timelines of a trace, and back; for its length when it was made.

    Attributes:
        trace: the trace of the steps.
        axis: whether positions are steps or times. The time of a step is that of its last event; step 0 has no
            event and, like the first step of a live window, takes the time of the first event.
        marks: the steps at which the program's own steps end, ascending; its ticks count them. None: the ticks are
            positions.
        mark_name: the name of these marks.
        first, last: the steps at the ends of the axis.
        unit: steps or nanoseconds per unit of the axis; the same for every window of the trace.
        symbol: the symbol of the unit.
    """

    trace: Trace
    axis: Literal["step", "time"]
    first: int
    last: int
    unit: float = 1.0
    symbol: str = "step"
    marks: NDArray[np.int64] | None = field(default=None, compare=False)
    mark_name: str = ""

    @classmethod
    def of(cls, trace: Trace, axis: Axis = "step") -> "StepAxis":
        """The axis of the trace at its present length; without marks that separate steps, `mark` is `step`."""
        first, last = trace.first, len(trace)
        if axis == "mark":
            name, seqs = step_marks(trace)
            return cls(trace, "step", first, last, marks=seqs + 1 if len(seqs) else None, mark_name=name)
        if axis == "step":
            return cls(trace, axis, first, last)
        return cls(trace, axis, first, last, *_time_unit(_time(trace, last) - _time(trace, first)))

    @property
    def title(self) -> str:
        """The title of the axis, with its unit."""
        if self.marks is not None:
            return f"number of the mark {harmless(repr(self.mark_name), 30)} (distances are events)"
        return "step (number of events applied)" if self.axis == "step" else f"time ({self.symbol})"

    @property
    def hover(self) -> str:
        """A position on the axis, as a part of a plotly hover template."""
        return "step %{x:,.0f}" if self.axis == "step" else f"%{{x:,.9~f}} {self.symbol}"

    def position(self, step: int) -> float:
        """The position of `step` on the axis."""
        return (float(step) if self.axis == "step" else float(_time(self.trace, step))) / self.unit

    def positions(self, steps: NDArray[Any], times: NDArray[Any]) -> NDArray[np.float64]:
        """The positions of steps with known times, in nanoseconds; same shape."""
        where = steps if self.axis == "step" else times
        found: NDArray[np.float64] = where.astype(np.float64) / self.unit
        return found

    def step_at(self, x: float) -> int:
        """The step shown at position `x`: the last one at or before it, else the first."""
        if self.axis == "step":
            return min(max(int(x + 1e-6), self.first), self.last)
        wanted = x * self.unit + 0.5  # + 0.5 ns: times as floats are not exact
        low, high = self.first, self.last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _time(self.trace, middle) <= wanted else (low, middle - 1)
        return low

    def range(self, steps: tuple[int, int] | None) -> list[float]:
        """The ends of the axis: exactly these steps, or (None) all steps and a small margin."""
        first, last = (self.first, self.last) if steps is None else steps
        left, right = self.position(first), self.position(last)
        if right <= left:
            right = left + 1.0 / self.unit
        return [left, right + (_MARGIN * (right - left) if steps is None else 0.0)]

    def xaxis(self, steps: tuple[int, int] | None) -> dict[str, Any]:
        """Plotly's settings of the axis for `steps` (None: all)."""
        first, last = self.range(None)
        found: dict[str, Any] = {"title": {"text": self.title}, "range": self.range(steps)}
        found |= {"minallowed": first, "maxallowed": last}
        if self.marks is not None:
            return found | self._mark_ticks(self.marks, steps)
        return found | ({"tickformat": ",~f"} if self.axis == "step" else {})

    def _mark_ticks(self, marks: NDArray[np.int64], steps: tuple[int, int] | None) -> dict[str, Any]:
        """Ticks at some of the marks in the window, at round numbers and not too close."""
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


def _time(trace: Trace, step: int) -> int:
    if len(trace) == trace.first:
        return 0
    event = max(step - 1, trace.first)  # the window of a live trace may have moved on: then its first event
    return int(trace.read(event, event + 1)["time"][0])


def _time_unit(span: float) -> tuple[float, str]:
    """The largest unit of time of which `span` nanoseconds are at least two; its nanoseconds and its symbol."""
    return next(((unit, name) for unit, name in _NANOSECONDS if span >= 2 * unit), _NANOSECONDS[-1])


def intervals(events: int) -> int:
    """The intervals of a timeline of so many events: one per event, or `POINTS` / 2 with two points each."""
    return POINTS if events <= POINTS else POINTS // 2


def is_exact(series: NDArray[np.void]) -> bool:
    """Whether every interval is a single event: then least, greatest and last value are the same."""
    return not len(series) or int(series["events"].max()) == 1


def envelope(
    series: NDArray[np.void], field: str, step_axis: StepAxis
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The area between the least and the greatest value of each interval, as a closed line of shape `hv`: x and y.

    If every interval is a single event, the line through the events, which encloses no area.
    """
    if is_exact(series):
        return upper_edge(series, field, step_axis)
    ends = _ends(series, field, step_axis)
    high, low = (series[f"{field}_{end}"].astype(np.float64) for end in ("max", "min"))
    # Backwards, a line of shape `hv` keeps the value of the interval that it has just left.
    return np.append(ends, ends[::-1]), np.concatenate([high, high[-1:], low[::-1], low[:1]])


def upper_edge(
    series: NDArray[np.void], field: str, step_axis: StepAxis, end: str = "max"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A line of shape `hv` through the greatest value of each interval; `end="min"`: through the least."""
    if is_exact(series):
        return step_axis.positions(series["step"], series["time"]), series[f"{field}_last"].astype(np.float64)
    values = series[f"{field}_{end}"].astype(np.float64)
    return _ends(series, field, step_axis), np.append(values, values[-1:])


def _ends(series: NDArray[np.void], field: str, step_axis: StepAxis) -> NDArray[np.float64]:
    """Where each interval begins, and where the last one ends, shape (n + 1,)."""
    extremes = [series[:1][f"{field}_{end}_{step_axis.axis}"] for end in ("min", "max")]
    begin = np.minimum(*extremes).astype(np.float64) / step_axis.unit  # of the first: no row says more
    return np.append(begin, step_axis.positions(series["step"], series["time"]))


def step_line(position: float, theme: Theme, top: float) -> dict[str, Any]:
    """The vertical line at the step shown; nan: no line."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "this step",
        "x": np.array([position, position]),
        "y": np.array([0.0, top]),
        "line": {"color": theme.highlight, "width": 2},
        "hoverinfo": "skip",
    }
