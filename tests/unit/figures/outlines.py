"""Outlines of the bands of a picture, and a trace of three bands."""

import numpy as np
from unit.figures.synthetic import MiB, PlainHeap


def three_steps():
    """a, b and c on one another; a goes first, then c."""
    heap = PlainHeap(64 * MiB)
    a, _, c = heap.allocate(3 * MiB, "a"), heap.allocate(2 * MiB, "b"), heap.allocate(MiB, "c")
    heap.free(a)
    heap.free(c)
    return heap.trace()


def polygons(panel):
    """Every band's outline, (points, 2), in axis units."""
    found = []
    for trace in panel.traces:
        if trace.get("fill") == "toself" and trace["mode"] == "lines":
            points = np.column_stack([trace["x"], trace["y"]])
            ends = np.flatnonzero(np.isnan(points[:, 0]))
            found += [part[~np.isnan(part[:, 0])] for part in np.split(points, ends)]
    return [part for part in found if len(part)]


def area(outline):
    x, y = outline[:, 0], outline[:, 1]
    return abs(float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))) / 2
