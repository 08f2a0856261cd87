"""What all timelines share: where steps lie on the x axis, lines through intervals, and where the view stands."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.look import Axis
from bfcviz.figures.theme import Theme

POINTS: Final = 1200
"""Intervals a timeline is cut into: more than it has pixels; each shows its least and greatest value."""

_MARGIN: Final = 0.012  # what happens at the very end is not cut off

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class Clock:
    """Steps <-> places on the x axis that all timelines of one trace share, as long as it was when asked.

    Attributes:
        trace: whose steps these are.
        axis: whether places are steps or times. A step's time is that of the event that led to it; step 0,
            to which none led, stands where the first event happened.
        last: the step at the axis' end.
        unit: steps or nanoseconds that 1 on the axis stands for; of the whole trace, whatever part is shown.
        title: what the axis is called, with its unit.
    """

    trace: Trace
    axis: Axis
    last: int
    unit: float
    title: str

    @classmethod
    def of(cls, trace: Trace, axis: Axis = "step") -> "Clock":
        """The clock of the trace as long as it is now."""
        last = len(trace)
        if axis == "step":
            return cls(trace, axis, last, 1.0, "step (events applied)")
        unit, name = _time_unit(_time(trace, last) - _time(trace, 0))
        return cls(trace, axis, last, unit, f"time ({name})")

    def position(self, step: int) -> float:
        """Where `step` lies on the axis."""
        return (float(step) if self.axis == "step" else float(_time(self.trace, step))) / self.unit

    def positions(self, steps: NDArray[Any], times: NDArray[Any]) -> NDArray[np.float64]:
        """Where steps lie on the axis whose times are at hand already; same shape."""
        where = steps if self.axis == "step" else times
        found: NDArray[np.float64] = where.astype(np.float64) / self.unit
        return found

    def step_at(self, x: float) -> int:
        """The step that holds at place `x`: the last one at or before it, else step 0."""
        if self.axis == "step":
            return min(max(int(x + 1e-6), 0), self.last)
        wanted, low, high = x * self.unit + 0.5, 0, self.last  # halves: floats of times are not exact
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _time(self.trace, middle) <= wanted else (low, middle - 1)
        return low

    def range(self, steps: tuple[int, int] | None) -> list[float]:
        """The ends of the axis: exactly these steps, or (None) all there are and a little room."""
        first, last = (0, self.last) if steps is None else steps
        left, right = self.position(first), self.position(last)
        if right <= left:
            right = left + 1.0 / self.unit
        return [left, right + (_MARGIN * (right - left) if steps is None else 0.0)]

    def xaxis(self, steps: tuple[int, int] | None) -> dict[str, Any]:
        """Plotly's settings of the axis that shows `steps` (None: all)."""
        found = {"title": {"text": self.title}, "range": self.range(steps)}
        return found | ({"tickformat": ",~f"} if self.axis == "step" else {})


def _time(trace: Trace, step: int) -> int:
    if not len(trace):
        return 0
    event = max(step - 1, 0)
    return int(trace.read(event, event + 1)["time"][0])


def _time_unit(span: float) -> tuple[float, str]:
    """The largest unit of time that `span` nanoseconds are at least two of."""
    return next(((unit, name) for unit, name in _NANOSECONDS if span >= 2 * unit), _NANOSECONDS[-1])


def unit_of(series: NDArray[np.void], axis: Axis) -> float:
    """How many steps or nanoseconds one unit of the x axis is."""
    return 1.0 if axis == "step" else time_unit(series)[0]


def time_unit(series: NDArray[np.void]) -> tuple[float, str]:
    """The largest unit of time that the series spans at least two of."""
    span = float(series["time"].max() - series["time"].min()) if len(series) else 0.0
    return next(((divisor, unit) for divisor, unit in _NANOSECONDS if span >= 2 * divisor), _NANOSECONDS[-1])


def xaxis(series: NDArray[np.void], axis: Axis, last: int) -> dict[str, Any]:
    """Plotly's settings of the axis; all timelines of one trace get the same range."""
    if axis == "step":
        return {
            "title": {"text": "step (events applied)"},
            "range": [0, max(last, 1) * (1 + _MARGIN)],
            "tickformat": ",d",
        }
    divisor, unit = time_unit(series)
    return {
        "title": {"text": f"time ({unit})"},
        "range": [0, max(float(series["time"].max(initial=0)) / divisor, 1.0) * (1 + _MARGIN)],
    }


def both_ends(
    series: NDArray[np.void], field: str, axis: Axis
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A line through the least and the greatest value of each interval, each where it stood: x and y.

    Where every event has an interval of its own these are the events themselves.
    """
    unit = unit_of(series, axis)
    if len(series) and int(series["events"].max()) == 1:
        return series[axis].astype(np.float64) / unit, series[f"{field}_last"].astype(np.float64)
    x = np.column_stack([series[f"{field}_min_{axis}"], series[f"{field}_max_{axis}"]]).astype(np.float64)
    y = np.column_stack([series[f"{field}_min"], series[f"{field}_max"]]).astype(np.float64)
    order = np.argsort(x, axis=1, kind="stable")
    return np.take_along_axis(x, order, 1).ravel() / unit, np.take_along_axis(y, order, 1).ravel()


def now(position: float, theme: Theme, top: float) -> dict[str, Any]:
    """The upright line where the view stands."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "this step",
        "x": np.array([position, position]),
        "y": np.array([0.0, top]),
        "line": {"color": theme.highlight, "width": 2},
        "hoverinfo": "skip",
    }


def position_of(trace: Trace, step: int, axis: Axis, unit: float) -> float:
    """Where `step` lies on the x axis: by count, or when the last event before it happened."""
    if axis == "step" or step == 0:
        return float(step if axis == "step" else 0)
    return float(trace.read(step - 1, step)["time"][0]) / unit
