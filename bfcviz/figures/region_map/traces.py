"""The plotly traces of the region map: one function per trace or group of traces."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.figures.region_map import hover
from bfcviz.figures.region_map.markers import ALONE, lone, lone_pieces
from bfcviz.figures.region_map.names import gaps, names_in_boxes
from bfcviz.figures.region_map.raster import raster
from bfcviz.figures.region_map.rectangles import no_pieces, outline, rectangles
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import VisibleChunks
from bfcviz.figures.style.colour_math import mixed, translucent
from bfcviz.figures.style.colouring import FREE, MOST_CLASSES
from bfcviz.figures.style.fading import FADE
from bfcviz.figures.style.png import data_uri
from bfcviz.figures.style.theme import Paint

COLUMNS: Final = 1200
"""Pixels across the image, at most."""

_CELLS = 120_000  # with many rows the image has fewer columns, which bounds its cost
_FEWEST_COLUMNS = 120

_MOST_FRAMES = 200  # rows; more frames would hide the chunks


def exact_traces(visible: VisibleChunks, labels: Labels) -> list[dict[str, Any]]:
    """An empty image, and all chunks as rectangles with their names."""
    found = lone_pieces(visible)
    return [
        _no_image(),
        *_rectangles(visible, visible.pieces),
        gaps(visible, visible.pieces),
        _fade(visible, visible.pieces),
        _frame(visible),
        lone(visible, *found),
        names_in_boxes(visible, visible.pieces, labels),
    ]


def image_traces(visible: VisibleChunks, labels: Labels) -> list[dict[str, Any]]:
    """The image, and empty rectangle traces for the legend."""
    part, divisor = visible.part, visible.divisor
    visible, fills = _with_faded_classes(visible)
    columns = int(np.clip(_CELLS // len(part), _FEWEST_COLUMNS, COLUMNS))
    grid = raster.RasterGrid(visible.rows, part, columns)
    held = raster.cell_bytes(visible.chunks, visible.classes, fills, grid)
    picture = raster.paint(held, visible.theme, waste=visible.colours.shows_waste)
    dx, dy = (part.right - part.left) / divisor / columns, len(part) / len(picture)
    image = {
        **_no_image(),
        "visible": True,
        "source": picture.data_uri(),
        "dx": dx,
        "dy": dy,
        "x0": part.left / divisor + dx / 2,  # the centre of the first pixel
        "y0": part.first + dy / 2,
    }
    row, column = raster.lone(held, round(ALONE * columns))
    marks = lone(visible, (part.left / divisor) + (column + 0.5) * dx, part.first + row)
    return [
        image,
        *_rectangles(visible, no_pieces()),
        gaps(visible, no_pieces()),
        _fade(visible, no_pieces()),
        _frame(visible),
        marks,
        names_in_boxes(visible, no_pieces(), labels),
    ]


def _with_faded_classes(visible: VisibleChunks) -> tuple[VisibleChunks, list[str]]:
    """The chunks, where the faded ones have classes of their own and no waste; and the colours of all classes."""
    fills = [paint.fill for paint in visible.colours.paints]
    faded = visible.faded & (visible.classes != FREE)
    if not faded.any():
        return visible, fills
    chunks = visible.chunks.copy()
    chunks["requested"][faded] = chunks["size"][faded]
    classes = np.where(faded, visible.classes + len(fills), visible.classes).astype(np.uint8)
    pale = [mixed(fill, visible.theme.paper, FADE) for fill in fills]
    return replace(visible, chunks=chunks, classes=classes), fills + pale


def _no_image() -> dict[str, Any]:
    return {
        "type": "image",
        "hoverinfo": "skip",
        "zsmooth": False,
        "visible": False,
        "source": _NOTHING,
        "dx": 1.0,
        "dy": 1.0,
        "x0": 0.5,
        "y0": 0.5,
    }


_NOTHING = data_uri(np.zeros((1, 1, 4), np.uint8))


def _rectangles(visible: VisibleChunks, pieces: Pieces) -> list[dict[str, Any]]:
    """Traces of free chunks, of each class of chunks in use, and of waste."""
    theme, colours, divisor = visible.theme, visible.colours, visible.divisor
    classes = visible.classes[pieces.source]
    # Lines run along the rows' lower edges too (see `rectangles`), where only frames hide them.
    border = 0.7 if len(visible.part) <= _MOST_FRAMES else 0.0
    traces = [rectangles("free", pieces.only(classes == FREE), divisor, _edgeless(theme.free), border)]
    for number in range(MOST_CLASSES):
        named = number < len(colours.names)
        mine = pieces.only(classes == number) if named else no_pieces()
        paint = _edgeless(colours.paints[number] if named else theme.other)
        trace = rectangles("", mine, divisor, paint, border)
        traces.append({**trace, **colours.legend(number, shown=visible.legend)})
    # No border: a border would show a few wasted bytes as a whole pixel.
    waste = rectangles("waste (size - requested)", _waste(visible, pieces), divisor, theme.waste, 0.0)
    return [*traces, {**waste, "showlegend": visible.colours.shows_waste}]


def _edgeless(paint: Paint) -> Paint:
    """Borders in the colour of the fill: narrow chunks are mostly border, and must look as in the legend."""
    return Paint(paint.fill, paint.fill)


def _waste(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    if not visible.colours.shows_waste or not len(pieces):
        return no_pieces()
    chunks = visible.chunks[visible.chunks["in_use"]]
    spilled = chunks[chunks["requested"] < chunks["size"]]
    return visible.cut(spilled["address"] + spilled["requested"], spilled["size"] - spilled["requested"])


def _fade(visible: VisibleChunks, pieces: Pieces) -> dict[str, Any]:
    """The paper's colour over the faded boxes."""
    pieces = pieces.only(visible.faded[pieces.source])
    trace = rectangles("", pieces, visible.divisor, visible.theme.pool, 0.0)
    return {**trace, "fillcolor": translucent(visible.theme.paper, FADE), "showlegend": False}


def _frame(visible: VisibleChunks) -> dict[str, Any]:
    few = 0 < len(visible.part) <= _MOST_FRAMES
    pieces = visible.rows.of_regions().within(visible.part) if few else no_pieces()
    return outline("region", pieces, visible.divisor, visible.theme.pool.line, 1)


def hover_points(visible: VisibleChunks, labels: Labels, step: int, *, exact: bool) -> dict[str, Any]:
    """A trace of invisible points with hover texts."""
    chunks, part = visible.chunks, visible.part
    if exact:
        points = hover.points_in_pieces(chunks, visible.pieces, part, labels, step)
    else:
        points = hover.points_on_grid(chunks, visible.rows, part, labels, step)
    return {
        "type": "scatter",
        "mode": "none",
        **points,
        "x": points["x"] / visible.divisor,
        "showlegend": False,
    }


def note(visible: VisibleChunks) -> dict[str, Any]:
    """A text that says if there is no region."""
    empty = int(len(visible.rows) == 0)
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.full(empty, 0.5),
        "y": np.full(empty, 0.5),
        "text": ["no region at this step"] * empty,
        "textfont": {"color": visible.theme.muted, "size": 13},
        "showlegend": False,
        "hoverinfo": "skip",
    }
