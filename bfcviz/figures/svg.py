"""Draw a page of panels as SVG, without plotly's script: for pages that must be small, or there before any script runs.

`panels_page` gives a figure as plain data in plotly's terms. Those that our figures use are drawn here, each where
plotly draws it; a term that is not known here is an error, so that no picture silently lacks a part.
"""

import math
import re
import struct
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.figures.panel import Floats, Page, Picture
from bfcviz.figures.text import plain_text, text_width
from bfcviz.figures.theme import FONT, Theme, axis_style
from bfcviz.figures.view import VIEWS, HeapData
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

Traces = Sequence[Mapping[str, Any]]

WIDTH: Final = 1080
"""Pixels of a picture's width, where nothing else is asked."""

_TEXT: Final = 12  # pixels of a text whose size is not given
_DESCENT: Final = 0.35  # from the middle of a line of text to its baseline, in parts of its size
_LINE: Final = 1.25  # from one line of a text to the next, in parts of its size
_SYMBOL: Final = 30  # pixels of a trace's symbol in a legend
_FEWEST_TICKS: Final = 6  # of an axis that names none


def as_svg(page: Page, theme: Theme, width: int = WIDTH) -> str:
    """A page of panels as an `svg` element, `width` pixels wide; it scales with the element around it.

    Raises:
        NotImplementedError: a trace or an axis says what this module does not draw.
    """
    layout = page.layout
    margin, height = layout["margin"], layout["height"]
    left, top = margin["l"], margin["t"]
    plots = _Box(left, top, width - margin["r"] - left, height - margin["b"] - top)
    drawn, titles = [], []
    for name, settings in layout.items():
        if not (name.startswith("xaxis") and settings["visible"]):
            continue
        number = name.removeprefix("xaxis")
        traces = [each for each in page.data if each["xaxis"] == f"x{number}" and each["visible"] is True]
        given = [{**axis_style(theme), **layout[f"{axis}axis{number}"]} for axis in "xy"]
        x, y = _Axis.of(given[0], plots, traces, "x"), _Axis.of(given[1], plots, traces, "y")
        drawn.append(_Plot(x, y, theme, layout.get("bargap", 0.2)).drawn(traces))
    for note in layout["annotations"]:
        if note["visible"]:
            titles.append(plain_text(note["text"]).strip())
            drawn.append(_svg_title(note, layout, plots))
    for name in layout:
        if name.startswith("legend") and layout[name]["visible"]:
            named = [each for each in page.data if each["legend"] == name]
            drawn.append(_svg_legend(layout[name], named, plots))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape("; ".join(titles))}" font-family="{escape(FONT)}" font-size="{_TEXT}" '
        f'fill="{theme.text}">{"".join(drawn)}</svg>'
    )


Picture.draws_still = as_svg


def picture(name: str, model: Model, look: Look, *, width: int = WIDTH, highest: int | None = None) -> str:
    """A view of the heap at its step as SVG in HTML, in light and in dark colours: `SHOWN` shows those of the page.

    Args:
        name: one of `VIEWS`.
        model: the heap; it stays at its step.
        look: its theme is ignored.
        width: pixels of the picture; it is as wide as the element around it.
        highest: pixels of a plot at most.
    """
    heap, looks = HeapData(model), [replace(look, theme=theme) for theme in ("light", "dark")]
    pages = [as_svg(VIEWS[name].page(heap, each, highest), each.paints, width) for each in looks]
    return "".join(
        f'<div class="bfcviz-{each.theme}">{page}</div>' for each, page in zip(looks, pages, strict=True)
    )


SHOWN: Final = ".bfcviz-light{display:var(--if-light)}.bfcviz-dark{display:var(--if-dark)}"
"""The rules of pages with pictures; `theme.variables` declares the variables."""


# ------------------------------------------------------------------------------
# Axes: from values to pixels, and the ticks.


@dataclass(frozen=True)
class _Box:
    """A rectangle of the SVG, in pixels from its upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True)
class _Axis:
    """An axis of the SVG: pixels `begin` to `end` are the values `low` to `high`, or their logarithms."""

    settings: Mapping[str, Any]
    begin: float
    end: float
    low: float
    high: float
    names: Sequence[str] = ()  # the values of an axis of names, in their order; the first is at 0

    @classmethod
    def of(cls, settings: Mapping[str, Any], plots: _Box, traces: Traces, axis: str) -> "_Axis":
        first, last = settings["domain"]
        if axis == "x":
            begin, end = plots.left + first * plots.width, plots.left + last * plots.width
        else:
            begin, end = plots.bottom - first * plots.height, plots.bottom - last * plots.height
        values = [value for each in traces for value in _svg_axis_names(each, axis)]
        names = list(dict.fromkeys(value for value in values if isinstance(value, str)))
        if settings.get("range") is not None:
            low, high = settings["range"]
        elif names:
            low, high = -0.5, len(names) - 0.5
        else:
            raise NotImplementedError(f"an axis without a range: {settings.get('title')}")
        if settings.get("autorange") == "reversed":
            low, high = high, low
        return cls(settings, begin, end, float(low), float(high), names)

    def at(self, values: Any) -> Floats:
        """The pixels of these values on an axis of the SVG; NaN where a value is none."""
        if self.names:
            values = [self.names.index(each) if isinstance(each, str) else each for each in values]
        found = np.array([np.nan if each is None else each for each in values], np.float64)
        if self.settings.get("type", "linear") == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.log10(found)
        pixels: Floats = self.begin + (found - self.low) / (self.high - self.low) * (self.end - self.begin)
        return pixels

    def ticks(self) -> tuple[list[float], list[str]]:
        """The pixels of the ticks inside of an axis of the SVG, and their texts."""
        settings = self.settings
        if self.names:
            return self.at(self.names).tolist(), list(self.names)
        if settings.get("tickvals") is not None:
            values, texts = list(settings["tickvals"]), list(settings["ticktext"])
        else:
            step = settings.get("dtick") or _svg_tick_step(abs(self.high - self.low) / _FEWEST_TICKS)
            least, most = sorted((self.low, self.high))
            origin = settings.get("tick0", 0)
            first = math.ceil((least - origin) / step - 1e-6)
            values = [origin + step * n for n in range(first, math.floor((most - origin) / step + 1e-6) + 1)]
            texts = [_svg_tick_text(value, settings.get("tickformat", ""), step) for value in values]
        low, high = sorted((self.begin, self.end))
        named = zip(self.at(values).tolist(), texts, strict=True)
        inside = [each for each in named if low - 1 <= each[0] <= high + 1]
        return [pixel for pixel, _ in inside], [text for _, text in inside]


def _svg_tick_step(least: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... (or 0.1, ...) that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * 0.999)


_PREFIXES: Final = {1e9: "G", 1e6: "M", 1e3: "k", 1: ""}


def _svg_tick_text(value: float, form: str, step: float) -> str:
    """A number as d3 writes it in this format; without one as plotly does."""
    digits = next((each for each in range(6) if math.isclose(round(step, each), step)), 6)
    if form in {"~s", ",~s"}:
        divisor, prefix = next((each for each in _PREFIXES.items() if abs(value) >= each[0]), (1, ""))
        return f"{round(value / divisor, 6):g}{prefix}"
    if form not in {"", ",d", ",~f", ",~g", ",~r", "+,~g"}:
        raise NotImplementedError(f"the tick format {form!r}")
    sign = "+" if form.startswith("+") else ""
    comma = "," if form or abs(value) >= 10_000 else ""
    text = f"{round(value, digits) + 0.0:{sign}{comma}.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def _svg_axis_names(trace: Mapping[str, Any], axis: str) -> Sequence[Any]:
    """The values of a trace that name places on an axis of names."""
    values = trace.get(axis)
    return values if isinstance(values, list | tuple) else ()


# ------------------------------------------------------------------------------
# A plot: its grid, its traces, its axes.


@dataclass(frozen=True)
class _Plot:
    """One plot of the SVG: its box, its axes and the traces in it."""

    x: _Axis
    y: _Axis
    theme: Theme
    bargap: float

    @property
    def box(self) -> _Box:
        return _Box(self.x.begin, self.y.end, self.x.end - self.x.begin, self.y.begin - self.y.end)

    def drawn(self, traces: Traces) -> str:
        box = self.box
        inside, above = [], []
        slots = _svg_bar_slots([each for each in traces if each["type"] == "bar"], self.bargap)
        for trace in sorted(traces, key=lambda each: _LAYERS[_svg_trace_type(each)]):
            if trace["type"] == "image":
                inside.append(self._image(trace))
            elif trace["type"] == "bar":
                shapes, texts = self._bars(trace, *slots[id(trace)])
                inside.append(shapes)
                above.append(texts)
            else:
                inside.append(self._line(trace))
                points = self._points(trace)
                (inside if trace.get("cliponaxis", True) else above).append(points)
                above.append(self._texts(trace))
        view = f"{box.left:.1f} {box.top:.1f} {box.width:.1f} {box.height:.1f}"
        x, y, width, height = view.split()
        return (
            f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{view}">'
            f"{self._grid()}{''.join(inside)}</svg>"
            f"{_svg_x_axis(self.x, box, self.theme)}{_svg_y_axis(self.y, box, self.theme)}{''.join(above)}"
        )

    def _grid(self) -> str:
        box, path = self.box, ""
        if self.x.settings.get("showgrid", True):
            path += "".join(f"M{pixel:.1f} {box.top:.1f}V{box.bottom:.1f}" for pixel in self.x.ticks()[0])
        if self.y.settings.get("showgrid", True):
            path += "".join(f"M{box.left:.1f} {pixel:.1f}H{box.right:.1f}" for pixel in self.y.ticks()[0])
        return f'<path d="{path}" stroke="{self.theme.grid}"/>' if path else ""

    def _image(self, trace: Mapping[str, Any]) -> str:
        wide, high = struct.unpack(">II", b64decode(trace["source"].partition(",")[2][:44])[16:24])
        x0, y0, dx, dy = (float(trace[name]) for name in ("x0", "y0", "dx", "dy"))
        xs = sorted(self.x.at([x0 - dx / 2, x0 + (wide - 0.5) * dx]).tolist())
        ys = sorted(self.y.at([y0 - dy / 2, y0 + (high - 0.5) * dy]).tolist())
        smooth = "auto" if trace.get("zsmooth") else "pixelated"
        return (
            f'<image x="{xs[0]:.2f}" y="{ys[0]:.2f}" width="{xs[1] - xs[0]:.2f}" height="{ys[1] - ys[0]:.2f}" '
            f'preserveAspectRatio="none" style="image-rendering:{smooth}" href="{trace["source"]}"/>'
        )

    def _line(self, trace: Mapping[str, Any]) -> str:
        """The line of a trace and the area that it fills, as SVG."""
        x, y = self.x.at(trace["x"]), self.y.at(trace["y"])
        line, fill = trace.get("line", {}), trace.get("fill", "none")
        if fill not in {"none", "toself", "tozeroy"}:
            raise NotImplementedError(f"the fill {fill!r}")
        stroke = ""
        if "lines" in trace.get("mode", "lines") and line.get("width", 2):
            stroke = f' stroke="{line["color"]}" stroke-width="{line.get("width", 2):g}"{_svg_dashes(line)}'
        area = trace["fillcolor"] if fill != "none" else "none"
        if not stroke and area == "none":
            return ""
        parts = _svg_line_parts(x, y)
        if line.get("shape", "linear") == "hv":  # level up to the next point
            parts = [(np.repeat(across, 2)[1:], np.repeat(up, 2)[:-1]) for across, up in parts]
        paths = [_svg_path_commands(*part) for part in parts]
        if not paths:
            return ""
        if fill == "tozeroy":
            zero = float(self.y.at([0])[0])
            areas = (
                f"{path}V{zero:.1f}H{left[0]:.1f}Z" for path, (left, _) in zip(paths, parts, strict=True)
            )
            below = f'<path d="{"".join(areas)}" fill="{area}"/>'
            return below + (f'<path d="{"".join(paths)}" fill="none"{stroke}/>' if stroke else "")
        return f'<path d="{"".join(paths)}" fill="{area}"{stroke}/>'

    def _points(self, trace: Mapping[str, Any]) -> str:
        if "markers" not in trace.get("mode", "lines"):
            return ""
        x, y, marker = self.x.at(trace["x"]).tolist(), self.y.at(trace["y"]).tolist(), trace["marker"]
        return "".join(
            _svg_marker(across, up, symbol)
            for across, up, symbol in zip(x, y, _svg_marker_symbols(marker, len(x)), strict=True)
            if math.isfinite(across) and math.isfinite(up) and symbol.size
        )

    def _texts(self, trace: Mapping[str, Any]) -> str:
        if "text" not in trace.get("mode", "lines").replace("none", ""):
            return ""
        x, y, font = self.x.at(trace["x"]).tolist(), self.y.at(trace["y"]).tolist(), trace["textfont"]
        place = trace.get("textposition", "middle center")
        given = (trace["text"], place, font.get("size", _TEXT), font["color"], font.get("shadow"))
        shown = zip(x, y, *(_svg_value_per_point(each, len(x)) for each in given), strict=True)
        return "".join(
            _svg_text((a, b), text, position, _Font(size, colour, self.theme.paper if halo else ""))
            for a, b, text, position, size, colour, halo in shown
            if text and math.isfinite(a) and math.isfinite(b)
        )

    def _bars(self, trace: Mapping[str, Any], offset: float, width: float) -> tuple[str, str]:
        """The bars of a trace, and their texts, as SVG."""
        flat = trace.get("orientation") == "h"
        across, along = (self.y, self.x) if flat else (self.x, self.y)
        places, sizes = (trace["y"], trace["x"]) if flat else (trace["x"], trace["y"])
        count = len(places)
        places = [across.names.index(each) if isinstance(each, str) else each for each in places]
        base, wide = (
            np.array(_svg_value_per_point(trace.get(name, usual), count), np.float64)
            for name, usual in (("base", 0), ("width", width))
        )
        shift = trace.get("offset", offset + (width - wide) / 2)
        begin = np.array(places, np.float64) + np.array(shift, np.float64)
        near, far = across.at(begin), across.at(begin + wide)
        low, high = along.at(base), along.at(base + np.array(sizes, np.float64))
        sides, ends = np.sort([near, far], axis=0).T, np.sort([low, high], axis=0).T
        shapes, texts = [], []
        fills = _svg_value_per_point(trace["marker"]["color"], count)
        words = _svg_value_per_point(trace.get("text", ""), count)
        for number, pixels in enumerate(np.hstack([ends, sides] if flat else [sides, ends]).tolist()):
            if not all(map(math.isfinite, pixels)):
                continue
            left, right, top, bottom = pixels
            bar = _Box(left, top, right - left, bottom - top)
            shapes.append(_svg_rectangle(bar, fills[number], trace["marker"].get("line", {})))
            if words[number]:
                texts.append(self._bar_text(trace, number, words[number], bar))
        return "".join(shapes), "".join(texts)

    def _bar_text(self, trace: Mapping[str, Any], number: int, text: str, bar: _Box) -> str:
        place, flat = trace["textposition"], trace.get("orientation") == "h"
        font = trace.get("insidetextfont", trace.get("textfont", {}))
        colours = font.get("color", self.theme.text)
        colour = colours if isinstance(colours, str) else colours[number]
        size, middle = font.get("size", _TEXT), bar.top + bar.height / 2
        centre, outside = bar.left + bar.width / 2, _Font(size, self.theme.text)
        if place == "inside":
            return _svg_text((centre, middle), text, "middle center", _Font(size, colour))
        if place != "outside":
            raise NotImplementedError(f"the place {place!r} of a bar's text")
        if flat:
            return _svg_text((bar.right, middle), text, "middle right", outside)
        return _svg_text((centre, bar.top), text, "top center", outside)


_LAYERS: Final = {"image": 0, "bar": 1, "scatter": 2}


def _svg_trace_type(trace: Mapping[str, Any]) -> str:
    kind: str = trace["type"]
    if kind not in _LAYERS:
        raise NotImplementedError(f"a trace of type {kind!r}")
    return kind


def _svg_bar_slots(traces: Traces, gap: float) -> dict[int, tuple[float, float]]:
    """Of each trace of bars, where its bars begin beside their position, and how wide they are, in units of the axis.

    Bars without an offset share the room of their position.
    """
    shared = [id(each) for each in traces if "offset" not in each]
    names = {
        name
        for each in traces
        for name in _svg_axis_names(each, "y" if each.get("orientation") == "h" else "x")
    }
    if any(isinstance(name, str) for name in names):  # one bar a name
        shared = shared[:1]
    width = (1 - gap) / max(len(shared), 1)
    return {
        id(each): (width * (shared.index(id(each)) if id(each) in shared else 0) - (1 - gap) / 2, width)
        for each in traces
    }


def _svg_rectangle(box: _Box, fill: str, rim: Mapping[str, Any]) -> str:
    stroke = f' stroke="{rim["color"]}" stroke-width="{rim["width"]:g}"' if rim.get("width") else ""
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{fill}"{stroke}/>'
    )


def _svg_value_per_point(value: Any, count: int) -> list[Any]:
    """One value a point: what is given once is that of all."""
    if isinstance(value, np.ndarray | list | tuple):
        return list(value.tolist() if isinstance(value, np.ndarray) else value)
    return [value] * count


# ------------------------------------------------------------------------------
# Lines.


def _svg_line_parts(x: Floats, y: Floats) -> list[tuple[Floats, Floats]]:
    """The unbroken parts of a line; a point that is not a number ends one."""
    known = np.isfinite(x) & np.isfinite(y)
    ends = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(np.int8)))
    return [(x[first:last], y[first:last]) for first, last in zip(ends[::2], ends[1::2], strict=True)]


def _svg_path_commands(x: Floats, y: Floats) -> str:
    """The commands of a line through these points; level and upright parts, the most by far, are short."""
    x, y = np.round(x, 1), np.round(y, 1)
    moved = np.concatenate(([True], (np.diff(x) != 0) | (np.diff(y) != 0)))
    x, y = x[moved], y[moved]
    keep = np.ones(len(x), bool)
    keep[1:-1] = ~((y[1:-1] == y[:-2]) & (y[1:-1] == y[2:]) & ((x[1:-1] >= x[:-2]) == (x[2:] >= x[1:-1])))
    x, y = x[keep], y[keep]
    found = [f"M{x[0]:.1f} {y[0]:.1f}"]
    for a, b, level, upright in zip(
        x[1:].tolist(), y[1:].tolist(), (np.diff(y) == 0).tolist(), (np.diff(x) == 0).tolist(), strict=True
    ):
        found.append(f"H{a:.1f}" if level else f"V{b:.1f}" if upright else f"L{a:.1f} {b:.1f}")
    return "".join(found)


_DASHES: Final = {"dash": "9 9", "dot": "3 3", "dashdot": "9 3 3 3", "longdash": "12 5"}


def _svg_dashes(line: Mapping[str, Any]) -> str:
    dash: str = line.get("dash", "solid")
    if dash == "solid":
        return ""
    return f' stroke-dasharray="{_DASHES.get(dash) or dash.replace("px", "").replace(",", " ")}"'


# ------------------------------------------------------------------------------
# Markers and texts.


def _svg_marker_corners(*radii: float, count: int) -> list[tuple[float, float]]:
    """Points around the middle, the first on top, at these distances in turn."""
    turns = [(radii[number % len(radii)], 2 * math.pi * number / count) for number in range(count)]
    return [(radius * math.sin(turn), -radius * math.cos(turn)) for radius, turn in turns]


_SHAPES: Final = {
    "circle": _svg_marker_corners(1, count=24),
    "diamond": _svg_marker_corners(1.3, count=4),
    "triangle-up": [(0, -1.15), (1.15, 0.6), (-1.15, 0.6)],
    "triangle-down": [(0, 1.15), (1.15, -0.6), (-1.15, -0.6)],
    "star": _svg_marker_corners(1.4, 0.55, count=10),
    "x": [(a * x + b * y, a * y - b * x)  # a corner, turned four times
          for a, b in ((1, 0), (0, -1), (-1, 0), (0, 1)) for x, y in ((0, -0.45), (0.55, -1), (1, -0.55))],
}  # fmt: skip
"""Markers by plotly's names, for a diameter of 2."""


class _Symbol(NamedTuple):
    """A marker in the SVG: its name, its diameter in pixels, its colour, and the colour and width of its line."""

    name: str
    size: float
    colour: str
    rim: Mapping[str, Any]


def _svg_marker_symbols(marker: Mapping[str, Any], count: int) -> list[_Symbol]:
    known = {"symbol": "circle", "size": 6, "color": None}
    columns = (_svg_value_per_point(marker.get(name, usual), count) for name, usual in known.items())
    rim = marker.get("line", {})
    return [_Symbol(name, size, colour, rim) for name, size, colour in zip(*columns, strict=False)]


def _svg_marker(x: float, y: float, symbol: _Symbol) -> str:
    colour, rim, radius = symbol.colour, symbol.rim, symbol.size / 2
    name = symbol.name.removesuffix("-open")
    if name not in _SHAPES:
        raise NotImplementedError(f"the marker {symbol.name!r}")
    paint = f'fill="{colour}"'
    if name != symbol.name:
        paint = f'fill="none" stroke="{colour}" stroke-width="{rim.get("width", 1):g}"'
    elif rim.get("width"):
        paint += f' stroke="{rim.get("color", colour)}" stroke-width="{rim["width"]:g}"'
    corners = "L".join(f"{x + a * radius:.1f} {y + b * radius:.1f}" for a, b in _SHAPES[name])
    return f'<path d="M{corners}Z" {paint}/>'


_ANCHORS: Final = {"left": "end", "center": "middle", "right": "start"}


class _Font(NamedTuple):
    """Pixels and colours of a text in the SVG; `halo` is that of the lines around its letters, "" for none."""

    size: float
    colour: str
    halo: str = ""


def _svg_text(at: tuple[float, float], text: str, position: str, font: _Font) -> str:
    """A text beside a point, as plotly places it: `top left` is above and to the left of the point."""
    up, aside = position.split()
    x, size = at[0] + {"left": -4, "center": 0, "right": 4}[aside], font.size
    lines = text.count("<br>")
    first = {"top": -lines * _LINE - 0.4, "middle": _DESCENT - lines * _LINE / 2, "bottom": 1.1}[up]
    around = f' stroke="{font.halo}" stroke-width="3" paint-order="stroke"' if font.halo else ""
    return (
        f'<text x="{x:.1f}" y="{at[1] + first * size:.1f}" text-anchor="{_ANCHORS[aside]}" font-size="{size:g}" '
        f'fill="{font.colour}"{around}>{_svg_text_spans(text, x, size)}</text>'
    )


_MARKUP: Final = re.compile(r"<(/?)(b|i|span|br)(?: style='([^']*)')?>")
_DECLARED: Final = re.compile(r"(color|font-size):\s*(#?\w+)")


def _svg_text_spans(text: str, x: float, size: float) -> str:
    """A text with plotly's markup as the inside of a `text` element; anything else in it is text."""
    found, end, is_open = [], 0, 0
    for mark in _MARKUP.finditer(text):
        found.append(_svg_escape(text[end : mark.start()]))
        end = mark.end()
        closes, name, style = mark.groups()
        if name == "br":
            found.append(f'{"</tspan>" * is_open}<tspan x="{x:.1f}" dy="{_LINE * size:.1f}">')
            is_open = 1
        elif closes:
            found.append("</tspan>" * min(is_open, 1))
            is_open = max(is_open - 1, 0)
        else:
            known = {"b": "font-weight:bold", "i": "font-style:italic", "span": ""}[name]
            declared = [
                f"{'fill' if key == 'color' else key}:{value}"
                for key, value in _DECLARED.findall(style or "")
            ]
            found.append(f'<tspan style="{";".join(filter(None, [known, *declared]))}">')
            is_open += 1
    return "".join(found) + _svg_escape(text[end:]) + "</tspan>" * is_open


def _svg_escape(text: str) -> str:
    return escape(unescape(text)).replace("  ", " \u00a0")


# ------------------------------------------------------------------------------
# The axes' lines, ticks and titles; the title of a plot; its legend.


def _svg_x_axis(axis: _Axis, box: _Box, theme: Theme) -> str:
    settings, (places, texts) = axis.settings, axis.ticks()
    found = [_svg_axis_line(axis, theme, f"M{box.left:.1f} {box.bottom:.1f}H{box.right:.1f}")]
    size, ticks = settings["tickfont"]["size"], settings["ticks"] == "outside"
    angle = -settings.get("tickangle", 0)
    if ticks and settings.get("showticklabels", True):
        marks = "".join(f"M{pixel:.1f} {box.bottom:.1f}v4" for pixel in places)
        found.append(f'<path d="{marks}" stroke="{theme.muted}"/>')
    if settings.get("showticklabels", True):
        for pixel, text in zip(places, texts, strict=True):
            y = box.bottom + 6 + 0.8 * size
            if angle:
                found.append(
                    f'<text transform="translate({pixel + 3:.1f},{y:.1f}) rotate({-angle:g})" text-anchor="end" '
                    f'font-size="{size}">{_svg_text_spans(text, 0, size)}</text>'
                )
            else:
                found.append(
                    f'<text x="{pixel:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}">'
                    f"{_svg_text_spans(text, pixel, size)}</text>"
                )
    if title := settings["title"].get("text", ""):
        y = box.bottom + (56 if angle else 36)
        found.append(
            f'<text x="{box.left + box.width / 2:.1f}" y="{y:.1f}" text-anchor="middle">{_svg_escape(title)}</text>'
        )
    return "".join(found)


def _svg_y_axis(axis: _Axis, box: _Box, theme: Theme) -> str:
    settings, (places, texts) = axis.settings, axis.ticks()
    found = [_svg_axis_line(axis, theme, f"M{box.left:.1f} {box.top:.1f}V{box.bottom:.1f}")]
    size, ticks = settings["tickfont"]["size"], settings["ticks"] == "outside"
    aside = 7 if ticks else settings.get("ticklabelstandoff", 4)
    if ticks and settings.get("showticklabels", True):
        marks = "".join(f"M{box.left:.1f} {pixel:.1f}h-4" for pixel in places)
        found.append(f'<path d="{marks}" stroke="{theme.muted}"/>')
    if settings.get("showticklabels", True):
        found += [
            _svg_text((box.left - aside + 4, pixel), text, "middle left", _Font(size, theme.text))
            for pixel, text in zip(places, texts, strict=True)
        ]
    if title := settings["title"].get("text", ""):
        middle = box.top + box.height / 2
        found.append(
            f'<text transform="translate(16,{middle:.1f}) rotate(-90)" text-anchor="middle">{_svg_escape(title)}</text>'
        )
    return "".join(found)


def _svg_axis_line(axis: _Axis, theme: Theme, path: str) -> str:
    return f'<path d="{path}" stroke="{theme.muted}"/>' if axis.settings.get("showline", True) else ""


def _svg_title(note: Mapping[str, Any], layout: Mapping[str, Any], plots: _Box) -> str:
    """The title of a plot with its definition as a hint."""
    x, y = (layout[f"{note[ref][0]}axis{note[ref].split()[0][1:]}"]["domain"] for ref in ("xref", "yref"))
    left = plots.left + (x[0] + note["x"] * (x[1] - x[0])) * plots.width
    up = plots.bottom - (y[0] + note["y"] * (y[1] - y[0])) * plots.height - note["yshift"]
    size, hint = note["font"]["size"], _svg_escape(note["hovertext"].replace("<br>", "\n"))
    hint = f"<title>{hint}</title>" if hint else ""
    return (
        f'<text x="{left:.1f}" y="{up - 0.4 * size:.1f}" font-size="{size}">'
        f"{hint}{_svg_text_spans(note['text'], left, size)}</text>"
    )


def _svg_legend(settings: Mapping[str, Any], traces: Traces, plots: _Box) -> str:
    """One line: the symbol and the name of each trace that has one."""
    font = _Font(settings["font"]["size"], settings["font"]["color"])
    x, y = plots.left + settings["x"] * plots.width + 5, plots.bottom - settings["y"] * plots.height - 9
    found = []
    for trace in sorted(traces, key=lambda each: each.get("legendrank", 1000)):
        name = trace.get("name")
        if trace["visible"] is True and trace.get("showlegend", True) and name:
            found.append(_svg_legend_symbol(trace, x, y))
            found.append(_svg_text((x + _SYMBOL + 1, y), name, "middle right", font))
            x += _SYMBOL + 15 + text_width(name, font.size)
    return "".join(found)


def _svg_legend_symbol(trace: Mapping[str, Any], x: float, y: float) -> str:
    line, marker, found = trace.get("line", {}), trace.get("marker", {}), ""
    middle = x + _SYMBOL / 2
    if trace["type"] == "bar":
        return _svg_rectangle(_Box(middle - 6, y - 6, 12, 12), marker["color"], marker.get("line", {}))
    if trace.get("fill", "none") != "none":
        place = f'x="{x:.1f}" y="{y:.1f}" width="{_SYMBOL - 2}" height="6"'
        found += f'<rect {place} fill="{trace["fillcolor"]}"/>'
    if "lines" in trace.get("mode", "lines") and line.get("width", 2):
        width = min(line.get("width", 2), 10)
        stroke = f'stroke="{line["color"]}" stroke-width="{width:g}"{_svg_dashes(line)}'
        found += f'<path d="M{x:.1f} {y:.1f}h{_SYMBOL - 2}" {stroke}/>'
    if "markers" in trace.get("mode", "lines"):
        symbols = _svg_marker_symbols(marker, 1)[:1]
        found += "".join(_svg_marker(middle, y, each) for each in symbols if each.size)
    return found
