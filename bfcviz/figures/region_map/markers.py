"""What must be found on the region map however narrow it is: what was touched or selected, and lone chunks."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.highlights import SPAN
from bfcviz.figures.region_map.rectangles import outline
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.colouring import FREE
from bfcviz.figures.style.view_options import Selected

ALONE: Final = 0.012
"""Of the screen's width: free space on both sides of a lone chunk."""

_NARROW = 0.03  # of the screen's width: what is touched or selected gets a marker as well
_LOST = 0.002  # likewise: what nobody would find
_MOST_LONE = 60


def lone_pieces(visible: VisibleChunks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the pieces in use are that are too narrow to see and lie alone."""
    used = visible.pieces.only(visible.classes[visible.pieces.source] != FREE)
    if not len(used):
        return np.empty(0), np.empty(0)
    apart = ALONE * visible.screen
    gap = np.where(np.diff(used.row) == 0, used.left[1:] - used.right[:-1], np.inf)
    alone = (np.append(np.inf, gap) > apart) & (np.append(gap, np.inf) > apart)
    lost = alone & (used.right - used.left < _LOST * visible.screen)
    return (used.left + used.right)[lost] / 2 / visible.divisor, used.row[lost].astype(np.float64)


def lone(visible: VisibleChunks, x: NDArray[Any], row: NDArray[Any]) -> dict[str, Any]:
    """Marks chunks in use that would not be seen; none where they are many, for then they are seen."""
    shown = 0 < len(x) <= _MOST_LONE
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "in use, but too narrow to see",
        "x": x if shown else np.full(1, np.nan),
        "y": row + 0.98 if shown else np.full(1, np.nan),
        "marker": {"symbol": "triangle-up", "size": 8, "color": visible.theme.in_use.line},
        "showlegend": shown,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def selected(chunks: NDArray[np.void], chosen: Selected | None) -> NDArray[np.void]:
    """The span of the chosen chunk, if it is there now; `SPAN` records."""
    if chosen is None or not len(chunks):
        return np.empty(0, SPAN)
    at = int(np.searchsorted(chunks["address"], np.uint64(chosen.address)))
    if at == len(chunks) or chunks["address"][at] != chosen.address:
        return np.empty(0, SPAN)
    born = int(chunks["born"][at]) if chunks["in_use"][at] else None
    spans = [(chosen.address, int(chunks["size"][at]))] if born == chosen.born else []
    return np.array(spans, SPAN)


def outlines(
    visible: VisibleChunks, touched: NDArray[np.void], chosen: NDArray[np.void]
) -> list[dict[str, Any]]:
    """What this step touched, its markers, and the chunk that was clicked."""
    theme, divisor = visible.theme, visible.divisor
    pieces = visible.cut(touched["address"], touched["size"])
    clicked = visible.cut(chosen["address"], chosen["size"])
    tips = [_narrow(visible, pieces), _narrow(visible, clicked)]
    colours = [theme.highlight] * len(tips[0]) + [theme.text] * len(tips[1])
    x = np.concatenate([tip.left + tip.right for tip in tips]) / 2 / divisor
    marker = {
        # A chunk of 256 bytes may be far narrower than a pixel: the marker finds it all the same.
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": np.concatenate([tip.row for tip in tips]) + 0.02,
        "marker": {"symbol": "triangle-down", "size": 11, "color": colours},
        "showlegend": False,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    chosen_trace = outline("selected", clicked, divisor, theme.text, 2.5)
    return [
        outline("touched by this step", pieces, divisor, theme.highlight, 2.5),
        marker,
        {**chosen_trace, "showlegend": len(clicked) > 0},
    ]


def _narrow(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    return pieces.only(pieces.right - pieces.left < _NARROW * visible.screen)
