"""Pieces of rows as rectangles: one trace however many there are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.rows import Pieces, Rows
from bfcviz.figures.theme import Paint

_TOP, _BOTTOM = 0.08, 0.92  # of a row's height: between rows there is a gap


def pieces_of(rows: Rows, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
    """`rows.pieces`, also where there is nothing to cut."""
    return rows.pieces(address, size) if len(address) else no_pieces()


def no_pieces() -> Pieces:
    """Nothing to draw."""
    return Pieces(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), np.empty(0))


def corners(pieces: Pieces, divisor: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Closed rectangles, NaN after each, as plotly's `toself` takes them; one NaN where there are none.

    (A trace without any point would drop out of the legend.)
    """
    if not len(pieces):
        return np.full(1, np.nan), np.full(1, np.nan)
    left, right = pieces.left / divisor, pieces.right / divisor
    top, bottom = pieces.row + _TOP, pieces.row + _BOTTOM
    gap = np.full(len(pieces), np.nan)
    x = np.column_stack([left, right, right, left, left, gap]).ravel()
    y = np.column_stack([top, top, bottom, bottom, top, gap]).ravel()
    return x, y


def rectangles(name: str, pieces: Pieces, divisor: int, paint: Paint, border: float) -> dict[str, Any]:
    """Filled rectangles as one trace; `border` is the width of their lines in pixels."""
    x, y = corners(pieces, divisor)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": paint.fill,
        "line": {"color": paint.line, "width": border},
        "hoverinfo": "skip",
    }


def outline(name: str, pieces: Pieces, divisor: int, colour: str, width: float) -> dict[str, Any]:
    """Empty rectangles as one trace, their lines `width` pixels wide."""
    x, y = corners(pieces, divisor)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": colour, "width": width},
        "hoverinfo": "skip",
    }
