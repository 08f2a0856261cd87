"""Pieces of rows as rectangles: one trace however many there are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.boxes import Boxes, box_outlines, box_trace
from bfcviz.figures.rows import Pieces, Rows
from bfcviz.figures.theme import Paint

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
    """Filled rectangles as one trace; `border` is the width of their lines in pixels."""
    return box_trace(name, boxes_of(pieces, divisor), paint, border)


def outline(name: str, pieces: Pieces, divisor: int, colour: str, width: float) -> dict[str, Any]:
    """Empty rectangles as one trace, their lines `width` pixels wide."""
    return box_outlines(name, boxes_of(pieces, divisor), colour, width)
