"""The event rate: events per second over the trace."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.figures.panel import Panel
from bfcviz.figures.timeline_parts import History, step_line
from bfcviz.figures.view import DashboardPlace, HeapData, View, ViewTab
from bfcviz.figures.view_options import Look

PARTS: Final = 240
"""Equal parts of the axis, each with its average rate; more parts would show mostly noise."""

_ROWS: Final = 4  # rows of the series per part, at least

_DEFINITION: Final = (
    "event rate: events of all kinds (SPLIT, MERGE, ...) of all heaps of the trace / seconds,"
    "<br> averaged over each of up to 240 equal parts of the x axis.<br>A gap: the clock did not advance there."
)

_CAPTION: Final = "events of all heaps per second, averaged over equal parts of the x axis"
_NO_TIME: Final = "no rate is known: no time passes between the events of these steps"


def rate_panel(history: History, step: int | None, look: Look) -> Panel:
    """The event rate as a panel; only its last trace depends on `step`."""
    theme = look.paints
    edges, rate = rates(history)
    is_known = bool(np.isfinite(rate).any())
    top = 1.08 * (float(np.nanmax(rate)) if is_known else 1.0)
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "event rate",
        "showlegend": False,
        "x": edges / history.step_axis.unit,
        "y": np.append(rate, rate[-1:]),
        "line": {"color": theme.text, "width": 1.2, "shape": "hv"},
        "hovertemplate": f"%{{y:,.4~s}} events/s<br>{history.step_axis.hover}<extra></extra>",
    }
    return Panel(
        name="event_rate",
        title_names_y=True,
        title="Event rate (events/s)",
        caption=_CAPTION if is_known else _NO_TIME,
        definition=_DEFINITION,
        traces=[line, step_line(history.step_axis, step, top, theme) | {"showlegend": False}],
        xaxis=history.xaxis,
        yaxis={
            "title": {"text": "event rate (events/s)"},
            "range": [0, top],
            "tickformat": "~s",
            "showticklabels": is_known,
            "ticks": "outside" if is_known else "",
        },
        x_unit=history.step_axis.unit,
    )


def rates(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The event rate: edges of the parts in steps or nanoseconds, shape (n + 1,), and events per second in each.

    The rate is nan where no time passed; both are empty if there are fewer than two events.
    """
    series = history.series
    if len(series) < 2:
        return np.zeros(0), np.zeros(0)
    steps, times = series["step"].astype(np.float64), series["time"].astype(np.float64)
    along, other = (steps, times) if history.step_axis.axis == "step" else (times, steps)
    edges = np.linspace(along[0], along[-1], min(PARTS, max(len(series) // _ROWS, 1)) + 1)
    # Of positions with equal times only the last counts: all events of that time are applied there.
    at = np.append(np.flatnonzero(np.diff(along)), len(along) - 1)
    between = np.interp(edges, along[at], other[at])
    passed, counted = np.diff(edges), np.diff(between)
    if history.step_axis.axis == "step":
        passed, counted = counted, passed
    rate = np.divide(counted * 1e9, passed, out=np.full(len(passed), np.nan), where=passed > 0)
    return edges, rate


def rate_table(history: History) -> pa.Table:
    """The table of the event rate, a row per part of the axis; events of all heaps of the trace are counted."""
    edges, rate = rates(history)
    axis = history.step_axis.axis
    return pa.table({f"{axis}_from": edges[:-1], f"{axis}_to": edges[1:], "rate": rate})


VIEW: Final = View(
    name="event_rate",
    title="event rate",
    data=HeapData.history,
    panels=lambda history, heap, look: [rate_panel(history, heap.step, look)],
    table=rate_table,
    height=240,
    windows=("steps",),
    dashboard=DashboardPlace(ViewTab("event_rate", "events/s", was="events", folded=True), height=120),
)
