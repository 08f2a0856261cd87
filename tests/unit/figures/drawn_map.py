"""Region maps at a step, and what is drawn in them: rectangles, markers and hover texts."""

import re

import numpy as np

from bfcviz.figures.colouring import colouring
from bfcviz.figures.map_image import LiveMap
from bfcviz.figures.theme import LIGHT
from bfcviz.model import Model

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def at_step(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


def live_map_at(trace, step, name="state"):
    return LiveMap(at_step(trace, step), colouring(trace, 0, name, LIGHT), LIGHT)


def named(figure, name):
    (trace,) = [trace for trace in figure.data if trace.name == name]
    return trace


def of_mode(figure, mode):
    return [trace for trace in figure.data if trace.type == "scatter" and trace.mode == mode]


def hover_points(figure):
    """The unseen points."""
    (points,) = (each for each in of_mode(figure, "none") if each.hovertemplate)
    return points


def hover_texts(figure):
    """The hover points as (x, y, text), labels filled in as the page does."""
    points = hover_points(figure)
    texts = [re.sub(r"%{meta\[(\d+)]}", lambda m: points.meta[int(m[1])], t) for t in points.hovertemplate]
    return list(zip(points.x.tolist(), points.y.tolist(), texts, strict=True))


def unit(figure):
    return UNITS[figure.layout.xaxis.title.text.partition("(")[2].partition(")")[0]]


def area(figure, name):
    """Bytes that the rectangles of a state cover."""
    left, right = ends(named(figure, name)).T
    return round(float((right - left).sum()) * unit(figure))


def rectangles(figure, name):
    """Left and right of each, (rectangles, 2)."""
    return ends(named(figure, name))


def ends(trace):
    """Left and right of each rectangle of a trace: outlines are closed, filled ones a line a row."""
    x = np.asarray(trace["x"])
    if len(x) == 1:
        return np.zeros((0, 2))
    return x[~np.isnan(x)].reshape(-1, 4 if trace["fill"] == "toself" else 5)[:, [0, 2]]
