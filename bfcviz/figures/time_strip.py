"""The time strip: memory in use over the whole trace, and the window of steps that the other timelines show.

It is the control of time: always the whole trace, with named phases, marks and failed requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from bfcviz.events.marks import numbered_mark_names
from bfcviz.figures import timeline_parts
from bfcviz.figures.panel import LINES, Panel
from bfcviz.figures.text import axis_unit, harmless
from bfcviz.figures.theme import Theme, translucent
from bfcviz.figures.timeline_parts import (
    History,
    TimelineLanes,
    marks,
    phases,
    positions_of,
    step_line,
    without_phases,
)
from bfcviz.figures.view import DashboardPlace, HeapData, View
from bfcviz.figures.view_options import Look
from bfcviz.units import format_bytes

WINDOW: Final = "shown window"
"""Name of the trace of the window's two ends; the page's script finds the strip and the window by it."""

_LANES: Final = TimelineLanes(count=2, share=0.2, width=11)
_ABOVE_PHASES: Final = 1.65  # of the most memory in use: the end of the y axis, so that they have room
_ABOVE_MARKS: Final = 1.3
_ABOVE: Final = 1.1
_LETTER: Final = 0.008  # of the plot's width, on a page 880 pixels wide
_VEIL: Final = 0.62  # opacity over the steps that the other timelines do not show


def strip_traces(history: History, look: Look) -> list[Mapping[str, Any]]:
    """The traces of the time strip that depend on neither the step nor the window, of the whole trace."""
    theme, top = look.paints, _strip_axis_end(history)
    divisor, unit = axis_unit(_strip_peak(history))
    x, y = timeline_parts.upper_edge(history.series, "bytes_in_use", history.step_axis)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "memory in use",
            "x": x,
            "y": y / divisor,
            "line": {"color": theme.in_use.line, "width": 1, "shape": "hv"},
            "fill": "tozeroy",
            "fillcolor": translucent(theme.in_use.fill, 0.45),
            "hovertemplate": f"in use %{{y:,.4~f}} {unit}<br>{history.step_axis.hover}<extra></extra>",
        },
        marks(history, without_phases(history), top, theme),
        _strip_mark_names(history, top, theme),
        phases(history, top, theme, _LANES),
        _strip_failure_lines(history, top, theme),
    ]


def strip_panel(history: History, traces: Sequence[Mapping[str, Any]], step: int | None, look: Look) -> Panel:
    """The strip as a panel, with `strip_traces` and three that depend on the step and on the window `look.steps`."""
    theme, top = look.paints, _strip_axis_end(history)
    most = _strip_peak(history)
    divisor, _ = axis_unit(most)
    return Panel(
        name="strip",
        title="",
        caption="",
        traces=[
            *traces,
            *_strip_window(history, look, top, theme),
            step_line(history.step_axis, step, top, theme),
        ],
        xaxis=history.step_axis.xaxis(None) | {"title": {"text": ""}, "fixedrange": True, "nticks": 8},
        yaxis={
            "range": [0, top],
            "fixedrange": True,
            "tickvals": [0, most / divisor],
            "ticktext": ["0", format_bytes(int(most))],
            "showgrid": False,
        },
        x_unit=history.step_axis.unit,
        y_unit=float(divisor),
        legend=False,
    )


def _strip_peak(history: History) -> float:
    """The most bytes in use on the time strip, at least 1."""
    return float(max(history.series["bytes_in_use_max"].max(initial=0), 1))


def _strip_axis_end(history: History) -> float:
    """The end of the time strip's y axis in its units: marks and phases have room above."""
    plain, most = len(without_phases(history).events), _strip_peak(history)
    room = _ABOVE_MARKS if plain else _ABOVE
    if plain < len(history.marks.events):
        room = _ABOVE_PHASES
    return most / axis_unit(most)[0] * room


def _strip_mark_names(history: History, top: float, theme: Theme) -> dict[str, Any]:
    """The names of marks on the time strip, right of their lines, where they have room."""
    events = without_phases(history).events
    across = positions_of(history, events)
    left, right = history.step_axis.range(None)
    names, end = [], left
    places, texts = across.tolist(), numbered_mark_names(history.trace.labels, events)
    for at, (place, name) in enumerate(zip(places, texts, strict=True)):
        last = place + _LETTER * (len(name) + 2) * (right - left)
        same_follows = texts[at + 1 : at + 2] == [name]
        is_shown = end <= place and last <= (places[at + 1] if same_follows else right)
        names.append(harmless(name) if is_shown else "")
        end = last if is_shown else end
    return {
        "type": "scatter",
        "mode": "text",
        "hoverinfo": "skip",
        "name": "mark names",
        "x": across + _LETTER * (right - left),  # beside the triangle
        "y": np.full(len(across), 0.9 * top),
        "text": names,
        "textposition": "middle right",
        "textfont": {"size": 10, "color": theme.muted},
    }


def _strip_failure_lines(history: History, top: float, theme: Theme) -> dict[str, Any]:
    """A line on the time strip at each failed request."""
    across = positions_of(history, history.failed.events)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "OOM",
        "x": np.repeat(across, 3),
        "y": np.tile([0.0, top, np.nan], len(across)),
        "line": {"color": theme.oom, "width": 2},
        "hovertemplate": f"<b>OOM</b><br>{history.step_axis.hover}<extra></extra>",
    }


def _strip_window(history: History, look: Look, top: float, theme: Theme) -> list[dict[str, Any]]:
    """What hides the steps of the time strip outside of the window, and its ends; empty if all are shown."""
    left, right = history.step_axis.range(None)
    ends = history.step_axis.range(look.steps) if look.steps is not None else []
    hidden = [(left, ends[0]), (ends[1], right)] if ends else []
    corners = [corner for low, high in hidden for corner in (low, low, high, high, np.nan)]
    return [
        {
            **LINES,
            "name": "outside of the window",
            "x": np.array(corners, np.float64),
            "y": np.array([0.0, top, top, 0.0, np.nan] * len(hidden), np.float64),
            "fill": "toself",
            "fillcolor": translucent(theme.paper, _VEIL),
            "line": {"width": 0},
        },
        {
            **LINES,
            "name": WINDOW,
            "x": np.array([x for end in ends for x in (end, end, np.nan)], np.float64),
            "y": np.array([0.0, top, np.nan] * len(ends), np.float64),
            "line": {"color": theme.text, "width": 2},
        },
    ]


def _time_strip_data(heap: HeapData, look: Look) -> tuple[History, list[Mapping[str, Any]]]:
    history = heap.whole_history(look)
    key = (len(heap.trace), look.axis, look.theme)
    return history, heap.cached("strip", key, lambda: strip_traces(history, look))


VIEW: Final = View(
    name="strip",
    title="time strip",
    data=_time_strip_data,
    panels=lambda data, heap, look: [strip_panel(*data, heap.step, look)],
    dashboard=DashboardPlace(None, height=54, below=22),
)
