"""What the region map is made of: one function a trace, or a few that belong together."""

from typing import Any, Final

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.figures.region_map import hover
from bfcviz.figures.region_map.markers import ALONE, lone, lone_pieces
from bfcviz.figures.region_map.raster import raster
from bfcviz.figures.region_map.rectangles import no_pieces, outline, rectangles
from bfcviz.figures.region_map.rows import Pieces
from bfcviz.figures.region_map.visible_chunks import Drawing
from bfcviz.figures.style.colouring import FREE, MOST_CLASSES
from bfcviz.figures.style.png import data_uri
from bfcviz.figures.style.theme import Paint, mixed

COLUMNS: Final = 1200
"""Most pixels across the image."""

_CELLS = 120_000  # many rows have fewer columns, so that no heap is slow to draw
_FEWEST_COLUMNS = 120

_MOST_FRAMES = 200  # rows; more frames than that would hide what they frame


def exact_traces(drawing: Drawing) -> list[dict[str, Any]]:
    """The image, left empty, and everything as rectangles."""
    found = lone_pieces(drawing)
    return [_no_image(), *_rectangles(drawing, drawing.pieces), _frame(drawing), lone(drawing, *found)]


def image_traces(drawing: Drawing) -> list[dict[str, Any]]:
    """The image, and no rectangles but their names in the legend."""
    part, divisor = drawing.part, drawing.divisor
    fills = [paint.fill for paint in drawing.colours.paints]
    columns = int(np.clip(_CELLS // len(part), _FEWEST_COLUMNS, COLUMNS))
    grid = raster.Grid(drawing.rows, part, columns)
    held = raster.shares(drawing.chunks, drawing.classes, fills, grid)
    picture = raster.paint(held, drawing.theme, waste=drawing.by_state)
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
    marks = lone(drawing, (part.left / divisor) + (column + 0.5) * dx, part.first + row)
    return [image, *_rectangles(drawing, no_pieces()), _frame(drawing), marks]


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


def _rectangles(drawing: Drawing, pieces: Pieces) -> list[dict[str, Any]]:
    """Free chunks, each class of chunks in use, and waste."""
    theme, colours, divisor = drawing.theme, drawing.colours, drawing.divisor
    classes = drawing.classes[pieces.source]
    # Lines go along the rows' lower edges as well (see `rectangles`), where only frames hide them.
    border = 0.7 if len(drawing.part) <= _MOST_FRAMES else 0.0
    traces = [rectangles("free", pieces.only(classes == FREE), divisor, theme.free, border)]
    for number in range(MOST_CLASSES):
        if number < len(colours.names):
            mine = pieces.only(classes == number)
            paint = colours.paints[number] if drawing.by_state else _soft(colours.paints[number])
            trace = rectangles(colours.names[number], mine, divisor, paint, border)
            traces.append({**trace, "showlegend": True, "legend": colours.legend_line(number)})
        else:
            trace = rectangles("", no_pieces(), divisor, theme.other, border)
            traces.append({**trace, "showlegend": False, "legend": 0})
    # No border: it would show a few wasted bytes as a whole pixel.
    waste = rectangles("waste (size - requested)", _waste(drawing, pieces), divisor, theme.waste, 0.0)
    return [*traces, {**waste, "showlegend": drawing.by_state}]


def _soft(paint: Paint) -> Paint:
    """Borders near the fill: narrow chunks side by side are little else, and must look as in the legend."""
    return Paint(paint.fill, mixed(paint.fill, paint.line, 0.4))


def _waste(drawing: Drawing, pieces: Pieces) -> Pieces:
    if not drawing.by_state or not len(pieces):
        return no_pieces()
    chunks = drawing.chunks[drawing.chunks["in_use"]]
    spilled = chunks[chunks["requested"] < chunks["size"]]
    return drawing.cut(spilled["address"] + spilled["requested"], spilled["size"] - spilled["requested"])


def _frame(drawing: Drawing) -> dict[str, Any]:
    few = 0 < len(drawing.part) <= _MOST_FRAMES
    pieces = drawing.rows.of_regions().within(drawing.part) if few else no_pieces()
    return outline("region", pieces, drawing.divisor, drawing.theme.pool.line, 1)


def hover_points(drawing: Drawing, labels: Labels, step: int, *, exact: bool) -> dict[str, Any]:
    """Unseen points that tell what is there."""
    chunks, part = drawing.chunks, drawing.part
    if exact:
        points = hover.points_in_pieces(chunks, drawing.pieces, part, labels, step)
    else:
        points = hover.points_on_grid(chunks, drawing.rows, part, labels, step)
    return {
        "type": "scatter",
        "mode": "none",
        **points,
        "x": points["x"] / drawing.divisor,
        "showlegend": False,
    }


def note(drawing: Drawing) -> dict[str, Any]:
    """Says so where there is nothing."""
    empty = int(len(drawing.rows) == 0)
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.full(empty, 0.5),
        "y": np.full(empty, 0.5),
        "text": ["no region at this step"] * empty,
        "textfont": {"color": drawing.theme.muted, "size": 13},
        "showlegend": False,
        "hoverinfo": "skip",
    }
