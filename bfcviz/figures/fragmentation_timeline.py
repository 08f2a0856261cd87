"""The fragmentation timeline: measures from 0 to 100 %, each with its definition."""

import textwrap
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.figures import timeline_parts
from bfcviz.figures.panel import Panel
from bfcviz.figures.theme import translucent
from bfcviz.figures.timeline_parts import History, step_line
from bfcviz.figures.view import DashboardPlace, HeapData, View, ViewTab
from bfcviz.figures.view_options import Look
from bfcviz.model.fragmentation import DEFINITIONS
from bfcviz.units import format_bytes

MEASURES: Final = {
    "external": "external: 1 - largest free chunk / free",
    "internal": "internal: 1 - requested / in use",
    "reserved_not_in_use": "reserved-not-in-use: 1 - in use / pool",
}
"""Measure -> its name and definition in the legend."""

TOO_SMALL: Final = "too_small"
"""The measure for a request size (`Look.wanted`)."""

_SERIES: Final = {
    "external": "external_fragmentation",
    "internal": "internal_fragmentation",
    "reserved_not_in_use": "reserved_not_in_use",
    TOO_SMALL: "too_small_share",
}

_LINES: Final = {"external": 0, "internal": 0, "reserved_not_in_use": 1, TOO_SMALL: 1}
"""Measure -> its line of the legend; a line fits into 700 pixels."""


def fragmentation_panel(history: History, step: int | None, look: Look, *, brief: bool = False) -> Panel:
    """The timeline as a panel; only its last trace depends on `step`. `brief` shows definitions only on hover."""
    theme = look.paints
    size = "" if history.wanted is None else f" for {format_bytes(history.wanted)}"
    shown = MEASURES | {TOO_SMALL: f"too small{size}: bytes in smaller chunks / free"}
    colours = (theme.free.line, theme.waste.line, theme.pool.line, theme.limit)
    lines = [
        _fragmentation_line(history, name, text.split(":")[0] if brief else text, colour)
        for (name, text), colour in zip(shown.items(), colours, strict=True)
    ]
    return Panel(
        name="fragmentation_timeline",
        title_names_y=True,
        title="Fragmentation (%)",
        caption="0 if nothing is free, or nothing is in use",
        definition="<br>".join(_wrapped_fragmentation_text(text) for text in DEFINITIONS.values()),
        traces=[*lines, step_line(history.step_axis, step, 100.0, theme) | {"showlegend": not brief}],
        xaxis=history.xaxis,
        yaxis={"title": {"text": "fragmentation (%)"}, "range": [0, 102], "dtick": 25},
        x_unit=history.step_axis.unit,
    )


def fragmentation_table(history: History) -> pa.Table:
    """The table of fragmentation: its measures at the end of each interval, with least and greatest values."""
    columns = {"step": history.series["step"], "time": history.series["time"]}
    for name in _fragmentation_measures(history):
        for column, field in ((name, "last"), (f"{name}_min", "min"), (f"{name}_max", "max")):
            columns[column] = history.series[f"{_SERIES[name]}_{field}"]
    return pa.table({name: np.ascontiguousarray(values) for name, values in columns.items()})


def _fragmentation_measures(history: History) -> list[str]:
    return [name for name in _SERIES if name != TOO_SMALL or history.wanted is not None]


def _fragmentation_line(history: History, name: str, shown: str, colour: str) -> dict[str, Any]:
    measured = name in _fragmentation_measures(history)
    x, share = (
        timeline_parts.envelope(history.series, _SERIES[name], history.step_axis) if measured else _NOTHING
    )
    definition = _wrapped_fragmentation_text(DEFINITIONS.get(name, _TOO_SMALL_DEFINITION))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": shown,
        "showlegend": measured,
        "legend": _LINES[name],
        "x": x,
        "y": share * 100.0,
        "line": {"color": colour, "width": 1.4, "shape": "hv"},
        "fill": "none" if timeline_parts.is_exact(history.series) else "toself",
        "fillcolor": translucent(colour, 0.35),
        "hoveron": "points",
        "hovertemplate": f"<b>%{{y:.1f}} %</b> {history.step_axis.hover}<br>{definition}<extra></extra>",
    }


_NOTHING: Final[tuple[NDArray[np.float64], NDArray[np.float64]]] = (np.zeros(0), np.zeros(0))

_TOO_SMALL_DEFINITION: Final = (
    "Too small = bytes in free chunks smaller than the request / free_bytes: "
    "the share of free memory that cannot hold the request. 0 if nothing is free."
)


def _wrapped_fragmentation_text(text: str) -> str:
    return "<br> ".join(textwrap.wrap(text, 70))


TAB: Final = ViewTab("fragmentation", "fragmentation")
"""The tab of the measures, with the totals that they are made of beside them."""

VIEW: Final = View(
    name="fragmentation_timeline",
    title="fragmentation timeline",
    data=HeapData.history,
    panels=lambda history, heap, look: [fragmentation_panel(history, heap.step, look, brief=heap.brief)],
    table=fragmentation_table,
    height=320,
    windows=("steps",),
    dashboard=DashboardPlace(TAB),
)
