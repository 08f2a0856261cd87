"""Markers on the region map: touched and selected chunks, and lone chunks too narrow to see."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.rectangles import outline
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.colouring import FREE

ALONE: Final = 0.012
"""The least free space on both sides of a lone chunk, as a share of the screen's width."""

_NARROW = 0.03  # of the screen's width: a narrower touched or selected chunk also gets a marker
_INVISIBLE = 0.002  # the same: a narrower lone chunk is invisible
_MOST_LONE = 60


def lone_pieces(visible: VisibleChunks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The pieces in use that are too narrow to see and have free space around: x in axis units, and row."""
    used = visible.pieces.only(visible.classes[visible.pieces.source] != FREE)
    if not len(used):
        return np.empty(0), np.empty(0)
    apart = ALONE * visible.screen
    gap = np.where(np.diff(used.row) == 0, used.left[1:] - used.right[:-1], np.inf)
    alone = (np.append(np.inf, gap) > apart) & (np.append(gap, np.inf) > apart)
    invisible = alone & (used.right - used.left < _INVISIBLE * visible.screen)
    return (used.left + used.right)[invisible] / 2 / visible.divisor, used.row[invisible].astype(np.float64)


def lone(visible: VisibleChunks, x: NDArray[Any], row: NDArray[Any]) -> dict[str, Any]:
    """A trace that marks lone chunks in use; empty if there are many, because many are visible anyway."""
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


def outlines(
    visible: VisibleChunks, touched: NDArray[np.void], chosen: NDArray[np.void], found: NDArray[np.void]
) -> list[dict[str, Any]]:
    """Traces: outlines of what a search found and of what this step touched, markers of narrow chunks, the selection.

    Args:
        visible: what is on screen.
        touched: SPAN records of the chunks that this step touched.
        chosen: the same for the selected chunk.
        found: records of the chunks that match the search, with address and size.
    """
    theme, divisor = visible.theme, visible.divisor
    matches = visible.cut(found["address"], found["size"])
    pieces = visible.cut(touched["address"], touched["size"])
    clicked = visible.cut(chosen["address"], chosen["size"])
    colours = (theme.search, theme.highlight, theme.selection)
    tips = [_narrow(visible, each) for each in (matches, pieces, clicked)]
    x = np.concatenate([tip.left + tip.right for tip in tips]) / 2 / divisor
    marker = {
        # A chunk of 256 bytes may be far narrower than a pixel: the marker shows where it is.
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": np.concatenate([tip.row for tip in tips]) + 0.02,
        "marker": {
            "symbol": "triangle-down",
            "size": 11,
            "color": [colour for colour, tip in zip(colours, tips, strict=True) for _ in range(len(tip))],
        },
        "showlegend": False,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    found_trace = outline("matches of the search", matches, divisor, theme.search, 2)
    chosen_trace = outline("selected", clicked, divisor, theme.selection, 2.5)
    return [
        {**found_trace, "showlegend": len(matches) > 0},
        outline("touched by this step", pieces, divisor, theme.highlight, 2.5),
        marker,
        {**chosen_trace, "showlegend": len(clicked) > 0},
    ]


def _narrow(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    return pieces.only(pieces.right - pieces.left < _NARROW * visible.screen)
