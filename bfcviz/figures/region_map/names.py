"""Names and sizes in the boxes of the region map, and the gaps between the boxes."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.figures.region_map.rectangles import BOTTOM, TOP
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.colour_math import contrasting
from bfcviz.figures.style.colouring import FREE
from bfcviz.figures.style.text import fitted, harmless
from bfcviz.figures.style.theme import Paint
from bfcviz.units import format_bytes

_LETTER: Final = 6.2  # pixels of a letter, on average
_LINE: Final = 13.0  # pixels of a line
_EDGE: Final = 6.0  # pixels left and right of a name
_FEWEST: Final = 6  # letters: a narrower box has no text
_MOST: Final = 150  # boxes with a text, the widest
_GAP: Final = 4.0  # pixels: a narrower box has no gap beside it, which would hide much of it
_MOST_GAPS: Final = 1500


def names_in_boxes(visible: VisibleChunks, pieces: Pieces, labels: Labels) -> dict[str, Any]:
    """A text trace: `label, size` in the boxes that have room for it; each chunk once, in its widest piece.

    The size is the allocated one. Where waste has a colour of its own, the text is in the requested part: across both
    colours it could not be read.

    Args:
        visible: the chunks; the faded ones have no text.
        pieces: their boxes; none: there are no texts.
        labels: the labels of the trace.
    """
    pixels, pieces = visible.pixels, _without_waste(visible, pieces)
    pieces = pieces.only(~visible.faded[pieces.source])
    left, right = _clipped(visible, pieces)
    wide = (right - left) * (pixels[0] / visible.screen) - 2 * _EDGE
    high = pixels[1] / max(len(visible.part), 1) * (BOTTOM - TOP)
    chosen = _with_room(pieces, wide) if high >= _LINE - 2 else np.zeros(0, np.intp)
    chunks, classes = visible.chunks, visible.classes
    texts, colours = [], []
    for piece in chosen.tolist():
        chunk = chunks[pieces.source[piece]]
        number = int(classes[pieces.source[piece]])
        name = "free" if number == FREE else labels.name(int(chunk["label"]))
        texts.append(_text(name, int(chunk["size"]), int(wide[piece] / _LETTER), two=high >= 2 * _LINE))
        paint: Paint = visible.theme.free if number == FREE else visible.colours.paints[number]
        colours.append(contrasting(paint.fill))
    return {
        "type": "scatter",
        "mode": "text",
        "x": (left + right)[chosen] / 2 / visible.divisor,
        "y": pieces.row[chosen] + 0.5,
        "text": texts,
        "textfont": {"size": 11, "color": colours or visible.theme.text},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _without_waste(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    """The boxes of free chunks, and of the requested parts of chunks in use (of all of it where that is unknown)."""
    if not visible.colours.shows_waste or not len(pieces):
        return pieces
    chunks = visible.chunks
    known = chunks["in_use"] & (chunks["requested"] > 0)
    return visible.cut(chunks["address"], np.where(known, chunks["requested"], chunks["size"]))


def _clipped(visible: VisibleChunks, pieces: Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.maximum(pieces.left, visible.part.left), np.minimum(pieces.right, visible.part.right)


def _with_room(pieces: Pieces, wide: NDArray[np.float64]) -> NDArray[np.intp]:
    """The widest piece of each chunk that has room for a text."""
    order = np.lexsort([-wide, pieces.source])
    first = np.append(True, np.diff(pieces.source[order]) > 0) if len(order) else np.zeros(0, bool)
    found = order[first]
    found = found[wide[found] >= _FEWEST * _LETTER]
    widest: NDArray[np.intp] = found[np.argsort(-wide[found], kind="stable")[:_MOST]]
    return widest


def _text(name: str, size: int, room: int, *, two: bool) -> str:
    """Name and size in `room` letters, on one line or `two`; the size alone if there is no room for a name."""
    size_text = format_bytes(size).replace(".0 ", " ")
    left = room if two else room - len(size_text) - 2
    short = fitted(name, left)
    if not short:
        return size_text if len(size_text) <= room else ""
    return harmless(short) + ("<br>" if two else ", ") + size_text


def gaps(visible: VisibleChunks, pieces: Pieces) -> dict[str, Any]:
    """A trace of lines in the paper's colour between neighbouring boxes that are wide enough to spare them.

    It is one line a row, along the row's lower edge; see `rectangles`.
    """
    x, y = _gap_lines(visible, pieces, _GAP * visible.screen / visible.pixels[0])
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": visible.theme.paper, "width": 1.5, "simplify": False},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _gap_lines(
    visible: VisibleChunks, pieces: Pieces, least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    width = pieces.right - pieces.left
    between = np.flatnonzero((np.diff(pieces.row) == 0) & (np.minimum(width[1:], width[:-1]) >= least))
    if not 0 < len(between) <= _MOST_GAPS:
        return np.full(1, np.nan), np.full(1, np.nan)
    row, edge = pieces.row[between], pieces.right[between] / visible.divisor
    bottom = np.full(len(row), BOTTOM)
    x = np.repeat(edge, 3)
    y = (np.column_stack([bottom, np.full(len(row), TOP), bottom]) + row[:, None]).ravel()
    breaks = 3 * (np.flatnonzero(np.diff(row)) + 1)
    return np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan)
