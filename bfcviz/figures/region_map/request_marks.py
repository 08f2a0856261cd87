"""Marks of a request on the region map: the free chunks that would take it, or the nearest miss and what blocks it.

::

    [ free | in use ║ free ║ in use ]      would take it: filled and outlined; a star on the best fit
    [ ┌╌ free ╌ x in use x ╌ free ╌┐ ]     nearest miss: a dashed frame; a cross on each chunk that is in the way
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.figures.region_map.highlights import SPAN
from bfcviz.figures.region_map.rectangles import boxes_of
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.boxes import box_outlines, box_trace
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import Paint
from bfcviz.model.explain.fit import Fit
from bfcviz.model.explain.text.fit import chunk_name, fit_sentence

MOST_TAKERS: Final = 300
"""Chunks that would take the request and are outlined, the best fits; more of them cannot be told apart."""

MOST_BLOCKERS: Final = 60
"""Chunks in the way that get a cross, the largest."""

_LONGEST: Final = 200  # characters of the sentence


def request_marks(visible: VisibleChunks, answer: Fit | None, labels: Labels) -> list[dict[str, Any]]:
    """Three traces: chunks that would take it, the nearest miss, and markers; empty without a request."""
    takers, miss, blockers = _NONE, _NONE, _NONE
    if answer is not None:
        takers = answer.takers[:MOST_TAKERS]
        if answer.miss is not None and not answer.grows:
            miss = np.array([(answer.miss.address, answer.miss.size)], SPAN)
            blockers = answer.blockers[:MOST_BLOCKERS]
    left = len(answer.takers) - len(takers) if answer is not None else 0
    crosses = _crosses(visible, blockers, answer, labels)
    return [
        _takers(visible, takers, f" ({left:,} more)" if left else ""),
        _miss(visible, miss),
        _star(visible, takers[:1]) if len(takers) else crosses,
    ]


def fit_caption(answer: Fit, labels: Labels) -> str:
    """The answer as one line."""
    return harmless(fit_sentence(answer, labels), _LONGEST)


_NONE: Final = np.empty(0, SPAN)


def _takers(visible: VisibleChunks, spans: NDArray[np.void], more: str) -> dict[str, Any]:
    paint = Paint(translucent(visible.theme.fit, 0.4), visible.theme.fit)
    boxes = boxes_of(visible.cut(spans["address"], spans["size"]), visible.divisor)
    return box_trace("", boxes, paint, 3) | _in_legend(spans, f"would take it{more}")


def _star(visible: VisibleChunks, spans: NDArray[np.void]) -> dict[str, Any]:
    pieces = visible.cut(spans["address"], spans["size"])
    pieces = pieces.only(np.arange(len(pieces)) == 0)  # a chunk that continues in the next row has one star
    text = f"<b>best fit</b>: the heap would take {_place(spans[0])}" if len(spans) else ""
    theme = visible.theme
    points = _points(visible, pieces, ("star", 14, theme.fit, theme.text), [text] * len(pieces))
    return points | {"name": "", "showlegend": False}


def _miss(visible: VisibleChunks, spans: NDArray[np.void]) -> dict[str, Any]:
    boxes = boxes_of(visible.cut(spans["address"], spans["size"]), visible.divisor)
    trace = box_outlines("", boxes, visible.theme.fit, 3) | _in_legend(spans, "nearest miss")
    trace["line"] |= {"dash": "5px,3px"}
    return trace


def _crosses(
    visible: VisibleChunks, chunks: NDArray[np.void], answer: Fit | None, labels: Labels
) -> dict[str, Any]:
    pieces, theme = visible.cut(chunks["address"], chunks["size"]), visible.theme
    texts = [_in_the_way(chunks[at], labels) for at in pieces.source.tolist()]
    if answer is not None and texts:
        texts = [f"{text}<br>{fit_caption(answer, labels)}" for text in texts]
    colour = theme.oom if answer is not None and answer.failed else theme.text
    points = _points(visible, pieces, ("x", 10, colour, theme.paper), texts)
    return points | _in_legend(chunks, "in the way")


def _in_legend(spans: NDArray[np.void], name: str) -> dict[str, Any]:
    """A name only where something is marked: a dashboard keeps room in the legend for every name."""
    return {"name": name if len(spans) else "", "showlegend": len(spans) > 0}


def _in_the_way(chunk: np.void, labels: Labels) -> str:
    return f"<b>in the way</b>: {harmless(chunk_name(chunk, labels))}<br>{_place(chunk)}"


def _place(chunk: np.void) -> str:
    return f"{exact_bytes(int(chunk['size']))} at {int(chunk['address']):#x}"


def _points(
    visible: VisibleChunks, pieces: Pieces, symbol: tuple[str, int, str, str], texts: Sequence[str]
) -> dict[str, Any]:
    """A marker in the middle of each piece, or of its part on screen."""
    shape, size, colour, rim = symbol
    left = np.maximum(pieces.left, visible.part.left)
    right = np.minimum(pieces.right, visible.part.right)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": (left + right) / 2 / visible.divisor,
        "y": pieces.row + 0.5,
        "marker": {"symbol": shape, "size": size, "color": colour, "line": {"width": 1, "color": rim}},
        "hovertext": texts,
        "hoverinfo": "text",
    }
