"""Rectangles for pieces of rows: one trace, however many there are.

Plotly makes an SVG path for each unbroken line, and thousands of paths take it a tenth of a second. So the filled
rectangles of a row are one line, which connects them along the row's lower edge, under the region's frame::

    +--+  +-----+
    |  |  |     |
    *  +--+     +   >
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.rows import Pieces, Rows
from bfcviz.figures.style.boxes import Boxes, box_outlines
from bfcviz.figures.style.theme import Paint

TOP, BOTTOM = 0.08, 0.92
"""The edges of a box, as parts of a row's height: they leave a gap between rows."""


def pieces_of(rows: Rows, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
    """`rows.pieces`, which also accepts no ranges at all."""
    return rows.pieces(address, size) if len(address) else no_pieces()


def no_pieces() -> Pieces:
    """Empty pieces."""
    return Pieces(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), np.empty(0))


def boxes_of(pieces: Pieces, divisor: int) -> Boxes:
    """The rectangles of pieces, in axis units."""
    row = pieces.row.astype(np.float64)
    return Boxes(pieces.left / divisor, pieces.right / divisor, row + TOP, row + BOTTOM)


def rectangles(name: str, pieces: Pieces, divisor: int, paint: Paint, border: float) -> dict[str, Any]:
    """A trace of filled rectangles.

    Args:
        name: the name in the legend.
        pieces: ordered by row, then from left to right.
        divisor: bytes per unit of the x axis.
        paint: the colours of areas and lines.
        border: the width of the lines in pixels; 0: none.
    """
    x, y = _lines(pieces, divisor)
    return {
        "type": "scatter",
        "mode": "lines" if border else "none",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": paint.line, "width": border, "simplify": False},
        "fill": "toself",
        "fillcolor": paint.fill,
        "hoverinfo": "skip",
    }


def _lines(pieces: Pieces, divisor: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Four corners per piece, NaN after each row but the last; one NaN if there are no pieces.

    (Plotly drops a trace without points from the legend.)
    """
    if not len(pieces):
        return np.full(1, np.nan), np.full(1, np.nan)
    top, bottom = pieces.row + TOP, pieces.row + BOTTOM
    x = np.column_stack([pieces.left, pieces.left, pieces.right, pieces.right]).ravel() / divisor
    y = np.column_stack([bottom, top, top, bottom]).ravel()
    breaks = 4 * (np.flatnonzero(np.diff(pieces.row)) + 1)
    return np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan)


def outline(name: str, pieces: Pieces, divisor: int, colour: str, width: float) -> dict[str, Any]:
    """A trace of unfilled rectangles, their lines `width` pixels wide."""
    return box_outlines(name, boxes_of(pieces, divisor), colour, width)
