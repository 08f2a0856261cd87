"""Names in the fills of a figure for print: shortened to the room that they have there, on a plate of one grey.

A figure names its fills for the width of a screen. On paper the same fill is narrower, and may have a pattern that no
text can be read on.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from bfcviz.figures.style.colour_math import contrasting
from bfcviz.figures.style.text import fitted, harmless

SIZE: Final = 8
"""Pixels of a text inside a plot: 6 pt, the smallest that journals accept."""

LETTER: Final = 5.0
"""Pixels of a letter of this size, at most on average."""

LINE: Final = 10.4
"""Pixels of a line of this size."""

_SIDE: Final = 1.5  # pixels left and right of a name
_RIM: Final = 2.0  # pixels above and below two lines, for the edge of the fill
_ABOVE: Final = 2  # pixels between a line and the text above it
_NARROW: Final = 3.0  # pixels: a narrower bar has no edge
_USUAL: Final = 6  # pixels of a marker without a size
_MARKER: Final = 5  # pixels: a smaller marker hides no name
_ISOLATES: Final = "\u2068\u2069"
_OPPOSITE: Final = {
    "left": "right",
    "center": "center",
    "right": "left",
    "top": "bottom",
    "middle": "middle",
    "bottom": "top",
}
_SIZED: Final = re.compile(r"[\d.,]+ (B|[KMGTPE]iB)")

BLACK: Final = "#000000"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in pixels from the left and from above."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether they have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True)
class _Fill:
    """A fill.

    Attributes:
        colour: its grey.
        plate: the colour of a plate below a text: its grey, if it has a pattern; None: no plate is needed.
        edges: its outline, in pixels; shape (n, 4): from x, y to x, y.
    """

    colour: str
    plate: str | None
    edges: Floats

    def crossings(self, x: float, y: float) -> tuple[Floats, Floats]:
        """Where the outline crosses the horizontal line through a point, and the vertical one."""
        return _crossed(self.edges, x, y, along=0), _crossed(self.edges, x, y, along=1)


def _crossed(edges: Floats, x: float, y: float, *, along: int) -> Floats:
    first, last = edges[:, 1 - along], edges[:, 3 - along]
    level = x if along else y
    hit = (first <= level) != (last <= level)
    share = (level - first[hit]) / (last[hit] - first[hit])
    found: Floats = edges[hit, along] + share * (edges[hit, along + 2] - edges[hit, along])
    return found


@dataclass(frozen=True)
class _Plot:
    """The axes of some traces: axis units to pixels."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, values: Any) -> Floats:
        low, high = self.x
        return self.left + (np.asarray(values, np.float64) - low) / (high - low) * self.width

    def down(self, values: Any) -> Floats:
        low, high = self.y
        return self.top + (high - np.asarray(values, np.float64)) / (high - low) * self.height


def fit_labels(drawn: go.Figure) -> go.Figure:
    """The figure, changed: each text inside its plots has room, contrast, and meets no other one, nor a marker.

    A text that finds no room is shortened, then left out: a table and the caption have its numbers.

    Args:
        drawn: a figure in greys, with its width and height.
    """
    for bars in drawn.select_traces({"type": "bar"}):
        if bars.orientation == "h" and (plot := _plot_of(drawn, bars)) is not None:
            _fit_bars(bars, plot)
    taken = list(_markers(drawn))
    for trace, plot in _scatters(drawn, "text"):
        _fit(drawn, trace, plot, taken)
    return drawn


def _scatters(drawn: go.Figure, mode: str) -> Iterator[tuple[Any, _Plot]]:
    """The traces shown with this part in their mode, and their plots."""
    for trace in drawn.select_traces({"type": "scatter"}):
        if mode in (trace.mode or "") and trace.visible is not False and trace.x is not None:
            plot = _plot_of(drawn, trace)
            if plot is not None:
                yield trace, plot


def _fit_bars(bars: Any, plot: _Plot) -> None:
    """Leave out the edges of horizontal bars that would be all edge, and fit the texts inside the bars."""
    widths = np.abs(plot.across(bars.x) - plot.across(np.zeros(len(bars.x)))).tolist()
    bars.marker.line.width = [0 if width < _NARROW else bars.marker.line.width for width in widths]
    if bars.textposition == "inside":
        bars.text = [_fitted(text, width, 2 * LINE) for text, width in zip(bars.text, widths, strict=True)]


def _fit(drawn: go.Figure, trace: Any, plot: _Plot, taken: list[Box]) -> None:
    """Draw the texts of a trace again, as annotations: they can have a plate."""
    fills = _fills(drawn, trace.xaxis, plot)
    position = trace.textposition or "middle center"
    for x, y, text in zip(trace.x, trace.y, trace.text, strict=True):
        at = float(plot.across(x)), float(plot.down(y))
        below = _below(fills, *at) if position == "middle center" else None
        name = _fitted(text, *below[1:]) if below is not None else _beside(text, plot.width)
        box = _box(at, name, position)
        shift = max(plot.left - box.left, 0.0) - max(box.right - plot.left - plot.width, 0.0)
        box = Box(box.left + shift, box.top, box.right + shift, box.bottom)
        if not name or any(box.meets(other) for other in taken):
            continue
        taken.append(box)
        vertical, horizontal = position.split()
        drawn.add_annotation(
            x=x,
            y=y,
            xref=trace.xaxis,
            yref=trace.yaxis,
            xanchor=_OPPOSITE[horizontal],
            yanchor=_OPPOSITE[vertical],
            xshift=shift,
            yshift=_ABOVE if vertical == "top" else 0,
            text=name,
            showarrow=False,
            borderpad=0,
            bgcolor=below[0].plate if below is not None else None,
            font={"size": SIZE, "color": BLACK if below is None else contrasting(below[0].colour)},
        )
    trace.visible = False


def _beside(text: str, wide: float) -> str:
    """A text outside of all fills; its bold part alone, where the plot is too narrow for both."""
    return text if LETTER * _letters(text) <= wide else text.partition("</b>")[0]


def _box(at: tuple[float, float], text: str, position: str) -> Box:
    """The box of a text whose anchor is `at`."""
    lines = text.split("<br>")
    wide = LETTER * max(_letters(line) for line in lines)
    high = LINE * len(lines)
    vertical, horizontal = position.split()
    left = at[0] - {"left": 1.0, "center": 0.5, "right": 0.0}[horizontal] * wide
    top = at[1] - {"top": 1.0, "middle": 0.5, "bottom": 0.0}[vertical] * high
    return Box(left, top, left + wide, top + high)


def _letters(line: str) -> int:
    return len(_plain(line.replace("<b>", "").replace("</b>", "")))


def _plain(text: str) -> str:
    return unescape(text).strip(_ISOLATES)


def _fitted(text: str, wide: float, high: float) -> str:
    """As much of a name as has room in so many pixels, and its size; a size is whole, or left out."""
    room = int((wide - 2 * _SIDE) / LETTER)
    name, size = _parts(text)
    sizes = (each for each in (size, size.rpartition(", ")[0]) if len(each) <= room)
    size = next(sizes, "")
    two = high >= 2 * LINE + _RIM
    if high < LINE - _RIM or room < 1:
        return ""
    name = fitted(name, room if two or not size else room - len(size) - 2)
    return ("<br>" if two else ", ").join(part for part in (name and harmless(name), size) if part)


def _parts(text: str) -> tuple[str, str]:
    """The name and the size of a text in a fill; it may have one of them."""
    lines = [_plain(line) for line in text.split("<br>")]
    if len(lines) > 1:
        return lines[0], lines[1]
    name, _, size = lines[0].rpartition(", ")
    return (name, size) if _SIZED.fullmatch(size) else (lines[0], "")


def _below(fills: Sequence[_Fill], x: float, y: float) -> tuple[_Fill, float, float] | None:
    """The topmost fill at a point, and the width and height that a text centred there has."""
    across: list[float] = []
    down: list[float] = []
    for fill in reversed(fills):
        right, under = fill.crossings(x, y)
        across += np.abs(right - x).tolist()
        down += np.abs(under - y).tolist()
        if (right > x).sum() % 2:  # an odd number of edges to its right: inside
            return fill, 2 * min(across), 2 * min(down)
    return None


def _fills(drawn: go.Figure, xaxis: str, plot: _Plot) -> list[_Fill]:
    """The fills of one plot, from the lowest to the topmost."""
    found = []
    for trace in drawn.select_traces({"type": "scatter", "fill": "toself", "xaxis": xaxis}):
        if trace.visible is not False and (trace.fillcolor or "").startswith("#"):
            plate = trace.fillcolor if trace.fillpattern.shape else None
            found.append(_Fill(trace.fillcolor, plate, _edges(plot.across(trace.x), plot.down(trace.y))))
    return found


def _edges(x: Floats, y: Floats) -> Floats:
    """The edges of closed outlines, which NaN separates."""
    gaps = np.flatnonzero(np.isnan(x) | np.isnan(y))
    parts = []
    for start, stop in zip([0, *(gaps + 1)], [*gaps, len(x)], strict=True):
        own = np.column_stack([x[start:stop], y[start:stop]])
        parts.append(np.hstack([own, np.roll(own, -1, axis=0)]))
    return np.concatenate(parts)


def _markers(drawn: go.Figure) -> Iterator[Box]:
    """The boxes of all markers."""
    for trace, plot in _scatters(drawn, "markers"):
        sizes = _USUAL if trace.marker.size is None else trace.marker.size
        halves = np.broadcast_to(sizes, len(trace.x)).astype(np.float64) / 2
        for x, y, half in zip(plot.across(trace.x), plot.down(trace.y), halves, strict=True):
            if 2 * half >= _MARKER and np.isfinite(x + y):
                yield Box(x - half, y - half, x + half, y + half)


def _plot_of(drawn: go.Figure, trace: Any) -> _Plot | None:
    """The plot of a trace; None where plotly chooses the range of an axis, or the axis has no numbers."""
    layout, margin = drawn.layout, drawn.layout.margin
    x, y = (layout[f"{name[0]}axis{name[1:]}"] for name in (trace.xaxis or "x", trace.yaxis or "y"))
    if any(axis.range is None or axis.type not in {None, "linear", "-"} for axis in (x, y)):
        return None
    wide, high = layout.width - margin.l - margin.r, layout.height - margin.t - margin.b
    (left, right), (low, top) = x.domain or (0, 1), y.domain or (0, 1)
    return _Plot(
        left=margin.l + left * wide,
        top=margin.t + (1 - top) * high,
        width=(right - left) * wide,
        height=(top - low) * high,
        x=tuple(x.range),
        y=tuple(y.range),
    )
