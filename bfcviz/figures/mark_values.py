"""The values of marks over the trace, such as a loss: `bfcviz.mark("loss", 0.5)`; one line a name."""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.mark_values import float_labels
from bfcviz.figures.panel import Panel
from bfcviz.figures.text import harmless
from bfcviz.figures.timelines import History, positions_of, step_line
from bfcviz.figures.view import DashboardPlace, HeapData, Tab, View
from bfcviz.figures.view_options import Look

MOST_LINES: Final = 6
"""Names that are drawn, those with the most marks."""

_DEFINITION: Final = (
    "the values of marks that have one with a decimal point, such as bfcviz.mark('loss', 0.5);"
    "<br>a line keeps its value until the next mark of its name"
)


class MarkedSeries(NamedTuple):
    """The values of the marks of one name in the window.

    Attributes:
        name: of the marks.
        steps: i8[n], after each mark.
        positions: f8[n] on the axis, in its unit.
        values: f8[n].
    """

    name: str
    steps: NDArray[np.int64]
    positions: NDArray[np.float64]
    values: NDArray[np.float64]


def marked_series(history: History) -> list[MarkedSeries]:
    """The series of a window, that with the most marks first."""
    events, labels = history.marks.events, history.trace.labels
    positions = positions_of(history, events)
    found = []
    for label in float_labels(labels, events["label"]):
        mine = events["label"] == label
        steps = events["seq"][mine].astype(np.int64) + 1
        values = np.ascontiguousarray(events["size"][mine]).view(np.float64)
        found.append(MarkedSeries(labels.name(label), steps, positions[mine], values))
    return sorted(found, key=lambda each: -len(each.values))


def values_panel(history: History, step: int | None, look: Look) -> Panel:
    """The values as a panel; it always has the same number of traces."""
    theme, series = look.paints, marked_series(history)
    shown = series[:MOST_LINES]
    finite = np.concatenate([each.values[np.isfinite(each.values)] for each in shown] or [np.zeros(0)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    room = 0.08 * (high - low) or 0.08 * abs(high) or 1.0
    low, high = min(low, 0.0) if low <= room else low - room, high + room
    lines: list[dict[str, Any]] = []
    for number in range(MOST_LINES):
        each = shown[number] if number < len(shown) else None
        name = "" if each is None else harmless(each.name, 40)
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "showlegend": each is not None,
                "x": np.zeros(0) if each is None else each.positions,
                "y": np.zeros(0) if each is None else each.values,
                "line": {"color": theme.classes[number].fill, "width": 1.4, "shape": "hv"},
                "marker": {"size": 4},
                "hovertemplate": f"{name} %{{y:.6~g}}<br>{history.step_axis.hover}<extra></extra>",
            }
        )
    line = step_line(history.step_axis, step, high, theme) | {"showlegend": False}
    line["y"] = np.array([low, high])
    return Panel(
        name="mark_values",
        title="Values of marks",
        caption=_mark_values_caption(history, len(series)),
        definition=_DEFINITION,
        traces=[*lines, line],
        xaxis=history.xaxis,
        yaxis={"title": {"text": "value (as marked)"}, "range": [low, high], "tickformat": ",~g"},
        x_unit=history.step_axis.unit,
    )


def _mark_values_caption(history: History, count: int) -> str:
    if not count:
        return 'no mark has a value such as bfcviz.mark("loss", 0.5)'
    parts = [f"the {MOST_LINES} names with the most marks of {count}"] * (count > MOST_LINES)
    if history.marks.every > 1:
        parts.append(f"one mark of {history.marks.every:,} is drawn")
    return "; ".join(parts)


def values_table(history: History) -> pa.Table:
    """One row per mark with such a value, by name and step."""
    series = marked_series(history)
    empty = [np.zeros(0)]
    return pa.table(
        {
            "name": pa.array([each.name for each in series for _ in each.values], pa.string()),
            "step": np.concatenate([each.steps for each in series] or empty).astype(np.int64),
            "value": np.concatenate([each.values for each in series] or empty),
        }
    )


VIEW: Final = View(
    name="mark_values",
    title="values of marks",
    data=HeapData.history,
    panels=lambda history, heap, look: [values_panel(history, heap.step, look)],
    table=values_table,
    height=240,
    windows=("steps",),
    dashboard=DashboardPlace(Tab("mark_values", "values", folded=True), height=120),
)
