"""The values of marks over the trace, such as a loss: `bfcviz.mark("loss", 0.5)`; one line a name."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.marks import float_labels, measured_names, valued_marks
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace
from bfcviz.figures.panel import Panel
from bfcviz.figures.text import harmless
from bfcviz.figures.timeline_parts import History, positions_of, step_line
from bfcviz.figures.view import DashboardPlace, HeapData, View, ViewTab
from bfcviz.figures.view_options import Look
from bfcviz.model.find_steps import events_of

MOST_LINES: Final = 6
"""Names that are drawn, those with the most marks."""

MOST_POINTS: Final = 2000  # marks of a name that are drawn

_DEFINITION: Final = (
    "the values of marks, such as bfcviz.mark('loss', 0.5) or bfcviz.mark('queue', 3);"
    "<br>whole numbers of a name with step, iteration, batch or epoch count steps and are not drawn,"
    "<br>nor is the only whole number of a name;"
    "<br>a line begins at the first mark of its name in the window, and keeps its value until the next"
)


class MarkedSeries(NamedTuple):
    """The values of the marks of one name in the window, such as a loss."""

    name: str  # of the marks
    steps: NDArray[np.int64]  # i8[n], after each mark
    positions: NDArray[np.float64]  # f8[n] on the axis, in its unit
    values: NDArray[np.float64]  # f8[n]


def marked_series(history: History) -> list[MarkedSeries]:
    """The series of marks' values in a window, that with the most marks first."""
    events, labels = history.values.events, history.trace.labels
    positions = positions_of(history, events)
    names = {int(each): labels.name(int(each)) for each in np.unique(events["label"])}
    floats = float_labels(labels, events["label"])
    is_float = np.isin(events["label"], floats)
    found = []
    for name in sorted(measured_names(labels, events)):
        mine = np.isin(events["label"], [label for label, other in names.items() if other == name])
        sizes = np.ascontiguousarray(events["size"][mine])
        values = np.where(is_float[mine], sizes.view(np.float64), sizes.astype(np.float64))
        found.append(MarkedSeries(name, events["seq"][mine].astype(np.int64) + 1, positions[mine], values))
    return sorted(found, key=lambda each: -len(each.values))


def _thinned_series(each: MarkedSeries) -> MarkedSeries:
    every = -(-len(each.values) // MOST_POINTS) or 1
    return MarkedSeries(each.name, each.steps[::every], each.positions[::every], each.values[::every])


def values_panel(history: History, step: int | None, look: Look) -> Panel:
    """The values of marks as a panel; it always has the same number of traces."""
    theme, series = look.paints, marked_series(history)
    shown = [_thinned_series(each) for each in series[:MOST_LINES]]
    finite = np.concatenate([each.values[np.isfinite(each.values)] for each in shown] or [np.zeros(0)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    room = 0.08 * (high - low) or 0.08 * abs(high) or 1.0
    most = np.finfo(np.float64).max
    low, high = 0.0 if 0 <= low <= room else max(low - room, -most), min(high + room, most)
    nothing = MarkedSeries("", np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    lines: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": harmless(each.name, 40),
            "showlegend": each is not nothing,
            "x": each.positions,
            "y": each.values,
            "line": {"color": theme.classes[number].fill, "width": 1.4, "shape": "hv"},
            "marker": {"size": 4},
            "hovertemplate": f"{harmless(each.name, 40)} %{{y:.6~g}}<br>{history.step_axis.hover}<extra></extra>",
        }
        for number, each in enumerate([*shown, *[nothing] * (MOST_LINES - len(shown))])
    ]
    line = step_line(history.step_axis, step, high, theme) | {"showlegend": False}
    line["y"] = np.array([low, high])
    return Panel(
        name="mark_values",
        title="Values of marks",
        caption=_mark_values_caption(series, history.values.every),
        definition=_DEFINITION,
        traces=[*lines, line],
        xaxis=history.xaxis,
        yaxis={"title": {"text": "value (as marked)"}, "range": [low, high], "tickformat": ",~g"},
        x_unit=history.step_axis.unit,
    )


def _mark_values_caption(series: Sequence[MarkedSeries], every: int) -> str:
    if not series:
        return 'no mark has a value that was measured, such as bfcviz.mark("loss", 0.5) or bfcviz.mark("queue", 3)'
    parts = [f"the {MOST_LINES} names with the most marks of {len(series)}"] * (len(series) > MOST_LINES)
    if every > 1:
        parts.append(f"of very many marks one of {every:,} is kept")
    if len(series[0].values) > MOST_POINTS:
        parts.append(f"at most {MOST_POINTS:,} marks of a name are drawn, evenly chosen")
    return "; ".join(parts)


def values_table(history: History) -> pa.Table:
    """The table of marks' values: one row per mark, by name and step."""
    series, empty = marked_series(history), [np.zeros(0)]
    return pa.table(
        {
            "name": pa.array([each.name for each in series for _ in each.values], pa.string()),
            "step": np.concatenate([each.steps for each in series] or empty).astype(np.int64),
            "value": np.concatenate([each.values for each in series] or empty),
        }
    )


class HasValues:
    """Whether a heap has marks with measured values so far: called again, it reads the new events only."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace, self._pool, self._stop = trace, pool, trace.first
        self._marks, self._found = np.zeros(0, EVENT), False

    def __call__(self) -> bool:
        """Look."""
        trace, start = self._trace, max(self._stop, self._trace.first)
        if not self._found and start < len(trace):
            self._stop = len(trace)
            new = events_of(trace, [Kind.MARK], self._pool, start, self._stop)
            self._marks = joined([self._marks, valued_marks(trace.labels, new)])
            self._found = bool(measured_names(trace.labels, self._marks))
        return self._found


VIEW: Final = View(
    name="mark_values",
    title="values of marks",
    data=HeapData.history,
    panels=lambda history, heap, look: [values_panel(history, heap.step, look)],
    table=values_table,
    height=240,
    windows=("steps",),
    dashboard=DashboardPlace(ViewTab("mark_values", "values", folded=True, when=HasValues), height=120),
)
