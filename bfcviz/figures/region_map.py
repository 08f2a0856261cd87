"""The region map: every region a row, every chunk in its place, coloured by what it is.

Up to `EXACT_CHUNKS` chunks are drawn as rectangles to scale, one trace a state; more of them as an image,
whose cost depends on its pixels.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Events
from bfcviz.figures import hover, raster
from bfcviz.figures.look import PLAIN, Look
from bfcviz.figures.panel import Panel, Picture, single
from bfcviz.figures.png import data_uri
from bfcviz.figures.rectangles import corners, no_pieces, pieces_of, rectangles
from bfcviz.figures.rows import Pieces, Rows, lay_out
from bfcviz.figures.table import chunk_table
from bfcviz.figures.text import axis_unit
from bfcviz.figures.theme import Theme
from bfcviz.figures.touched import touched
from bfcviz.model import Model

EXACT_CHUNKS: Final = 3000
"""Up to this many chunks are drawn as exact rectangles."""

COLUMNS: Final = 1600
"""Pixels across the image."""

_MOST_TICKS = 20
_NARROW = 0.03  # of a row's width: what is touched gets a marker as well


def region_map(model: Model, highlight: Events | None = None, look: Look = PLAIN) -> Picture:
    """The heap at the model's step.

    Args:
        model: the heap; it is not moved.
        highlight: events whose chunks are outlined, such as the one just applied.
        look: colours, and the part to draw.

    Returns:
        The figure; its table has one row a chunk.
    """
    panel = region_panel(model, highlight, look)
    lines = len(lay_out(model.regions()))
    height = int(np.clip(26 * lines, 200, 620))
    return single(panel, height, look.paints).with_table(chunk_table(model))


def region_panel(model: Model, highlight: Events | None, look: Look) -> Panel:
    """The map as a panel; its traces are always the same ones in the same order, some of them empty."""
    theme = look.paints
    chunks, regions = model.chunks(), model.regions()
    rows = lay_out(regions)
    divisor, unit = axis_unit(rows.width if len(rows) else 1)
    exact = len(chunks) <= EXACT_CHUNKS
    spans = touched(highlight, chunks, regions)
    drawn = rows.pieces(spans["address"], spans["size"]) if len(rows) else no_pieces()
    traces = [
        _image(chunks, rows, divisor, theme, visible=not exact and len(rows) > 0),
        *_states(chunks if exact else chunks[:0], rows, divisor, theme),
        _frame(rows, divisor, theme),
        *_outline(drawn, rows, divisor, theme),
        _hover(chunks, rows, divisor, model.trace.labels, exact=exact),
        _note(rows, theme),
    ]
    return Panel(
        name="region_map",
        title="Region map",
        caption="each row is a piece of a region, addresses rise left to right, then down; widths to scale",
        traces=traces,
        xaxis=_xaxis(rows, divisor, unit, exact=exact),
        yaxis=_yaxis(rows, divisor, unit),
        x_unit=divisor,
    )


def _states(chunks: NDArray[np.void], rows: Rows, divisor: int, theme: Theme) -> list[dict[str, Any]]:
    used = chunks[chunks["in_use"]]
    free = chunks[~chunks["in_use"]]
    spilled = used[used["requested"] < used["size"]]
    waste = pieces_of(rows, spilled["address"] + spilled["requested"], spilled["size"] - spilled["requested"])
    return [
        rectangles("free", pieces_of(rows, free["address"], free["size"]), divisor, theme.free, 0.7),
        rectangles("in use", pieces_of(rows, used["address"], used["size"]), divisor, theme.in_use, 0.7),
        # No border: it would show a few wasted bytes as a whole pixel.
        rectangles("waste (size - requested)", waste, divisor, theme.waste, 0.0),
    ]


def _image(
    chunks: NDArray[np.void], rows: Rows, divisor: int, theme: Theme, *, visible: bool
) -> dict[str, Any]:
    trace: dict[str, Any] = {"type": "image", "hoverinfo": "skip", "zsmooth": False, "visible": visible}
    if not visible:
        return {
            **trace,
            "source": data_uri(np.zeros((1, 1, 4), np.uint8)),
            "dx": 1.0,
            "dy": 1.0,
            "x0": 0.5,
            "y0": 0.5,
        }
    pixels = raster.paint(raster.shares(chunks, rows, COLUMNS), theme)
    dx, dy = rows.width / divisor / pixels.shape[1], len(rows) / pixels.shape[0]
    # x0 and y0 are the centre of the first pixel.
    return {**trace, "source": data_uri(pixels), "dx": dx, "dy": dy, "x0": dx / 2, "y0": dy / 2}


def _frame(rows: Rows, divisor: int, theme: Theme) -> dict[str, Any]:
    x, y = corners(rows.of_regions() if len(rows) else no_pieces(), divisor)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "region",
        "x": x,
        "y": y,
        "line": {"color": theme.pool.line, "width": 1},
        "hoverinfo": "skip",
    }


def _outline(pieces: Pieces, rows: Rows, divisor: int, theme: Theme) -> list[dict[str, Any]]:
    x, y = corners(pieces, divisor)
    narrow = pieces.right - pieces.left < _NARROW * rows.width
    tip = (pieces.left + pieces.right)[narrow] / 2 / divisor
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "touched by this step",
            "x": x,
            "y": y,
            "line": {"color": theme.highlight, "width": 2.5},
            "hoverinfo": "skip",
        },
        {
            # A chunk of 256 bytes may be far narrower than a pixel: the marker finds it all the same.
            "type": "scatter",
            "mode": "markers",
            "x": tip,
            "y": pieces.row[narrow] + 0.02,
            "marker": {"symbol": "triangle-down", "size": 11, "color": theme.highlight},
            "showlegend": False,
            "cliponaxis": False,
            "hoverinfo": "skip",
        },
    ]


def _hover(
    chunks: NDArray[np.void], rows: Rows, divisor: int, labels: Labels, *, exact: bool
) -> dict[str, Any]:
    points = hover.points_in_pieces if exact else hover.points_on_grid
    x, y, texts = points(chunks, rows, labels)
    return {
        "type": "scatter",
        "mode": "none",
        "x": x / divisor,
        "y": y,
        "hovertext": texts,
        "hoverinfo": "text",
        "showlegend": False,
    }


def _note(rows: Rows, theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.full(int(len(rows) == 0), 0.5),
        "y": np.full(int(len(rows) == 0), 0.5),
        "text": [] if len(rows) else ["no region at this step"],
        "textfont": {"color": theme.muted, "size": 13},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _xaxis(rows: Rows, divisor: int, unit: str, *, exact: bool) -> dict[str, Any]:
    width = rows.width / divisor if len(rows) else 1.0
    mixed = "" if exact else "; each pixel mixes the colours of the bytes it stands for"
    return {
        "title": {"text": f"offset within the row ({unit}){mixed}"},
        "range": [0.0, width],
        "dtick": width / 8,
        "tick0": 0,
        "showgrid": False,
        "zeroline": False,
        "showticklabels": len(rows) > 0,
    }


def _yaxis(rows: Rows, divisor: int, unit: str) -> dict[str, Any]:
    values, texts = _row_names(rows, divisor, unit)
    return {
        "range": [float(max(len(rows), 1)), -0.2],
        "tickvals": values,
        "ticktext": texts,
        "ticks": "",
        "ticklabelstandoff": 4,
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "scaleanchor": False,
        "title": {"text": "region, and offset of the row in it"},
    }


def _row_names(rows: Rows, divisor: int, unit: str) -> tuple[list[float], list[str]]:
    """Names of the rows: the region's where one begins, then the offset; thinned out where they are many."""
    every = max(1, -(-len(rows) // _MOST_TICKS))
    values, texts = [], []
    for row in range(0, len(rows), every):
        region = int(np.searchsorted(rows.first, row, side="right")) - 1
        offset = (row - int(rows.first[region])) * rows.width // divisor
        values.append(row + 0.5)
        texts.append(f"region {rows.slot[region]}" if offset == 0 else f"+{offset:,} {unit}")
    return values, texts
