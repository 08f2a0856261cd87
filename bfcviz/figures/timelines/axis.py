"""What all timelines share: where steps lie on the x axis, lines through intervals, and where the view stands."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.style.view_options import Axis

POINTS: Final = 1000
"""What a line goes through at most: plotly draws every line anew at every step, and takes as long as it has points."""

_MARGIN: Final = 0.012  # what happens at the very end is not cut off

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class StepAxis:
    """Steps <-> places on the x axis that all timelines of one trace share, as long as it was when asked.

    Attributes:
        trace: whose steps these are.
        axis: whether places are steps or times. A step's time is that of the event that led to it; step 0,
            to which none led, and the first step of a window stand where the first event happened.
        first, last: the steps at the axis' ends.
        unit: steps or nanoseconds that 1 on the axis stands for; of the whole trace, whatever part is shown.
        symbol: of the unit.
    """

    trace: Trace
    axis: Axis
    first: int
    last: int
    unit: float = 1.0
    symbol: str = "step"

    @classmethod
    def of(cls, trace: Trace, axis: Axis = "step") -> "StepAxis":
        """The axis of the trace as long as it is now."""
        first, last = trace.first, len(trace)
        if axis == "step":
            return cls(trace, axis, first, last)
        return cls(trace, axis, first, last, *_time_unit(_time(trace, last) - _time(trace, first)))

    @property
    def title(self) -> str:
        """What the axis is called, with its unit."""
        return "step (events applied)" if self.axis == "step" else f"time ({self.symbol})"

    @property
    def hover(self) -> str:
        """A place on the axis, in the words of plotly's hover templates."""
        return "step %{x:,.0f}" if self.axis == "step" else f"%{{x:,.9~f}} {self.symbol}"

    def position(self, step: int) -> float:
        """Where `step` lies on the axis."""
        return (float(step) if self.axis == "step" else float(_time(self.trace, step))) / self.unit

    def positions(self, steps: NDArray[Any], times: NDArray[Any]) -> NDArray[np.float64]:
        """Where steps lie on the axis whose times are at hand already; same shape."""
        where = steps if self.axis == "step" else times
        found: NDArray[np.float64] = where.astype(np.float64) / self.unit
        return found

    def step_at(self, x: float) -> int:
        """The step that holds at place `x`: the last one at or before it, else the first."""
        if self.axis == "step":
            return min(max(int(x + 1e-6), self.first), self.last)
        wanted, low, high = (
            x * self.unit + 0.5,
            self.first,
            self.last,
        )  # halves: floats of times are not exact
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _time(self.trace, middle) <= wanted else (low, middle - 1)
        return low

    def range(self, steps: tuple[int, int] | None) -> list[float]:
        """The ends of the axis: exactly these steps, or (None) all there are and a little room."""
        first, last = (self.first, self.last) if steps is None else steps
        left, right = self.position(first), self.position(last)
        if right <= left:
            right = left + 1.0 / self.unit
        return [left, right + (_MARGIN * (right - left) if steps is None else 0.0)]

    def xaxis(self, steps: tuple[int, int] | None) -> dict[str, Any]:
        """Plotly's settings of the axis that shows `steps` (None: all)."""
        found = {"title": {"text": self.title}, "range": self.range(steps)}
        return found | ({"tickformat": ",~f"} if self.axis == "step" else {})


def _time(trace: Trace, step: int) -> int:
    if len(trace) == trace.first:
        return 0
    event = max(step - 1, trace.first)  # of a window that moved on meanwhile, the first there is
    return int(trace.read(event, event + 1)["time"][0])


def _time_unit(span: float) -> tuple[float, str]:
    """The largest unit of time that `span` nanoseconds are at least two of."""
    return next(((unit, name) for unit, name in _NANOSECONDS if span >= 2 * unit), _NANOSECONDS[-1])


def intervals(events: int) -> int:
    """Into how many a timeline of so many events is cut: one for each, or half of `POINTS`, with two points each."""
    return POINTS if events <= POINTS else POINTS // 2


def both_ends(
    series: NDArray[np.void], field: str, step_axis: StepAxis
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A line through the least and the greatest value of each interval, each where it stood: x and y.

    Where every event has an interval of its own these are the events themselves.
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
    """One of each after the other; where `late`, the high one first."""
    found = np.empty(2 * len(low))
    found[0::2], found[1::2] = np.where(late, high, low), np.where(late, low, high)
    return found


def step_line(position: float, theme: Theme, top: float) -> dict[str, Any]:
    """The upright line where the view stands; nan: nowhere."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "this step",
        "x": np.array([position, position]),
        "y": np.array([0.0, top]),
        "line": {"color": theme.highlight, "width": 2},
        "hoverinfo": "skip",
    }
