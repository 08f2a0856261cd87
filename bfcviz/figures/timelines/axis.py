"""The x axis of all timelines: positions of steps, lines through intervals, the line at the step shown."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.style.view_options import Axis

POINTS: Final = 1000
"""Points of a line, at most: plotly redraws every line at every step, in time proportional to its points."""

_MARGIN: Final = 0.012  # of the width: room at the right end, so that the last event is not cut off

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class StepAxis:
    """Maps steps to positions on the x axis of all timelines of a trace, and back; for its length when it was made.

    Attributes:
        trace: the trace of the steps.
        axis: whether positions are steps or times. The time of a step is that of its last event; step 0 has no
            event and, like the first step of a live window, takes the time of the first event.
        first, last: the steps at the ends of the axis.
        unit: steps or nanoseconds per unit of the axis; the same for every window of the trace.
        symbol: the symbol of the unit.
    """

    trace: Trace
    axis: Axis
    first: int
    last: int
    unit: float = 1.0
    symbol: str = "step"

    @classmethod
    def of(cls, trace: Trace, axis: Axis = "step") -> "StepAxis":
        """The axis of the trace at its present length."""
        first, last = trace.first, len(trace)
        if axis == "step":
            return cls(trace, axis, first, last)
        return cls(trace, axis, first, last, *_time_unit(_time(trace, last) - _time(trace, first)))

    @property
    def title(self) -> str:
        """The title of the axis, with its unit."""
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
        return found | ({"tickformat": ",~f"} if self.axis == "step" else {})


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


def both_ends(
    series: NDArray[np.void], field: str, step_axis: StepAxis
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A line through the least and the greatest value of each interval, at their positions: x and y.

    If every interval is a single event, the line goes through the events.
    """
    if len(series) and int(series["events"].max()) == 1:
        return step_axis.positions(series["step"], series["time"]), series[f"{field}_last"].astype(np.float64)
    late = series[f"{field}_min_{step_axis.axis}"] > series[f"{field}_max_{step_axis.axis}"]
    x, y = (
        _by_turns(series[f"{field}_min{of}"], series[f"{field}_max{of}"], late)
        for of in (f"_{step_axis.axis}", "")
    )
    return x / step_axis.unit, y


def _by_turns(low: NDArray[Any], high: NDArray[Any], late: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Low and high values in turn; the high one first where `late` is true."""
    found = np.empty(2 * len(low))
    found[0::2], found[1::2] = np.where(late, high, low), np.where(late, low, high)
    return found


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
