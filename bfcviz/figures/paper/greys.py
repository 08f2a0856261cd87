"""Colours as greys and patterns, so that a print without colour tells the same: one paint for each fill of a figure."""

import re
from typing import Any, Final

import plotly.graph_objects as go

from bfcviz.figures.paper.labels import BLACK, SIZE
from bfcviz.figures.style.colour_math import mixed, rgb
from bfcviz.figures.style.theme import LIGHT, TAKER

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
)
"""Grey and pattern of fills without a meaning of their own, in their order; then from the beginning."""

_HOLDERS: Final = {
    paint.fill: own.fill for own, *shades in map(LIGHT.shades, range(len(LIGHT.classes))) for paint in shades
}
"""Fill of a holder inside another one -> the fill of that one, which the legend names."""

_FAINT: Final = "#E4E4E4"
_EDGE: Final = "#8C8C8C"  # of a pattern
_TRANSPARENT: Final = 0.3  # below this opacity a fill only shades what lies around

_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
_RGBA: Final = re.compile(r"rgba\((\d+),(\d+),(\d+),([\d.]+)\)")
_THIN: Final = 0.6  # border of a fill, in pixels
_LINE: Final = 1.0  # a line, and the edge of a band; fills of chunks have thinner borders


def in_greys(drawn: go.Figure) -> go.Figure:
    """The figure, changed: greys and patterns for fills, black lines told apart by their dashes.

    A figure whose chunks are an image keeps its colours: an image has no patterns.
    """
    if any(trace.type == "image" and trace.visible is not False for trace in drawn.data):
        return drawn
    known: dict[str, tuple[str, str]] = {}
    lines = 0
    for trace in drawn.data:
        if trace.type == "bar":
            _bar(trace, known)
        elif trace.type == "scatter":
            lines += _scatter(trace, known, _DASHES[lines % len(_DASHES)])
    return drawn


def grey_of(colour: str) -> str:
    """The grey with the luminance of a colour."""
    red, green, blue = rgb(colour)
    level = round(0.299 * red + 0.587 * green + 0.114 * blue)
    return f"#{level:02X}{level:02X}{level:02X}"


def _bar(trace: Any, known: dict[str, tuple[str, str]]) -> None:
    colour = trace.marker.color
    trace.marker.line.color = BLACK
    trace.marker.line.width = min(trace.marker.line.width or 0, _LINE)
    if not isinstance(colour, str):  # a colour of its own for each bar, whose name is in it
        trace.marker.color = [_light(each) for each in colour or ()]
        trace.insidetextfont.color = BLACK
        trace.insidetextfont.size = SIZE
        return
    fill = _opaque(colour)
    if fill is None:
        return
    grey, shape = _paint(fill, known)
    trace.marker.color = grey
    if shape:
        trace.marker.pattern = _pattern(grey, shape)
    _text(trace)


def _scatter(trace: Any, known: dict[str, tuple[str, str]], dash: str) -> int:
    """Repaint the trace; returns 1 if it took `dash`."""
    _text(trace)
    if "markers" in (trace.mode or ""):
        trace.marker.color = BLACK
    fill = _opaque(trace.fillcolor) if trace.fill not in {None, "none"} else None
    if WHITE in {fill, _opaque(trace.line.color)}:  # the rim of another line
        return 0
    width = trace.line.width or 0
    edge = BLACK
    if fill is not None:
        grey, shape = _paint(fill, known)
        trace.fillcolor = grey
        if shape:
            trace.fillpattern = _pattern(grey, shape)
        if _opaque(trace.line.color) == fill:  # thousands of narrow fills would be all edge, and black
            edge = _EDGE if shape else grey
        trace.line.width = min(width, _THIN)
    if "lines" not in (trace.mode or ""):
        return 0
    trace.line.color = edge
    if width < _LINE or trace.line.dash is not None or not trace.name or trace.showlegend is False:
        return 0
    trace.line.update(width=_LINE, dash=dash)  # also the edge of a band, which may be as thin as a line
    return 1


def _text(trace: Any) -> None:
    trace.textfont.update(color=BLACK, shadow="0 0 2px white, 0 0 2px white")  # readable on patterns
    if isinstance(size := trace.textfont.size, int | float):
        trace.textfont.size = min(size, SIZE)


def _pattern(grey: str, shape: str) -> dict[str, Any]:
    return {"shape": shape, "fgcolor": BLACK, "bgcolor": grey, "size": 5, "solidity": 0.2}


def _paint(fill: str, known: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """The grey and the pattern of a fill: the same for each trace of this fill."""
    if fill == _FAINT:
        return _FAINT, ""
    fill = _HOLDERS.get(fill, fill)
    if fill not in known:
        own = sum(each not in _MEANINGS for each in known)
        known[fill] = _MEANINGS.get(fill) or _CLASSES[own % len(_CLASSES)]
    return known[fill]


def _opaque(colour: str | None) -> str | None:
    """A colour as `#RRGGBB` without its opacity, `_FAINT` if it is nearly transparent; None for no colour."""
    found = _RGBA.fullmatch(colour.replace(" ", "")) if colour else None
    if found is None:
        return colour.upper() if colour and colour.startswith("#") else None
    red, green, blue = (int(part) for part in found.groups()[:3])
    opacity = float(found[4])
    if opacity < _TRANSPARENT:
        return _FAINT if opacity > 0 else None
    return f"#{red:02X}{green:02X}{blue:02X}"


def _light(colour: str) -> str:
    """A light grey with the order of the colours' luminance: text on it is black."""
    level = round(170 + int(grey_of(colour)[1:3], 16) / 3)
    return f"#{level:02X}{level:02X}{level:02X}"
