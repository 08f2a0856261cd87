"""Labels in print: each is readable on what lies below it, and has its place to itself."""

import re
from functools import cache, partial
from html import unescape
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
import pytest
from shared import sample_trace
from unit.figures.synthetic import busy_trace
from unit.figures.test_theme import contrast

import bfcviz
from bfcviz.figures import FIGURES, draw
from bfcviz.figures.paper import COLUMN_MM, LETTER, LINE, PAGE_MM, paper

READABLE = 4.5  # WCAG AA


class Label(NamedTuple):
    """A text inside a plot; its middle and its size in pixels, and the colour below it, None where it has a pattern."""

    text: str
    colour: str
    below: str | None
    x: float
    y: float
    wide: float
    high: float

    def meets(self, other):
        across = abs(self.x - other.x) < (self.wide + other.wide) / 2
        return across and abs(self.y - other.y) < (self.high + other.high) / 2


def axes(figure, name):
    """Functions from the units of a plot's axes to pixels."""
    layout, margin = figure.layout, figure.layout.margin
    across, up = layout[f"xaxis{name[1:]}"], layout[f"yaxis{name[1:]}"]
    wide, high = layout.width - margin.l - margin.r, layout.height - margin.t - margin.b

    def pixels(value, axis, length):
        first, last = axis.range
        low, top = axis.domain
        return (low + (top - low) * (value - first) / (last - first)) * length

    return lambda x: pixels(x, across, wide), lambda y: high - pixels(y, up, high)


def edges(trace):
    """The edges of the fills of a trace, a row (ax, ay, bx, by) each: NaN ends a fill, which is then closed."""
    points = np.column_stack([np.asarray(trace.x, float), np.asarray(trace.y, float)])
    starts = [0, *(np.flatnonzero(np.isnan(points[:, 0])) + 1), len(points) + 1]
    parts = [points[first : stop - 1] for first, stop in pairwise(starts) if first < stop - 1]
    return np.concatenate([np.hstack([part, np.roll(part, -1, axis=0)]) for part in parts or [points]])


def inside(edges, x, y):
    """Whether a point is in the fill that these edges enclose: an odd number of them lie to the right."""
    ax, ay, bx, by = edges[(edges[:, 1] <= y) != (edges[:, 3] <= y)].T
    return np.count_nonzero(ax + (y - ay) / (by - ay) * (bx - ax) > x) % 2 == 1


def fills(figure):
    """The axis, edges and colour of each trace that is filled, the topmost last; no colour where it has a pattern."""
    return [
        (trace.xaxis, edges(trace), None if trace.fillpattern.shape else trace.fillcolor)
        for trace in figure.data
        if trace.type == "scatter" and trace.fill == "toself" and trace.visible is not False
    ]


def below(filled, note):
    """The colour of the topmost fill below a note; white where there is none."""
    if note.bgcolor:
        return note.bgcolor
    for axis, outline, colour in reversed(filled):
        if axis == note.xref and inside(outline, note.x, note.y):
            return colour
    return "#FFFFFF"


def size_of(text):
    lines = unescape(re.sub("</?b>|[\u2068\u2069]", "", text)).split("<br>")
    return LETTER * max(map(len, lines)), LINE * len(lines)


def labels(figure):
    """Those of the annotations, and those of bars."""
    filled, pixels_of = fills(figure), cache(partial(axes, figure))
    for note in figure.layout.annotations:
        if note.xref in {"x", "x2", "x3"}:
            to_x, to_y = pixels_of(note.xref)
            wide, high = size_of(note.text)
            x = to_x(note.x) + {"left": 0.5, "center": 0, "right": -0.5}[note.xanchor] * wide
            y = to_y(note.y) + {"top": 0.5, "middle": 0, "bottom": -0.5}[note.yanchor] * high
            place = (x + (note.xshift or 0), y - (note.yshift or 0), wide, high)
            middle = (note.xanchor, note.yanchor) == ("center", "middle")
            yield Label(
                note.text,
                note.font.color,
                below(filled, note) if middle else note.bgcolor or "#FFFFFF",
                *place,
            )
    for bars in figure.data:
        if bars.type == "bar" and bars.textposition == "inside":
            to_x, to_y = pixels_of(bars.xaxis)
            for text, start, long, y, colour in zip(
                bars.text, bars.base, bars.x, bars.y, bars.marker.color, strict=True
            ):
                if text:
                    wide, high = size_of(text)
                    assert wide <= to_x(start + long) - to_x(start)
                    middle = (to_x(start + long / 2), to_y(y))
                    yield Label(text, bars.insidetextfont.color, colour, *middle, wide, high)


def texts(figure):
    """The texts that are drawn as points of traces."""
    return [
        text
        for trace in figure.data
        if trace.type == "scatter" and "text" in (trace.mode or "") and trace.visible is not False
        for text in trace.text
    ]


@pytest.fixture(scope="module")
def conv():
    return sample_trace("conv")


@pytest.fixture(scope="module")
def oom():
    return sample_trace("oom_log")


def checked(figure):
    """The texts of the labels; each must be readable, and none may meet another."""
    found = list(labels(figure))
    assert texts(figure) == []
    for label in found:
        assert label.below is not None, f"{label.text!r} lies on a pattern"
        assert contrast(label.colour, label.below) >= READABLE, label
    assert [(a, b) for a, b in combinations(found, 2) if a.meets(b)] == []
    return [label.text for label in found]


def checked_at_each_width(figure):
    """The texts of the labels in a column and on a page."""
    return [checked(paper(figure, width)) for width in (COLUMN_MM, PAGE_MM)]


@pytest.mark.parametrize("name", FIGURES)
def test_labels_of_every_figure_are_readable(name):
    checked_at_each_width(draw(name, busy_trace(), 300))


@pytest.mark.parametrize("name", ["region_map", "holders"])
def test_labels_of_a_real_run_are_readable(name, conv):
    for found in checked_at_each_width(draw(name, conv, bfcviz.peak(conv), colour="holder")):
        assert len(found) >= 8, found


@pytest.mark.parametrize("name", ["region_map", "failure", "ladder"])
def test_labels_of_a_failure_are_readable(name, oom):
    for found in checked_at_each_width(draw(name, oom, len(oom))):
        assert any("742.2 KiB" in text or "106.0 KiB" in text for text in found), found


def test_a_size_is_whole_or_left_out(oom):
    found = checked(paper(draw("region_map", oom, len(oom)), COLUMN_MM))
    assert found
    assert not any(text[0].isdigit() and not text.endswith("iB") for text in found)


def test_a_narrow_fill_has_no_dark_edge(oom):
    """A thousand chunks of 256 B beside each other are as grey as the others."""
    figure = paper(draw("region_map", oom, len(oom), colour="state"))
    (used,) = (trace for trace in figure.data if trace.name == "in use")
    assert used.line.color == used.fillcolor


def test_a_figure_of_the_user_keeps_its_texts():
    made = paper(go.Figure(go.Scatter(x=[1, 2], y=[1, 2], mode="text", text=["a", "b"])))
    assert texts(made) == ["a", "b"]
