"""What both timelines share: the series over steps or time, and where the view stands."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.look import Axis
from bfcviz.figures.theme import Theme

POINTS: Final = 1200
"""Intervals a timeline is cut into: more than it has pixels; each shows its least and greatest value."""

_MARGIN: Final = 1.012  # what happens at the very end is not cut off

_NANOSECONDS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


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
            "range": [0, max(last, 1) * _MARGIN],
            "tickformat": ",d",
        }
    divisor, unit = time_unit(series)
    return {
        "title": {"text": f"time ({unit})"},
        "range": [0, max(float(series["time"].max(initial=0)) / divisor, 1.0) * _MARGIN],
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
