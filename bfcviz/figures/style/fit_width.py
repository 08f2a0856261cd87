"""Panels on narrow pages: legends on as many lines as they need, captions no longer than their plot."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any, Final

from bfcviz.figures.panel import Panel

# Pixels; of the widest of the usual fonts, for a page does not say which one it has.
_LETTER: Final = 6.4  # of a legend or caption
_BOLD: Final = 8.6  # of a title
_SIGN: Final = 47  # of a legend's entry beside its name
_CAPTION_SPACE: Final = 12  # between title and caption

_RANK: Final = 1000  # plotly's, where a trace has none


def fitted(panel: Panel, pixels: float) -> Panel:
    """`panel` with legend and caption no wider than its plot, which is `pixels` wide.

    Every trace with a name has its place in the legend, also while it is not shown there: so the number of lines
    does not change with every step.
    """
    lines = _lines(panel.traces, pixels)
    if any(trace.get("legend", 0) != line for trace, line in zip(panel.traces, lines, strict=True)):
        traces = [{**trace, "legend": line} for trace, line in zip(panel.traces, lines, strict=True)]
        panel = replace(panel, traces=traces)
    room = int((pixels - _BOLD * _length(panel.title) - _CAPTION_SPACE) / _LETTER)
    if len(panel.caption) <= room:
        return panel
    told = "<br>".join(text for text in (panel.caption, panel.definition) if text)
    return replace(panel, caption=_cut(panel.caption, room), definition=told)


def _lines(traces: Sequence[Mapping[str, Any]], pixels: float) -> list[int]:
    """The line of the legend for each trace: a new one where the old one begins one, or is full."""
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
    """Characters that are seen of a text with markup."""
    return len(unescape(re.sub(r"<[^>]*>", "", text)))


def _cut(text: str, room: int) -> str:
    """At most `room` characters of it, whole words, and an ellipsis; nothing where that would say nothing."""
    words = text[: max(room, 0)].rsplit(" ", 1)[0].rstrip(" ,;:")
    return f"{words}…" if room >= _FEWEST else ""


_FEWEST: Final = 12
