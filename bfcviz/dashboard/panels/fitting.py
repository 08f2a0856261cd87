"""Fit a panel into its place on a stage: no text wider than the plot, and no text that another part shows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any, Final

from bfcviz.figures.panel import Panel
from bfcviz.figures.style.text import axis_unit

_UNIT_IN_TITLE: Final = frozenset({"lifetimes", "stats", "fragmentation", "rate", "bin_bytes", "bin_chunks"})
"""Panels whose title also names what their y axis shows."""

_LISTED_ELSEWHERE: Final = frozenset({"lifetimes", "address_time"})
"""Panels whose colours the side pane or the legend of the region map names."""


_SELDOM: Final = frozenset({"in use, but too narrow to see", "matches of the search", "selected"})
"""Traces of the map that the legend seldom lists: last, so that it has no empty line between others."""

_RANK: Final = 1000  # plotly's default


def slim(panel: Panel) -> Panel:
    """`panel` on a stage: without the titles of axes and the legends that another part of the stage shows."""
    if panel.name == "region_map" or panel.name in _UNIT_IN_TITLE:
        panel = replace(panel, yaxis={**panel.yaxis, "title": {"text": ""}})
    if panel.name in _UNIT_IN_TITLE:  # what they draw fills their height
        panel = replace(panel, yaxis={**panel.yaxis, "fixedrange": True})
    if panel.name == "region_map":
        unit = axis_unit(1024 * panel.x_unit)[1]
        xaxis = {**panel.xaxis, "title": {"text": ""}, "ticksuffix": f" {unit}", "showticksuffix": "first"}
        traces = [
            {**trace, "legendrank": _RANK + 1} if trace.get("name") in _SELDOM else trace
            for trace in panel.traces
        ]
        return replace(panel, xaxis=xaxis, traces=traces)
    return replace(panel, legend=panel.legend and panel.name not in _LISTED_ELSEWHERE)


# Pixels of the widest usual font: the kernel does not know which font the page uses.
_LETTER: Final = 6.4  # of a legend or caption
_BOLD: Final = 8.6  # of a title
_SIGN: Final = 47  # of a legend entry, beside its name
_CAPTION_SPACE: Final = 12  # between title and caption

_FEWEST: Final = 12  # characters of a shortened caption; a shorter one is left out


def fitted(panel: Panel, pixels: float) -> Panel:
    """`panel` with legend and caption no wider than its plot, which is `pixels` wide.

    Every named trace keeps its place in the legend, even if the legend does not show it: so the number of lines
    does not change with every step.
    """
    lines = _lines(panel.traces, pixels)
    if any(trace.get("legend", 0) != line for trace, line in zip(panel.traces, lines, strict=True)):
        traces = [{**trace, "legend": line} for trace, line in zip(panel.traces, lines, strict=True)]
        panel = replace(panel, traces=traces)
    room = int((pixels - _BOLD * _length(panel.title) - _CAPTION_SPACE) / _LETTER)
    if len(panel.caption) <= room:
        return panel
    definition = "<br>".join(text for text in (panel.caption, panel.definition) if text)
    return replace(panel, caption=_cut(panel.caption, room), definition=definition)


def _lines(traces: Sequence[Mapping[str, Any]], pixels: float) -> list[int]:
    """The legend line of each trace: a new line where the panel begins one, or where a line is full."""
    order = sorted(
        (trace.get("legend", 0), trace.get("legendrank", _RANK), number)
        for number, trace in enumerate(traces)
    )
    found, line, before, filled = [0] * len(traces), 0, 0, 0.0
    for legend, _, number in order:
        name = traces[number].get("name", "")
        wide = _SIGN + _LETTER * _length(name) if name else 0.0
        if filled and (legend != before or filled + wide > pixels):
            line, filled = line + 1, 0.0
        found[number], before, filled = line, legend, filled + wide
    return found


def _length(text: str) -> int:
    """The visible characters of a text with markup."""
    return len(unescape(re.sub(r"<[^>]*>", "", text)))


def _cut(text: str, room: int) -> str:
    """The first whole words of `text` and an ellipsis, `room` characters at most; empty if room is too small."""
    words = text[: max(room, 0)].rsplit(" ", 1)[0].rstrip(" ,;:")
    return f"{words}…" if room >= _FEWEST else ""
