"""What the region map is made of: one function a trace, or a few that belong together."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.figures import hover, raster
from bfcviz.figures.colouring import FREE, MOST_CLASSES, Colouring
from bfcviz.figures.look import Selected
from bfcviz.figures.png import data_uri
from bfcviz.figures.rectangles import no_pieces, outline, pieces_of, rectangles
from bfcviz.figures.rows import Part, Pieces, Rows
from bfcviz.figures.theme import Paint, Theme, mixed
from bfcviz.figures.touched import SPAN

COLUMNS: Final = 1200
"""Most pixels across the image."""

_CELLS = 120_000  # many rows have fewer columns, so that no heap is slow to draw
_FEWEST_COLUMNS = 120

_NARROW = 0.03  # of the screen's width: what is touched or selected gets a marker as well
_LOST = 0.002  # likewise: what nobody would find
_ALONE = 0.012  # likewise: free space around it
_MOST_LONE = 60
_MOST_FRAMES = 200  # rows; more frames than that would hide what they frame
_LEGEND_LINE = 160  # characters, on a page 1,200 pixels wide


@dataclass(frozen=True)
class Drawing:
    """What is on screen.

    Attributes:
        chunks: those of which something is seen, by address.
        rows: where they lie.
        part: what is seen of the rows.
        divisor: bytes that 1 on the x axis stands for.
        theme: the colours.
        colours: what chunks in use are coloured by.
        classes: of `chunks`.
    """

    chunks: NDArray[np.void]
    rows: Rows
    part: Part
    divisor: int
    theme: Theme
    colours: Colouring
    classes: NDArray[np.uint8]

    @cached_property
    def pieces(self) -> Pieces:
        """The chunks, cut at the ends of rows."""
        return self.cut(self.chunks["address"], self.chunks["size"])

    @property
    def screen(self) -> float:
        """Bytes across the screen."""
        return max(self.part.right - self.part.left, 1.0)

    @property
    def by_state(self) -> bool:
        """Whether all chunks in use look the same, and their waste is told from them."""
        return self.colours.name == "state"

    def cut(self, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
        """Pieces of these ranges, those that are seen."""
        return pieces_of(self.rows, address, size).within(self.part)


def exact_traces(drawing: Drawing) -> list[dict[str, Any]]:
    """The image, left empty, and everything as rectangles."""
    lone = _lone_pieces(drawing)
    return [_no_image(), *_rectangles(drawing, drawing.pieces), _frame(drawing), _lone(drawing, *lone)]


def image_traces(drawing: Drawing) -> list[dict[str, Any]]:
    """The image, and no rectangles but their names in the legend."""
    part, divisor = drawing.part, drawing.divisor
    fills = [paint.fill for paint in drawing.colours.paints]
    columns = int(np.clip(_CELLS // len(part), _FEWEST_COLUMNS, COLUMNS))
    grid = raster.Grid(drawing.rows, part, columns)
    held = raster.shares(drawing.chunks, drawing.classes, fills, grid)
    pixels = raster.paint(held, drawing.theme, waste=drawing.by_state)
    dx, dy = (part.right - part.left) / divisor / columns, len(part) / pixels.shape[0]
    image = {
        **_no_image(),
        "visible": True,
        "source": data_uri(pixels),
        "dx": dx,
        "dy": dy,
        "x0": part.left / divisor + dx / 2,  # the centre of the first pixel
        "y0": part.first + dy / 2,
    }
    row, column = raster.lone(held, round(_ALONE * columns))
    lone = _lone(drawing, (part.left / divisor) + (column + 0.5) * dx, part.first + row)
    return [image, *_rectangles(drawing, no_pieces()), _frame(drawing), lone]


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
    lines = _legend_lines(colours)
    traces = [rectangles("free", pieces.only(classes == FREE), divisor, theme.free, 0.7)]
    for number in range(MOST_CLASSES):
        if number < len(colours.names):
            mine = pieces.only(classes == number)
            paint = colours.paints[number] if drawing.by_state else _soft(colours.paints[number])
            trace = rectangles(colours.names[number], mine, divisor, paint, 0.7)
            traces.append({**trace, "showlegend": True, "legend": lines[number]})
        else:
            trace = rectangles("", no_pieces(), divisor, theme.other, 0.7)
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


def _legend_lines(colours: Colouring) -> list[int]:
    """The line of the legend each class is named in: beside `free`, below it, or on two lines below."""
    if colours.name == "state":
        return [0]
    long = sum(len(name) + 8 for name in colours.names) > _LEGEND_LINE
    return [1 + (long and number >= MOST_CLASSES // 2) for number in range(len(colours.names))]


def _frame(drawing: Drawing) -> dict[str, Any]:
    few = 0 < len(drawing.part) <= _MOST_FRAMES
    pieces = drawing.rows.of_regions().within(drawing.part) if few else no_pieces()
    return outline("region", pieces, drawing.divisor, drawing.theme.pool.line, 1)


# -- chunks that must be found ---------------------------------------------------------------------------------


def _lone_pieces(drawing: Drawing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the pieces in use are that are too narrow to see and lie alone."""
    used = drawing.pieces.only(drawing.classes[drawing.pieces.source] != FREE)
    if not len(used):
        return np.empty(0), np.empty(0)
    apart = _ALONE * drawing.screen
    gap = np.where(np.diff(used.row) == 0, used.left[1:] - used.right[:-1], np.inf)
    alone = (np.append(np.inf, gap) > apart) & (np.append(gap, np.inf) > apart)
    lost = alone & (used.right - used.left < _LOST * drawing.screen)
    return (used.left + used.right)[lost] / 2 / drawing.divisor, used.row[lost].astype(np.float64)


def _lone(drawing: Drawing, x: NDArray[Any], row: NDArray[Any]) -> dict[str, Any]:
    """Marks chunks in use that would not be seen; none where they are many, for then they are seen."""
    shown = 0 < len(x) <= _MOST_LONE
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "in use, but too narrow to see",
        "x": x if shown else np.full(1, np.nan),
        "y": row + 0.98 if shown else np.full(1, np.nan),
        "marker": {"symbol": "triangle-up", "size": 8, "color": drawing.theme.in_use.line},
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


def outlines(drawing: Drawing, touched: NDArray[np.void], chosen: NDArray[np.void]) -> list[dict[str, Any]]:
    """What this step touched, its markers, and the chunk that was clicked."""
    theme, divisor = drawing.theme, drawing.divisor
    pieces = drawing.cut(touched["address"], touched["size"])
    clicked = drawing.cut(chosen["address"], chosen["size"])
    tips = [_narrow(drawing, pieces), _narrow(drawing, clicked)]
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


def _narrow(drawing: Drawing, pieces: Pieces) -> Pieces:
    return pieces.only(pieces.right - pieces.left < _NARROW * drawing.screen)


# -- words -----------------------------------------------------------------------------------------------------


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
