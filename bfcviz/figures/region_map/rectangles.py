"""Pieces of rows as rectangles: one trace however many there are.

Plotly makes a path of the page for each unbroken line, and thousands of them take it a tenth of a second. So filled
rectangles are one line a row, which goes from each to the next along the row's lower edge, where the region's frame
lies over it::

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

_TOP, _BOTTOM = 0.08, 0.92  # of a row's height: between rows there is a gap


def pieces_of(rows: Rows, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
    """`rows.pieces`, also where there is nothing to cut."""
    return rows.pieces(address, size) if len(address) else no_pieces()


def no_pieces() -> Pieces:
    """Nothing to draw."""
    return Pieces(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), np.empty(0))


def boxes_of(pieces: Pieces, divisor: int) -> Boxes:
    """Pieces as rectangles, in axis units."""
    row = pieces.row.astype(np.float64)
    return Boxes(pieces.left / divisor, pieces.right / divisor, row + _TOP, row + _BOTTOM)


def rectangles(name: str, pieces: Pieces, divisor: int, paint: Paint, border: float) -> dict[str, Any]:
    """Filled rectangles as one trace; `border` is the width of their lines in pixels.

    Args:
        name: in the legend.
        pieces: by row, and from left to right.
        divisor: bytes that 1 on the x axis stands for.
        paint: of rectangles and lines.
        border: 0 for none.
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
    """Four corners a piece, NaN after each row but the last; one NaN where there is none.

    (A trace without any point would drop out of the legend.)
    """
    if not len(pieces):
        return np.full(1, np.nan), np.full(1, np.nan)
    top, bottom = pieces.row + _TOP, pieces.row + _BOTTOM
    x = np.column_stack([pieces.left, pieces.left, pieces.right, pieces.right]).ravel() / divisor
    y = np.column_stack([bottom, top, top, bottom]).ravel()
    breaks = 4 * (np.flatnonzero(np.diff(pieces.row)) + 1)
    return np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan)


def outline(name: str, pieces: Pieces, divisor: int, colour: str, width: float) -> dict[str, Any]:
    """Empty rectangles as one trace, their lines `width` pixels wide."""
    return box_outlines(name, boxes_of(pieces, divisor), colour, width)
