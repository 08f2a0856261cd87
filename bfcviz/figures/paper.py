"""Figures for print: their layout in millimetres, and greys and patterns in place of their colours."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from textwrap import wrap
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go

from bfcviz.errors import BfcvizError
from bfcviz.figures.panel import Floats, Picture
from bfcviz.figures.text import fitted, harmless
from bfcviz.figures.theme import DARK, LIGHT, TAKER, contrasting, mixed, rgb

# ------------------------------------------------------------------------------
# Names in the fills of a figure for print: shortened to the room that they have there, on a plate of one grey.
#
# A figure names its fills for the width of a screen. On paper the same fill is narrower, and may have a pattern that
# no text can be read on.

SIZE: Final = 8
"""Pixels of a text inside a plot: 6 pt, the smallest that journals accept."""

LETTER: Final = 5.0  # pixels of a letter of this size, at most on average

LINE: Final = 10.4  # pixels of a line of this size

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


class PrintedBox(NamedTuple):
    """A rectangle on the printed page, in pixels from the left and from above."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "PrintedBox") -> bool:
        """Whether two rectangles on the printed page have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True)
class _Fill:
    """A fill in a printed figure."""

    colour: str  # its grey
    # the colour of a plate below a text: its grey, if it has a pattern; None: no plate is needed
    plate: str | None
    edges: Floats  # its outline, in pixels; shape (n, 4): from x, y to x, y

    def crossings(self, level: float, *, along: int) -> Floats:
        """Where the outline of a printed fill crosses a horizontal line (`along` 0), or a vertical one (1)."""
        first, last = self.edges[:, 1 - along], self.edges[:, 3 - along]
        hit = (first <= level) != (last <= level)
        share = (level - first[hit]) / (last[hit] - first[hit])
        begin, end = self.edges[hit, along], self.edges[hit, along + 2]
        found: Floats = begin + share * (end - begin)
        return found


@dataclass(frozen=True)
class _PrintedPlot:
    """The axes of some traces of a printed figure: axis units to pixels."""

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
    """The figure for print, changed: each text inside its plots has room, contrast, and meets no other one.

    A text that finds no room is shortened, then left out: a table and the caption have its numbers.

    Args:
        drawn: a figure in greys, with its width and height.
    """
    for bars in drawn.select_traces({"type": "bar"}):
        if bars.orientation == "h" and (plot := _plot_of(drawn, bars)) is not None:
            _fit_printed_bars(bars, plot)
    taken = list(_printed_marker_boxes(drawn))
    for trace, plot in _printed_scatter_traces(drawn, "text"):
        _fit_printed_texts(drawn, trace, plot, taken)
    return drawn


def _printed_scatter_traces(drawn: go.Figure, mode: str) -> Iterator[tuple[Any, _PrintedPlot]]:
    """The traces shown with this part in their mode, and their plots."""
    for trace in drawn.select_traces({"type": "scatter"}):
        if mode in (trace.mode or "") and trace.visible is not False and trace.x is not None:
            plot = _plot_of(drawn, trace)
            if plot is not None:
                yield trace, plot


def _fit_printed_bars(bars: Any, plot: _PrintedPlot) -> None:
    """Leave out the edges of horizontal bars that would be all edge, and fit the texts inside the bars."""
    widths = np.abs(plot.across(bars.x) - plot.across(np.zeros(len(bars.x)))).tolist()
    bars.marker.line.width = [0 if width < _NARROW else bars.marker.line.width for width in widths]
    if bars.textposition == "inside":
        texts = zip(bars.text, widths, strict=True)
        bars.text = [_printed_text_in_fill(text, width, 2 * LINE) for text, width in texts]


def _fit_printed_texts(drawn: go.Figure, trace: Any, plot: _PrintedPlot, taken: list[PrintedBox]) -> None:
    """Draw the texts of a trace again, as annotations: they can have a plate."""
    fills = _printed_plot_fills(drawn, trace.xaxis, plot)
    position = trace.textposition or "middle center"
    notes = []
    for x, y, text in zip(trace.x, trace.y, trace.text, strict=True):
        at = float(plot.across(x)), float(plot.down(y))
        below = _fill_below_printed_text(fills, *at) if position == "middle center" else None
        if below is not None:
            name = _printed_text_in_fill(text, *below[1:])
        else:  # the bold part alone, where the plot is too narrow
            whole = LETTER * _printed_letter_count(text) <= plot.width
            name = text if whole else text.partition("</b>")[0]
        box = _printed_text_box(at, name, position)
        shift = max(plot.left - box.left, 0.0) - max(box.right - plot.left - plot.width, 0.0)
        box = PrintedBox(box.left + shift, box.top, box.right + shift, box.bottom)
        if not name or any(box.meets(other) for other in taken):
            continue
        taken.append(box)
        vertical, horizontal = position.split()
        notes.append(
            {
                "x": x,
                "y": y,
                "xref": trace.xaxis,
                "yref": trace.yaxis,
                "xanchor": _OPPOSITE[horizontal],
                "yanchor": _OPPOSITE[vertical],
                "xshift": shift,
                "yshift": _ABOVE if vertical == "top" else 0,
                "text": name,
                "showarrow": False,
                "borderpad": 0,
                "bgcolor": below[0].plate if below is not None else None,
                "font": {"size": SIZE, "color": BLACK if below is None else contrasting(below[0].colour)},
            }
        )
    # All at once: with each one, plotly would check those before it once more.
    drawn.layout.annotations = [*drawn.layout.annotations, *notes]
    trace.visible = False


def _printed_text_box(at: tuple[float, float], text: str, position: str) -> PrintedBox:
    """The box of a text whose anchor is `at`."""
    lines = text.split("<br>")
    wide = LETTER * max(_printed_letter_count(line) for line in lines)
    high = LINE * len(lines)
    vertical, horizontal = position.split()
    left = at[0] - {"left": 1.0, "center": 0.5, "right": 0.0}[horizontal] * wide
    top = at[1] - {"top": 1.0, "middle": 0.5, "bottom": 0.0}[vertical] * high
    return PrintedBox(left, top, left + wide, top + high)


def _printed_letter_count(line: str) -> int:
    return len(_printed_plain_text(line.replace("<b>", "").replace("</b>", "")))


def _printed_plain_text(text: str) -> str:
    return unescape(text).strip(_ISOLATES)


def _printed_text_in_fill(text: str, wide: float, high: float) -> str:
    """As much of a name as has room in so many pixels, and its size; a size is whole, or left out."""
    room = int((wide - 2 * _SIDE) / LETTER)
    name, size = _printed_name_and_size(text)
    sizes = (each for each in (size, size.rpartition(", ")[0]) if len(each) <= room)
    size = next(sizes, "")
    two = high >= 2 * LINE + _RIM
    if high < LINE - _RIM or room < 1:
        return ""
    name = fitted(name, room if two or not size else room - len(size) - 2)
    return ("<br>" if two else ", ").join(part for part in (name and harmless(name), size) if part)


def _printed_name_and_size(text: str) -> tuple[str, str]:
    """The name and the size of a text in a fill; it may have one of them."""
    lines = [_printed_plain_text(line) for line in text.split("<br>")]
    if len(lines) > 1:
        return lines[0], lines[1]
    name, _, size = lines[0].rpartition(", ")
    return (name, size) if _SIZED.fullmatch(size) else (lines[0], "")


def _fill_below_printed_text(fills: Sequence[_Fill], x: float, y: float) -> tuple[_Fill, float, float] | None:
    """The topmost fill at a point of a printed figure, and the size that a text centred there has."""
    across: list[float] = []
    down: list[float] = []
    for fill in reversed(fills):
        right, under = fill.crossings(y, along=0), fill.crossings(x, along=1)
        across += np.abs(right - x).tolist()
        down += np.abs(under - y).tolist()
        if (right > x).sum() % 2:  # an odd number of edges to its right: inside
            return fill, 2 * min(across), 2 * min(down)
    return None


def _printed_plot_fills(drawn: go.Figure, xaxis: str, plot: _PrintedPlot) -> list[_Fill]:
    """The fills of one plot, from the lowest to the topmost."""
    found = []
    for trace in drawn.select_traces({"type": "scatter", "fill": "toself", "xaxis": xaxis}):
        if trace.visible is not False and (trace.fillcolor or "").startswith("#"):
            plate = trace.fillcolor if trace.fillpattern.shape else None
            edges = _printed_fill_edges(plot.across(trace.x), plot.down(trace.y))
            found.append(_Fill(trace.fillcolor, plate, edges))
    return found


def _printed_fill_edges(x: Floats, y: Floats) -> Floats:
    """The edges of closed outlines, which NaN separates."""
    gaps = np.flatnonzero(np.isnan(x) | np.isnan(y))
    parts = []
    for start, stop in zip([0, *(gaps + 1)], [*gaps, len(x)], strict=True):
        own = np.column_stack([x[start:stop], y[start:stop]])
        parts.append(np.hstack([own, np.roll(own, -1, axis=0)]))
    return np.concatenate(parts)


def _printed_marker_boxes(drawn: go.Figure) -> Iterator[PrintedBox]:
    """The boxes of all markers."""
    for trace, plot in _printed_scatter_traces(drawn, "markers"):
        sizes = _USUAL if trace.marker.size is None else trace.marker.size
        halves = np.broadcast_to(sizes, len(trace.x)).astype(np.float64) / 2
        for x, y, half in zip(plot.across(trace.x), plot.down(trace.y), halves, strict=True):
            if 2 * half >= _MARKER and np.isfinite(x + y):
                yield PrintedBox(x - half, y - half, x + half, y + half)


def _plot_of(drawn: go.Figure, trace: Any) -> _PrintedPlot | None:
    """The printed plot of a trace; None where plotly chooses an axis' range, or it has no numbers."""
    layout, margin = drawn.layout, drawn.layout.margin
    x, y = (layout[f"{name[0]}axis{name[1:]}"] for name in (trace.xaxis or "x", trace.yaxis or "y"))
    if any(axis.range is None or axis.type not in {None, "linear", "-"} for axis in (x, y)):
        return None
    wide, high = layout.width - margin.l - margin.r, layout.height - margin.t - margin.b
    (left, right), (low, top) = x.domain or (0, 1), y.domain or (0, 1)
    return _PrintedPlot(
        left=margin.l + left * wide,
        top=margin.t + (1 - top) * high,
        width=(right - left) * wide,
        height=(top - low) * high,
        x=tuple(x.range),
        y=tuple(y.range),
    )


# ------------------------------------------------------------------------------
# Colours as greys and patterns, so that a print without colour tells the same: one paint for each fill of a figure.

WHITE: Final = "#FFFFFF"

_MEANINGS: Final = {
    LIGHT.free.fill: ("#F0F0F0", ""),
    LIGHT.in_use.fill: ("#7A7A7A", ""),
    LIGHT.waste.fill: (WHITE, "x"),
    LIGHT.pool.fill: ("#DADADA", ""),
    LIGHT.other.fill: ("#BDBDBD", ""),
    mixed(LIGHT.free.fill, LIGHT.fit, TAKER): (WHITE, "/"),
    LIGHT.fit: (WHITE, "/"),
}
"""Fill -> its grey and its pattern."""

_CLASSES: Final = (
    ("#4A4A4A", ""),
    (WHITE, "/"),
    ("#A0A0A0", ""),
    (WHITE, "\\"),
    ("#CFCFCF", "."),
    (WHITE, "-"),
    ("#8C8C8C", "/"),
    (WHITE, "|"),
    ("#CFCFCF", "+"),
    (WHITE, "+"),
    ("#A0A0A0", "."),
    ("#CFCFCF", "|"),
)
"""Grey and pattern of fills without a meaning of their own, in their order; then from the beginning."""

_HOLDERS: Final = {
    paint.fill: own.fill for own, *shades in map(LIGHT.shades, range(len(LIGHT.classes))) for paint in shades
}
"""Fill of a holder inside another one -> the fill of that one."""

_FAINT: Final = "#E4E4E4"
_EDGE: Final = "#8C8C8C"  # of a pattern
_TRANSPARENT: Final = 0.3  # below this opacity a fill only shades what lies around

_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
_RGBA: Final = re.compile(r"rgba\((\d+),(\d+),(\d+),([\d.]+)\)")
_THIN: Final = 0.6  # border of a fill, in pixels
_LINE: Final = 1.0  # a line, and the edge of a band; fills of chunks have thinner borders


def in_greys(drawn: go.Figure) -> go.Figure:
    """The figure for print, changed: greys and patterns for fills, black lines told apart by their dashes.

    A figure whose chunks are an image keeps its colours: an image has no patterns.
    """
    if any(trace.type == "image" and trace.visible is not False for trace in drawn.data):
        return drawn
    known: dict[str, tuple[str, str]] = {}
    for trace in drawn.select_traces({"type": "scatter", "fill": "toself"}):
        if trace.name and trace.showlegend is not False and (fill := _printed_opaque_colour(trace.fillcolor)):
            _grey_and_pattern(fill, known, listed=True)
    lines = 0
    for trace in drawn.data:
        if trace.type == "bar":
            _bar_in_greys(trace, known)
        elif trace.type == "scatter":
            lines += _scatter_in_greys(trace, known, _DASHES[lines % len(_DASHES)])
    return drawn


def printed_grey(colour: str) -> str:
    """The grey that a colour is printed as: that of its luminance."""
    red, green, blue = rgb(colour)
    level = round(0.299 * red + 0.587 * green + 0.114 * blue)
    return f"#{level:02X}{level:02X}{level:02X}"


def _bar_in_greys(trace: Any, known: dict[str, tuple[str, str]]) -> None:
    colour = trace.marker.color
    trace.marker.line.color = BLACK
    trace.marker.line.width = min(trace.marker.line.width or 0, _LINE)
    if not isinstance(colour, str):  # a colour of its own for each bar, whose name is in it
        trace.marker.color = [_printed_light_grey(each) for each in colour or ()]
        trace.insidetextfont.color = BLACK
        trace.insidetextfont.size = SIZE
        return
    fill = _printed_opaque_colour(colour)
    if fill is None:
        return
    grey, shape = _grey_and_pattern(fill, known)
    trace.marker.color = grey
    if shape:
        trace.marker.pattern = _grey_pattern(grey, shape)
    _trace_text_in_black(trace)


def _scatter_in_greys(trace: Any, known: dict[str, tuple[str, str]], dash: str) -> int:
    """Repaint the trace in greys for print; returns 1 if it took `dash`."""
    _trace_text_in_black(trace)
    if "markers" in (trace.mode or ""):
        trace.marker.color = BLACK
    fill = _printed_opaque_colour(trace.fillcolor) if trace.fill not in {None, "none"} else None
    if WHITE in {fill, _printed_opaque_colour(trace.line.color)}:  # the rim of another line
        return 0
    width = trace.line.width or 0
    edge = BLACK
    if fill is not None:
        grey, shape = _grey_and_pattern(fill, known)
        trace.fillcolor = grey
        if shape:
            trace.fillpattern = _grey_pattern(grey, shape)
        if _printed_opaque_colour(trace.line.color) == fill:
            edge = _EDGE if shape else grey  # thousands of narrow fills would be all edge, and black
        trace.line.width = min(width, _THIN)
    if "lines" not in (trace.mode or ""):
        return 0
    trace.line.color = edge
    if width < _LINE or trace.line.dash is not None or not trace.name or trace.showlegend is False:
        return 0
    trace.line.update(width=_LINE, dash=dash)  # also the edge of a band, which may be as thin as a line
    return 1


def _trace_text_in_black(trace: Any) -> None:
    trace.textfont.update(color=BLACK, shadow="0 0 2px white, 0 0 2px white")  # readable on patterns
    if isinstance(size := trace.textfont.size, int | float):
        trace.textfont.size = min(size, SIZE)


def _grey_pattern(grey: str, shape: str) -> dict[str, Any]:
    return {"shape": shape, "fgcolor": BLACK, "bgcolor": grey, "size": 5, "solidity": 0.2}


def _grey_and_pattern(
    fill: str, known: dict[str, tuple[str, str]], *, listed: bool = False
) -> tuple[str, str]:
    """The grey and the pattern of a printed fill: the same for each trace of this fill.

    A holder inside another one that the legend does not list (`listed`) looks like that one, or like all others.
    """
    if fill == _FAINT:
        return _FAINT, ""
    if not listed and fill not in known and fill in _HOLDERS:
        fill = _HOLDERS[fill] if _HOLDERS[fill] in known else LIGHT.other.fill
    if fill not in known:
        own = sum(each not in _MEANINGS for each in known)
        known[fill] = _MEANINGS.get(fill) or _CLASSES[own % len(_CLASSES)]
    return known[fill]


def _printed_opaque_colour(colour: str | None) -> str | None:
    """A colour as `#RRGGBB` without its opacity, `_FAINT` if it is nearly transparent; None for no colour."""
    found = _RGBA.fullmatch(colour.replace(" ", "")) if colour else None
    if found is None:
        return colour.upper() if colour and colour.startswith("#") else None
    red, green, blue = (int(part) for part in found.groups()[:3])
    opacity = float(found[4])
    if opacity < _TRANSPARENT:
        return _FAINT if opacity > 0 else None
    return f"#{red:02X}{green:02X}{blue:02X}"


def _printed_light_grey(colour: str) -> str:
    """A light grey with the order of the colours' luminance: text on it is black."""
    level = round(170 + int(printed_grey(colour)[1:3], 16) / 3)
    return f"#{level:02X}{level:02X}{level:02X}"


# ------------------------------------------------------------------------------
# Lay a figure out for print: its width in millimetres, one legend and a caption below, all colours as greys.
#
# ::
#
#     title              of each panel
#     +-------------+
#     |    plot     |
#     +-------------+
#     [] a  [] b         one legend
#     Title. Caption.    how to read it, the definitions, and the line of facts

COLUMN_MM: Final = 84
"""Width of one column of a journal's page."""

PAGE_MM: Final = 174
"""Width of the page's text."""

MM: Final = 25.4 / 96
"""Millimetres of a pixel."""

_LEAST_MM, _MOST_MM = 60, 400

# Pixels: 8 px are 6 pt, the smallest text that journals accept.
_SMALL, _TITLE = 8, 10
_LETTER: Final = 4.2  # width of a letter of the caption
_LEGEND_LETTER: Final = 5.0
_SIGN: Final = 45  # of a legend entry, beside its name
_LINE_MM: Final = 11
# A row of the legend; a legend that reaches higher pushes the title of the axis into the ticks.
_ENTRY: Final = 19
_RIGHT: Final = 24
_ABOVE_FIRST: Final = 22  # the title of the first panel


def paper(figure: go.Figure, width_mm: float = PAGE_MM) -> go.Figure:
    """A copy of the figure for print; its layout's width and height are its size at 96 pixels an inch.

    Raises:
        BfcvizError: the width is not possible, or the figure is dark.
    """
    if not _LEAST_MM <= width_mm <= _MOST_MM:
        raise BfcvizError(
            f"a picture for paper is {_LEAST_MM} to {_MOST_MM} mm wide, and {width_mm:g} mm were asked; "
            f"give {COLUMN_MM} for one column, {PAGE_MM} for the page"
        )
    if figure.layout.template.layout.paper_bgcolor == DARK.paper:
        raise BfcvizError("a picture for paper is light, and this one is dark; draw it with theme='light'")
    width = round(width_mm / MM)
    drawn = in_greys(go.Figure(figure))
    caption = _paper_caption(figure, width)
    _set_paper_text_sizes(drawn)
    removed = _shorten_paper_titles(drawn)
    margin = drawn.layout.margin
    legend = _one_legend(drawn, width - (margin.l or 0) - _RIGHT)
    below = _LINE_MM * len(caption) + 10
    foot = margin.b or 0
    height = (drawn.layout.height or 450) - removed + legend + below
    drawn.update_layout(
        width=width,
        height=height,
        margin={"t": (margin.t or 0) - removed, "b": foot + legend + below, "r": _RIGHT},
        legend=_paper_legend_at(below / height),
    )
    fit_labels(drawn)
    drawn.add_annotation(_caption_at(caption, 6 - (margin.l or 0), -foot - legend))
    return drawn


def _paper_legend_at(share: float) -> dict[str, Any]:
    """A legend in rows, so far (as a share of the height) above the lower edge."""
    return {
        "orientation": "h",
        "xref": "container",
        "x": 0,
        "xanchor": "left",
        "yref": "container",
        "y": share,
        "yanchor": "bottom",
        "font": {"size": _SMALL, "color": BLACK},
        "itemwidth": 30,
        "bgcolor": "rgba(0,0,0,0)",
    }


def _caption_at(lines: list[str], right: float, up: float) -> dict[str, Any]:
    """The caption of a printed figure as a text so many pixels from the lower left corner of the plots."""
    return {
        "text": "<br>".join(lines),
        "align": "left",
        "showarrow": False,
        "font": {"size": _SMALL, "color": BLACK},
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": right,
        "yref": "paper",
        "y": 0,
        "yanchor": "top",
        "yshift": up,
    }


def _paper_caption(figure: go.Figure, width: int) -> list[str]:
    """The lines below the figure: for each panel its title, how to read it and its definitions; then the facts."""
    if not isinstance(figure, Picture):
        return []
    parts: list[str] = []
    defined: set[str] = set()
    for note in figure.notes:
        texts = [note.caption]
        if note.definition not in defined:  # panels of one figure may share their definitions
            texts += note.definition.replace("<br> ", " ").split("<br>")
        defined.add(note.definition)
        parts += [f"{note.title}:", *(f"{text.rstrip('.')}." for text in texts if text)]
    parts += [
        f"{more.removesuffix(': zoom in')}."
        for axis in figure.select_xaxes()
        if (more := _axis_title(axis)[1])
    ]
    text = " ".join([*parts, figure.facts])
    room = int((width - 12) / _LETTER)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _axis_title(axis: Any) -> tuple[str, str]:
    """The title of a printed axis, and what it says beside the quantity, which the caption has room for."""
    title, _, more = (axis.title.text or "").partition("; ")
    return title, more


def _one_legend(drawn: go.Figure, width: int) -> int:
    """Give all traces of a printed figure one legend, each name once; returns its height."""
    names: list[str] = []
    for trace in drawn.data:
        if trace.type not in {"scatter", "bar"}:  # an image
            continue
        shown = trace.visible is not False and trace.showlegend is not False and trace.name
        trace.update(showlegend=bool(shown and trace.name not in names), legend="legend", legendrank=1000)
        if shown and trace.name not in names:
            names.append(trace.name)
    for key in [key for key in drawn.layout if key.startswith("legend") and key != "legend"]:
        drawn.layout[key] = None
    drawn.update_layout(showlegend=len(names) > 0)
    widths = [_SIGN + _LEGEND_LETTER * len(unescape(name)) for name in names]
    if sum(widths) <= width:
        return _ENTRY * bool(names)
    columns = max(int(width / max(widths)), 1)
    return _ENTRY * -(-len(names) // columns)


def _set_paper_text_sizes(drawn: go.Figure) -> None:
    small = {"font": {"size": _SMALL + 1}, "standoff": 4}
    drawn.for_each_xaxis(lambda axis: axis.update(title=small | {"text": _axis_title(axis)[0]}))
    drawn.update_xaxes(tickfont={"size": _SMALL})
    drawn.update_yaxes(title=small, tickfont={"size": _SMALL})
    drawn.update_layout(font={"size": _SMALL + 1, "color": BLACK})


def _shorten_paper_titles(drawn: go.Figure) -> int:
    """Leave of each panel's title what comes before its caption; returns the pixels saved above the first panel."""
    first = None
    for note in drawn.layout.annotations:
        if (note.text or "").startswith("<b>") and note.yshift is not None:
            first = note.yshift if first is None else first
            title = note.text.partition("  <span")[0]
            note.update(text=title, yshift=4, font={"size": _TITLE, "color": BLACK})
    above = drawn.layout.margin.t or 0
    return max(above - _ABOVE_FIRST, 0) if first is not None else 0
