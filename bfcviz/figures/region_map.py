"""The region map: every region a row, every chunk at its address, coloured by its state or class.

Up to `EXACT_CHUNKS` pieces of chunks on screen are drawn as exact rectangles, one trace per class; more become an
image, whose cost depends on its pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.analysis.what_grew import growth_chunks_at
from bfcviz.analysis.would_fit import Fit, blocker_name, fit_of, fit_sentence, request_at
from bfcviz.events.label_table import NO_DETAILS, NO_LABEL, STACK_DETAILS, Labels
from bfcviz.events.origin import chunks_known, requested_bytes_known, thread_text, unknown_of_chunks
from bfcviz.events.schema import Events, Kind, bin_numbers, bin_of
from bfcviz.figures.address_time import without_unknown
from bfcviz.figures.colouring import COLOURINGS, FREE, MOST_CLASSES, Colouring, colouring, faded
from bfcviz.figures.map_image import (
    LiveMap,
    RasterGrid,
    cell_bytes,
    data_uri,
    lone_raster_cells,
    merged_raster_rows,
    raster_image,
)
from bfcviz.figures.map_rows import SPAN, CellBytes, Pieces, Rows, VisibleRows, no_pieces, rows_of, selected
from bfcviz.figures.panel import LINES, TEXTS, Boxes, Floats, Panel, box_outlines, box_trace
from bfcviz.figures.text import axis_unit, fitted, harmless, round_bytes
from bfcviz.figures.theme import Paint, Theme, contrasting, mixed, translucent
from bfcviz.figures.view import DashboardPlace, HeapData, View
from bfcviz.figures.view_options import FADE, PLAIN, Look, Selected
from bfcviz.model import Model
from bfcviz.model.filters import found_by, search_filter
from bfcviz.model.model import CHUNK
from bfcviz.stack_frames import telling_lines
from bfcviz.units import exact_bytes, format_bytes

# ------------------------------------------------------------------------------
# Rectangles for pieces of rows: one trace, however many there are.
#
# Plotly makes an SVG path for each unbroken line, and thousands of paths take it a tenth of a second. So the filled
# rectangles of a row are one line, which connects them along the row's lower edge, under the region's frame::
#
#     +--+  +-----+
#     |  |  |     |
#     *  +--+     +   >

TOP, BOTTOM = 0.08, 0.92
"""The edges of a box, as parts of a row's height: they leave a gap between rows."""


def boxes_of(pieces: Pieces, divisor: int) -> Boxes:
    """The rectangles of pieces on the region map, in axis units."""
    row = pieces.row.astype(np.float64)
    return Boxes(pieces.left / divisor, pieces.right / divisor, row + TOP, row + BOTTOM)


def region_map_rectangles(
    name: str, pieces: Pieces, visible: "VisibleChunks", paint: Paint, border: float
) -> dict[str, Any]:
    """A trace of filled rectangles for pieces ordered by row, then from left to right; the border is in pixels."""
    x, y = _piece_corner_lines(pieces, visible)
    return {
        "type": "scatter",
        "mode": "lines" if border else "none",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": paint.line, "width": border, "simplify": False},
        "fill": "toself",
        "fillcolor": paint.fill,
        "hoverinfo": "skip",
    }


def _piece_corner_lines(pieces: Pieces, visible: "VisibleChunks") -> tuple[Floats, Floats]:
    """Four corners per piece, NaN after each row but the last; one NaN if there are no pieces.

    (Plotly drops a trace without points from the legend.)
    """
    if not len(pieces):
        return np.full(1, np.nan), np.full(1, np.nan)
    top, bottom = pieces.row + TOP, pieces.row + BOTTOM
    x = np.column_stack([pieces.left, pieces.left, pieces.right, pieces.right]).ravel() / visible.divisor
    y = np.column_stack([bottom, top, top, bottom]).ravel()
    breaks = 4 * (np.flatnonzero(np.diff(pieces.row)) + 1)
    return np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan)


def region_map_outline(name: str, pieces: Pieces, divisor: int, colour: str, width: float) -> dict[str, Any]:
    """A trace of unfilled rectangles, their lines `width` pixels wide."""
    return box_outlines(name, boxes_of(pieces, divisor), colour, width)


# ------------------------------------------------------------------------------
# VisibleChunks: the chunks of a region map that are on screen, and their colours: the input of its traces.


@dataclass(frozen=True)
class VisibleChunks:
    """What the traces of a region map are drawn from: the chunks that are on screen, and their colours."""

    chunks: NDArray[np.void]  # CHUNK records of the chunks at least partly on screen, by address
    rows: Rows  # the layout of all regions
    part: VisibleRows  # the part of the rows on screen
    divisor: int  # bytes per unit of the x axis
    theme: Theme  # all other colours
    colours: Colouring  # the colouring of chunks in use
    classes: NDArray[np.uint8]  # the class of each chunk; see `Colouring.classes`
    faded: NDArray[np.bool_]  # which chunks are drawn faded
    found: NDArray[np.bool_]  # which chunks a search finds
    shows_waste: bool  # whether bytes that were not requested have their own colour
    legend: bool  # whether the classes are named in the legend
    pixels: tuple[int, int]  # width and height of the plot
    # addresses of the chunks with a marker of a request, which needs room beside a name
    marked: Sequence[int] = ()

    @cached_property
    def pieces(self) -> Pieces:
        """The chunks on the region map, split at the ends of rows."""
        return self.cut(self.chunks["address"], self.chunks["size"])

    @property
    def screen(self) -> float:
        """The width of the region map's screen in bytes."""
        return max(self.part.right - self.part.left, 1.0)

    @property
    def box_height(self) -> float:
        """The height of a box on the region map in pixels."""
        return self.pixels[1] / max(len(self.part), 1) * (BOTTOM - TOP)

    @property
    def rows_have_room(self) -> bool:
        """Whether rows of the region map are high enough for lines along their edges, over no lower row."""
        return self.box_height >= _GAP

    @property
    def lights_matches(self) -> bool:
        """Whether what a search finds has a colour of its own: rows are too low to outline all of it."""
        return not self.rows_have_room and bool((self.found & self.chunks["in_use"]).any())

    @property
    def rows_share_pixels(self) -> bool:
        """Whether rows of the region map are so low that most pixels show parts of several."""
        return len(self.chunks) > 0 and self.box_height < _LOW

    def cut(self, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
        """The pieces of these address ranges that are on the region map's screen."""
        return self.rows.pieces(address, size).within(self.part)


# ------------------------------------------------------------------------------
# Hover texts of the region map, for the chunks on screen.
#
# In plotly the polygons of one trace share one text. So the texts belong to a trace of invisible points: at least
# one in every piece of a chunk, more along a long piece and near its ends, so that the point nearest to the mouse
# belongs to the chunk under it; in a dashboard the nearest of the row under it, see `hover` in figure_widget.js. The
# text of each chunk and of each label is stored once, in the trace's `meta`; the `hovertemplate` of each point refers
# to it.

MOST_TEXTS: Final = 1000
"""Chunks with a full text, at most; if there are more, the narrowest get a short one."""

MOST_FRAMES: Final = 8  # frames of a stack in a text, the most telling first

_MOST_POINTS = 3000
_POINTS_ON_GRID = 800
_ROWS_ON_GRID = 50  # so that no place of a map 1,500 pixels wide is farther from a point than `hoverdistance`
_APART = 0.06  # of the screen's width: the greatest distance between points of a long piece
_CLOSEST = 0.015  # the same: the least distance
_SQUARE = 0.24  # the usual height of a map, as a part of its width
_INSIDE = 0.01  # of the screen's width: from the ends of a long piece


class HoverFacts(NamedTuple):
    """What the origin of a heap says of the numbers in the hover texts of its chunks."""

    details: Mapping[str, object] = NO_DETAILS  # may name the threads
    unknown: frozenset[str] = frozenset()  # see `unknown_of_chunks`

    @classmethod
    def of(cls, model: Model) -> "HoverFacts":
        """Those of the heap of a model."""
        details = model.trace.origin.details
        return cls(details, unknown_of_chunks(details, model.pool))


_ALL_KNOWN: Final = HoverFacts()


def points_in_pieces(
    chunks: NDArray[np.void],
    pieces: Pieces,
    part: VisibleRows,
    labels: Labels,
    known: HoverFacts = _ALL_KNOWN,
) -> dict[str, Any]:
    """Hover points on a region map of exact rectangles: at least one per piece.

    Returns:
        `x` in bytes from the row's left edge, `y` in rows, `hovertemplate` and `meta` of a plotly trace.
    """
    left, right = pieces.ends_in(part)
    screen = max(part.right - part.left, 1e-9)
    inner = np.maximum(right - left - 2 * _INSIDE * screen, 0.0)
    # No farther apart than rows are high: else the nearest point could be in the next row.
    rows = max(len(part), 1)
    apart = max(min(_SQUARE / rows, _APART), _CLOSEST, rows / _MOST_POINTS) * screen
    along = np.where(inner > 0, np.ceil(inner / apart) + 1, 1).astype(np.intp)
    piece = np.repeat(np.arange(len(pieces)), along)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(along) - along, along)
    first = np.where(along > 1, left + _INSIDE * screen, (left + right) / 2)
    x = first[piece] + nth * (inner / np.maximum(along - 1, 1))[piece]
    full = np.zeros(len(chunks), dtype=bool)
    full[pieces.source[np.argsort(left - right, kind="stable")[:MOST_TEXTS]]] = True
    count = max(1, min(5, 10 // rows))  # heights within a row: a tall one needs more than one
    at, level = _spread_hover_points(along[piece] == 1, (np.arange(count) + 0.5) / count)
    templates, meta = _chunk_hover_texts(chunks, full, labels, known)
    texts = [templates[i] for i in pieces.source[piece[at]].tolist()]
    return {"x": x[at], "y": pieces.row[piece[at]] + level, "hovertemplate": texts, "meta": meta}


def points_on_grid(
    chunks: NDArray[np.void],
    rows: Rows,
    part: VisibleRows,
    labels: Labels,
    known: HoverFacts = _ALL_KNOWN,
) -> dict[str, Any]:
    """Hover points on a region map as an image: an even grid, each with the text of the chunk at its address."""
    lines = min(len(part), _ROWS_ON_GRID)
    columns = max(_POINTS_ON_GRID // lines, 1)
    line = np.unique(np.linspace(part.first, part.stop, lines, endpoint=False).astype(np.intp))
    x = np.tile(part.left + (np.arange(columns) + 0.5) * ((part.right - part.left) / columns), len(line))
    row = np.repeat(line, columns)
    region = rows.region_of(row)
    offset = (row - rows.first[region]) * float(rows.width) + x
    inside = offset < rows.size[region]
    x, row, region, offset = x[inside], row[inside], region[inside], offset[inside]
    address = rows.address[region] + offset.astype(np.uint64)
    at = np.searchsorted(chunks["address"], address, side="right") - 1
    shown, back = np.unique(at, return_inverse=True)
    full = np.ones(len(shown), dtype=bool)
    templates, meta = _chunk_hover_texts(chunks[shown], full, labels, known)
    return {"x": x, "y": row + 0.5, "hovertemplate": [templates[i] for i in back.tolist()], "meta": meta}


def _spread_hover_points(narrow: NDArray[np.bool_], levels: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Indices of points and their heights (0..1): each at all heights; narrow ones at one if there are many."""
    every = np.arange(len(narrow))
    if len(every) * len(levels) <= _MOST_POINTS:
        return np.tile(every, len(levels)), np.repeat(levels, len(every))
    wide, thin = every[~narrow], every[narrow]
    return (
        np.concatenate([np.tile(wide, len(levels)), thin]),
        np.concatenate([np.repeat(levels, len(wide)), levels[thin % len(levels)]]),
    )


def _chunk_hover_texts(
    chunks: NDArray[np.void],
    full: NDArray[np.bool_],
    labels: Labels,
    known: HoverFacts,
) -> tuple[list[str], list[str]]:
    """The template of each chunk; and the texts they refer to: one per chunk, then the labels."""
    used, place = np.unique(chunks["label"], return_inverse=True)
    threads = {
        number: harmless(thread_text(known.details, number))
        for number in np.unique(chunks["thread"]).tolist()
    }
    values = {name: chunks[name].tolist() for name in _FIELDS}
    values["thread"] = [threads[number] for number in chunks["thread"].tolist()]
    columns = [[None] * len(chunks) if name in known.unknown else column for name, column in values.items()]
    meta = [
        _full_hover_text(row) if whole else _short_hover_text(row)
        for whole, row in zip(full.tolist(), zip(*columns, strict=True), strict=True)
    ]
    named = (full & chunks["in_use"]).tolist()
    templates = [
        f"%{{meta[{i}]}}<br>%{{meta[{len(meta) + label}]}}<extra></extra>"
        if name
        else f"%{{meta[{i}]}}<extra></extra>"
        for i, (name, label) in enumerate(zip(named, place.tolist(), strict=True))
    ]
    return templates, meta + [_map_label_hover_text(labels, number) for number in used.tolist()]


_UNKNOWN: Final = "unknown"

_KEPT_TEXTS = 1 << 14  # texts that are kept: a step changes one or two

_FIELDS = ("in_use", "address", "size", "requested", "handle", "region", "born", "stream")


@lru_cache(_KEPT_TEXTS)
def _full_hover_text(row: tuple[Any, ...]) -> str:
    in_use, address, size, requested, handle, region, born, stream, thread = row
    place = f"bin {bin_of(size)}, chunk {handle} at {address:#x}, region {region}"
    if not in_use:
        return f"<b>free</b>, {exact_bytes(size)}<br>{place}"
    waste = None if requested is None else max(size - requested, 0)
    asked, wasted = (_UNKNOWN if each is None else exact_bytes(each) for each in (requested, waste))
    thread, stream = (_UNKNOWN if each is None else each for each in (thread, stream))
    step = "an unknown step" if born is None else f"step {born + 1:,}"
    return (
        f"<b>in use</b>, size {exact_bytes(size)}<br>requested {asked}, waste {wasted}<br>{place}<br>"
        f"allocated at {step}; thread {thread}, stream {stream}"
    )


def _short_hover_text(row: Sequence[Any]) -> str:
    in_use, address, size, _, handle, *_ = row
    state = "in use" if in_use else "free"
    return f"<b>{state}</b>, {format_bytes(size)}<br>chunk {handle} at {address:#x}<br>zoom in for details"


def _map_label_hover_text(labels: Labels, number: int) -> str:
    """The lines about a label in the hover text of a chunk of the map."""
    if number == 0:
        return NO_LABEL
    label = labels[number]
    lines = [harmless(label.name)]
    for key, value in label.details.items():
        if key == "stack":
            frames, others = telling_lines(value, MOST_FRAMES)
            lines += [harmless(frame) for frame in frames] + [f"… {others:,} more"] * (others > 0)
        elif value and key not in STACK_DETAILS:
            lines.append(f"{harmless(key, 30)}: {harmless(value)}")
    return "<br>".join(lines)


# ------------------------------------------------------------------------------
# Names and sizes in the boxes of the region map, and the gaps between the boxes.

_LETTER: Final = 6.2  # pixels of a letter, on average
_LINE: Final = 13.0  # pixels of a line
_EDGE: Final = 6.0  # pixels left and right of a name
_FEWEST: Final = 6  # letters: a narrower box has no text
_LOW: Final = 2.0  # pixels: lower boxes have no space between rows
_MOST: Final = 150  # boxes with a text, the widest
_GAP: Final = 4.0  # pixels: a narrower or lower box has no lines at its edges, which would hide much of it
_MOST_GAPS: Final = 1500


def names_in_boxes(visible: VisibleChunks, pieces: Pieces, labels: Labels) -> dict[str, Any]:
    """A trace of names on the region map: `label, size` in boxes with room for it; each chunk once.

    The size is the allocated one. Where waste has a colour of its own, the text is in the requested part: across both
    colours it could not be read. Faded chunks have no text.
    """
    pixels, pieces = visible.pixels, _without_waste(visible, pieces)
    pieces = pieces.only(~visible.faded[pieces.source])
    left, right = pieces.ends_in(visible.part)
    wide = (right - left) * (pixels[0] / visible.screen) - 2 * _EDGE
    marked = np.isin(visible.chunks["address"][pieces.source], np.array(visible.marked, np.uint64))
    wide -= 2 * (_MARKER_INSET * pixels[0]) * marked  # a name is in the middle
    high = visible.box_height
    chosen = _with_room(pieces, wide) if high >= _LINE - 2 else np.zeros(0, np.intp)
    chunks, classes = visible.chunks, visible.classes
    texts, colours = [], []
    for piece in chosen.tolist():
        chunk = chunks[pieces.source[piece]]
        number = int(classes[pieces.source[piece]])
        name = "free" if number == FREE else labels.name(int(chunk["label"]))
        room = int(wide[piece] / _LETTER)
        texts.append(_map_box_text(name, int(chunk["size"]), room, two=high >= 2 * _LINE))
        paint: Paint = visible.theme.free if number == FREE else visible.colours.paints[number]
        colours.append(contrasting(paint.fill))
    return {
        **TEXTS,
        "x": (left + right)[chosen] / 2 / visible.divisor,
        "y": pieces.row[chosen] + 0.5,
        "text": texts,
        "textfont": {"size": 11, "color": colours or visible.theme.text},
    }


def _without_waste(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    """The boxes of free chunks on the region map, and of the requested parts of chunks in use."""
    if not visible.shows_waste or not len(pieces):
        return pieces
    chunks = visible.chunks
    known = chunks["in_use"] & (chunks["requested"] > 0)
    return visible.cut(chunks["address"], np.where(known, chunks["requested"], chunks["size"]))


def _with_room(pieces: Pieces, wide: Floats) -> NDArray[np.intp]:
    """The widest piece of each chunk on the region map that has room for a text."""
    order = np.lexsort([-wide, pieces.source])
    first = np.append(True, np.diff(pieces.source[order]) > 0) if len(order) else np.zeros(0, bool)
    found = order[first]
    found = found[wide[found] >= _FEWEST * _LETTER]
    widest: NDArray[np.intp] = found[np.argsort(-wide[found], kind="stable")[:_MOST]]
    return widest


def _map_box_text(name: str, size: int, room: int, *, two: bool) -> str:
    """Name and size in `room` letters, on one line or `two`; the size alone if there is no room for a name."""
    size_text = round_bytes(size)
    left = room if two else room - len(size_text) - 2
    short = fitted(name, left)
    if not short:
        return size_text if len(size_text) <= room else ""
    return harmless(short) + ("<br>" if two else ", ") + size_text


def gaps(visible: VisibleChunks, pieces: Pieces) -> dict[str, Any]:
    """A trace of lines in the paper's colour between neighbouring boxes of the region map, where they are wide.

    It is one line a row, along the row's lower edge; see `region_map_rectangles`.
    """
    pieces = pieces if visible.rows_have_room else no_pieces()
    x, y = _piece_gap_lines(visible, pieces, _GAP * visible.screen / visible.pixels[0])
    line = {"color": visible.theme.paper, "width": 1.5, "simplify": False}
    return {**LINES, "x": x, "y": y, "line": line, "showlegend": False}


def _piece_gap_lines(visible: VisibleChunks, pieces: Pieces, least: float) -> tuple[Floats, Floats]:
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


# ------------------------------------------------------------------------------
# Markers on the region map: touched and selected chunks, and lone chunks too narrow to see.

ALONE: Final = 0.012  # the least free space on both sides of a lone chunk, as a share of the screen's width

_NARROW = 0.03  # of the screen's width: a narrower touched or selected chunk also gets a marker
_INVISIBLE = 0.002  # the same: a narrower lone chunk is invisible
_MOST_LONE = 60


def lone_pieces(visible: VisibleChunks) -> tuple[Floats, Floats]:
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
    """A trace that marks lone chunks in use on the region map; empty if many, which are visible anyway."""
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


def gone_trace(visible: VisibleChunks, spans: NDArray[np.void]) -> dict[str, Any]:
    """A trace that shades what is free on the region map and was in use at an earlier step."""
    pieces, grey = visible.cut(spans["address"], spans["size"]), visible.theme.other
    boxes = boxes_of(pieces, visible.divisor)
    trace = box_trace("gone", boxes, Paint(translucent(grey.fill, 0.55), grey.fill), 0)
    return {**trace, "showlegend": len(pieces) > 0}


def outline_traces(
    visible: VisibleChunks, highlighted: NDArray[np.void], chosen: NDArray[np.void], found: NDArray[np.void]
) -> list[dict[str, Any]]:
    """Outlines on the region map: of what a search found and this step touched, narrow chunks, the selection.

    Args:
        visible: what is on screen.
        highlighted: SPAN records of the chunks that this step touched.
        chosen: the same for the selected chunk.
        found: records of the chunks that match the search, with address and size.
    """
    theme, divisor = visible.theme, visible.divisor
    marked = [visible.cut(each["address"], each["size"]) for each in (found, highlighted, chosen)]
    matches, pieces, clicked = marked
    colours = (theme.search, theme.highlight, theme.selection)
    narrow = [each.right - each.left < _NARROW * visible.screen for each in marked]
    # What is touched differs from a frame by more than its hue: the first piece of each chunk has a tip, too.
    narrow[1] |= np.diff(pieces.source, prepend=-1) > 0
    tips = [each.only(wanted) for each, wanted in zip(marked, narrow, strict=True)]
    inset = _NARROW / 2 * visible.screen
    x = np.concatenate([np.minimum((tip.left + tip.right) / 2, tip.left + inset) for tip in tips]) / divisor
    marker = {
        # A chunk of 256 bytes may be far narrower than a pixel: the marker shows where it is. A wide one has its name
        # in the middle.
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
    found_trace = region_map_outline("matches of the search", matches, divisor, theme.search, 2)
    chosen_trace = region_map_outline("selected", clicked, divisor, theme.selection, 2.5)
    return [
        {**found_trace, "showlegend": len(matches) > 0},
        region_map_outline("touched by this step", pieces, divisor, theme.highlight, 2.5),
        marker,
        {**chosen_trace, "showlegend": len(clicked) > 0},
    ]


# ------------------------------------------------------------------------------
# The plotly traces of the region map: one function per trace or group of traces.

COLUMNS: Final = 1200
"""Pixels across the image, at most."""

_CELLS = 120_000  # with many rows the image has fewer columns, which bounds its cost
_FEWEST_COLUMNS = 160


def exact_traces(visible: VisibleChunks, labels: Labels) -> list[dict[str, Any]]:
    """All chunks of the region map as rectangles with their names."""
    return _map_traces(visible, labels, _hidden_map_image_trace(), visible.pieces, lone_pieces(visible))


def image_traces(
    visible: VisibleChunks, labels: Labels, cells: "MapCells | None" = None
) -> list[dict[str, Any]]:
    """The region map as an image, of these cells if measured, and empty rectangle traces for the legend."""
    cells = cells or map_image_cells(visible)
    image = _map_image_trace(visible, cells.held)
    row, column = cells.lone
    left = visible.part.left / visible.divisor
    marked = left + (column + 0.5) * image["dx"], visible.part.first + row
    return _map_traces(visible, labels, image, no_pieces(), marked)


def _map_traces(
    visible: VisibleChunks,
    labels: Labels,
    image: dict[str, Any],
    pieces: Pieces,
    marked: tuple[NDArray[Any], NDArray[Any]],
) -> list[dict[str, Any]]:
    """The image, and rectangles for these pieces; `marked` are the places of lone chunks."""
    return [
        image,
        *_chunk_class_rectangles(visible, pieces),
        gaps(visible, pieces),
        _faded_pieces_trace(visible, pieces),
        _region_frames_trace(visible),
        lone(visible, *marked),
        names_in_boxes(visible, pieces, labels),
    ]


def moving_image_trace(visible: VisibleChunks) -> dict[str, Any]:
    """An image of all chunks, with half of the cells: for a region map that moves."""
    return _map_image_trace(visible, _map_cell_bytes(visible, _CELLS // 2))


class MapCells(NamedTuple):
    """The cells of the map's image, in any theme: their bytes, and the row and the column of the lone ones."""

    held: CellBytes
    lone: tuple[NDArray[np.intp], NDArray[np.intp]]


def map_image_cells(visible: VisibleChunks) -> MapCells:
    """The cells of the region map's image."""
    held = _map_cell_bytes(visible, _CELLS)
    return MapCells(merged_raster_rows(held), lone_raster_cells(held, round(ALONE * held.region.shape[1])))


def _map_cell_bytes(visible: VisibleChunks, most: int) -> CellBytes:
    """The bytes of the cells of an image, about `most`, unless very many rows need more."""
    columns = int(np.clip(most // len(visible.part), _FEWEST_COLUMNS * most // _CELLS, COLUMNS))
    visible, fills = _with_lit_class(*_with_faded_classes(visible))
    grid = RasterGrid(visible.rows, visible.part, columns)
    return cell_bytes(visible.chunks, visible.classes, len(fills), grid)


def _map_image_trace(visible: VisibleChunks, held: CellBytes) -> dict[str, Any]:
    part, divisor = visible.part, visible.divisor
    lit = visible.pixels[1] if visible.lights_matches else None
    _, fills = _with_lit_class(*_with_faded_classes(visible))
    picture = raster_image(held, fills, visible.theme, waste=visible.shows_waste, lit=lit)
    dx, dy = (part.right - part.left) / divisor / held.region.shape[1], len(part) / len(picture)
    return {
        **_hidden_map_image_trace(),
        "visible": True,
        "source": picture.data_uri(),
        "dx": dx,
        "dy": dy,
        "x0": part.left / divisor + dx / 2,  # the centre of the first pixel
        "y0": part.first + dy / 2,
    }


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


def _with_lit_class(visible: VisibleChunks, fills: list[str]) -> tuple[VisibleChunks, list[str]]:
    """The chunks, where those that light up have a class of their own, the last one; and the colours of all classes."""
    if not visible.lights_matches:
        return visible, fills
    classes = np.where(visible.found, len(fills), visible.classes).astype(np.uint8)
    return replace(visible, classes=classes), [*fills, visible.theme.search]


def _hidden_map_image_trace() -> dict[str, Any]:
    """The trace of the image where there is none: it is not visible."""
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


def _chunk_class_rectangles(visible: VisibleChunks, pieces: Pieces) -> list[dict[str, Any]]:
    """Traces of free chunks, of each class of chunks in use, and of waste."""
    theme, colours = visible.theme, visible.colours
    classes = visible.classes[pieces.source]
    # Lines run along the rows' lower edges too (see `region_map_rectangles`), where only frames hide them.
    border = 0.7 if visible.rows_have_room else 0.0
    free = pieces.only(classes == FREE)
    traces = [region_map_rectangles("free", free, visible, theme.free.edgeless, border)]
    for number in range(MOST_CLASSES):
        named = number < len(colours.names)
        mine = pieces.only(classes == number) if named else no_pieces()
        drawn = not len(visible.chunks) or bool((visible.classes == number).any())
        paint = (colours.paints[number] if named else theme.other).edgeless
        trace = region_map_rectangles("", mine, visible, paint, border)
        traces.append({**trace, **colours.legend(number, shown=visible.legend, drawn=drawn)})
    # No border: a border would show a few wasted bytes as a whole pixel.
    wasted = _waste_pieces(visible, pieces)
    waste = region_map_rectangles("waste (size - requested)", wasted, visible, theme.waste, 0.0)
    return [*traces, {**waste, "showlegend": visible.shows_waste}]


def _waste_pieces(visible: VisibleChunks, pieces: Pieces) -> Pieces:
    if not visible.shows_waste or not len(pieces):
        return no_pieces()
    chunks = visible.chunks[visible.chunks["in_use"]]
    spilled = chunks[chunks["requested"] < chunks["size"]]
    return visible.cut(spilled["address"] + spilled["requested"], spilled["size"] - spilled["requested"])


def _faded_pieces_trace(visible: VisibleChunks, pieces: Pieces) -> dict[str, Any]:
    """The paper's colour over the faded boxes."""
    pieces = pieces.only(visible.faded[pieces.source])
    trace = region_map_rectangles("", pieces, visible, visible.theme.pool, 0.0)
    return {**trace, "fillcolor": translucent(visible.theme.paper, FADE), "showlegend": False}


def _region_frames_trace(visible: VisibleChunks) -> dict[str, Any]:
    framed = len(visible.part) > 0 and visible.rows_have_room
    pieces = visible.rows.of_regions().within(visible.part) if framed else no_pieces()
    return region_map_outline("region", pieces, visible.divisor, visible.theme.pool.line, 1)


def hover_points(
    visible: VisibleChunks,
    labels: Labels,
    known: HoverFacts = _ALL_KNOWN,
) -> dict[str, Any]:
    """A trace of invisible points on the region map with hover texts."""
    chunks, part = visible.chunks, visible.part
    if len(visible.pieces) <= EXACT_CHUNKS:
        points = points_in_pieces(chunks, visible.pieces, part, labels, known)
    else:
        points = points_on_grid(chunks, visible.rows, part, labels, known)
    return invisible_points(points, visible.divisor)


def invisible_points(points: Mapping[str, Any], divisor: int) -> dict[str, Any]:
    """The trace of the region map's hover points, whose `x` is in bytes."""
    return {"type": "scatter", "mode": "none", **points, "x": points["x"] / divisor, "showlegend": False}


def note_trace(visible: VisibleChunks, *, known: bool = True) -> dict[str, Any]:
    """A text on the region map that says if there is no region, or that the file does not tell (`known`)."""
    empty = int(len(visible.rows) == 0)
    text = "no region at this step" if known else "the file does not show the heap"
    return {
        **TEXTS,
        "x": np.full(empty, 0.5),
        "y": np.full(empty, 0.5),
        "text": [text] * empty,
        "textfont": {"color": visible.theme.muted, "size": 13},
    }


# ------------------------------------------------------------------------------
# The chunks to highlight: those that an event touched.


def touched(events: Events | None, chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    """The spans that `events` touched, to outline on the region map, each in one of `regions`, as `SPAN` records.

    A SPLIT touches both parts, a MERGE the merged chunk, an EXTEND the new bytes of its region; an OOM the largest
    free chunk, which was too small. A RELEASE and a MARK touch nothing.
    """
    spans: list[tuple[int, int]] = []
    for event in events if events is not None else ():
        spans += _touched_spans(event, chunks)
    found = np.array(sorted(set(spans)), dtype=SPAN)
    return found[_touched_spans_in_regions(found, regions)]


def _touched_spans(event: np.void, chunks: NDArray[np.void]) -> list[tuple[int, int]]:
    kind = Kind(int(event["kind"]))
    parts: list[np.void] = []
    if kind in (Kind.SPLIT, Kind.MERGE):
        parts.extend(chunks[chunks["handle"] == event["chunk"]])
    if kind in (Kind.EXTEND, Kind.ALLOCATE, Kind.FREE, Kind.SPLIT):
        parts.append(event)
    if kind is Kind.OOM and len(free := chunks[~chunks["in_use"]]):
        parts.append(free[np.argmax(free["size"])])
    return [(int(part["address"]), int(part["size"])) for part in parts]


def _touched_spans_in_regions(spans: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.bool_]:
    if not len(regions) or not len(spans):
        return np.zeros(len(spans), dtype=bool)
    starts: NDArray[np.uint64] = regions["address"]
    ends: NDArray[np.uint64] = starts + regions["size"]
    low: NDArray[np.uint64] = spans["address"]
    high: NDArray[np.uint64] = low + spans["size"]
    at = np.searchsorted(starts, low, side="right") - 1
    return (at >= 0) & (high <= ends[at]) & (high > low)


# ------------------------------------------------------------------------------
# Marks of a request on the region map: the free chunks that would take it, or the nearest miss and what blocks it.
#
# ::
#
#     [ free | in use ║ free ║ in use ]      would take it: filled and outlined; a star on the best fit
#     [ ┌╌ free ╌ x in use x ╌ free ╌┐ ]     nearest miss: a dashed frame; a cross on each chunk that is in the way

MOST_TAKERS: Final = 300
"""Chunks that would take the request and are outlined, the best fits; more of them cannot be told apart."""

MOST_BLOCKERS: Final = 60  # chunks in the way that get a cross, the largest

_LONGEST: Final = 200  # characters of the sentence

_MARKER_INSET: Final = 0.012  # of the width of the map: the middle of a marker from the edge of its chunk


def request_marks(visible: VisibleChunks, answer: Fit | None, labels: Labels) -> list[dict[str, Any]]:
    """Marks of a request on the region map: chunks that would take it, the nearest miss, and markers."""
    takers, miss, blockers = _NONE, _NONE, _NONE
    if answer is not None:
        takers = answer.takers[:MOST_TAKERS]
        if answer.miss is not None and not answer.grows:
            miss = np.array([(answer.miss.address, answer.miss.size)], SPAN)
            blockers = answer.blockers[:MOST_BLOCKERS]
    left = len(answer.takers) - len(takers) if answer is not None else 0
    crosses = _map_in_the_way_crosses(visible, blockers, answer, labels)
    return [
        _map_taker_boxes(visible, takers, f" ({left:,} more)" if left else ""),
        _map_nearest_miss(visible, miss),
        _map_best_fit_star(visible, takers[:1]) if len(takers) else crosses,
    ]


def region_map_fit_text(answer: Fit, labels: Labels) -> str:
    """The answer as one line: for hover texts of the marks, and for the caption of the map."""
    return harmless(fit_sentence(answer, labels), _LONGEST)


_NONE: Final = np.empty(0, SPAN)


def _map_taker_boxes(visible: VisibleChunks, spans: NDArray[np.void], more: str) -> dict[str, Any]:
    filled = Paint(translucent(visible.theme.fit, 0.4), visible.theme.fit)
    boxes = boxes_of(visible.cut(spans["address"], spans["size"]), visible.divisor)
    return box_trace("", boxes, filled, 3) | _in_legend(spans, f"would take it{more}")


def _map_best_fit_star(visible: VisibleChunks, spans: NDArray[np.void]) -> dict[str, Any]:
    pieces = visible.cut(spans["address"], spans["size"])
    pieces = pieces.only(np.arange(len(pieces)) == 0)  # a chunk that continues in the next row has one star
    text = f"<b>best fit</b>: the heap would take {_map_chunk_place_text(spans[0])}" if len(spans) else ""
    theme = visible.theme
    points = _marker_points(visible, pieces, ("star", 14, theme.fit, theme.text), [text] * len(pieces))
    return points | {"name": "", "showlegend": False}


def _map_nearest_miss(visible: VisibleChunks, spans: NDArray[np.void]) -> dict[str, Any]:
    boxes = boxes_of(visible.cut(spans["address"], spans["size"]), visible.divisor)
    trace = box_outlines("", boxes, visible.theme.fit, 3) | _in_legend(spans, "nearest miss")
    trace["line"] |= {"dash": "5px,3px"}
    return trace


def _map_in_the_way_crosses(
    visible: VisibleChunks, chunks: NDArray[np.void], answer: Fit | None, labels: Labels
) -> dict[str, Any]:
    pieces, theme = visible.cut(chunks["address"], chunks["size"]), visible.theme
    texts = [
        f"<b>in the way</b>: {harmless(blocker_name(chunk, labels))}<br>{_map_chunk_place_text(chunk)}"
        for chunk in chunks[pieces.source]
    ]
    if answer is not None and texts:
        texts = [f"{text}<br>{region_map_fit_text(answer, labels)}" for text in texts]
    colour = theme.oom if answer is not None and answer.failed else theme.text
    points = _marker_points(visible, pieces, ("x", 10, colour, theme.paper), texts)
    return points | _in_legend(chunks, "in the way")


def _in_legend(spans: NDArray[np.void], name: str) -> dict[str, Any]:
    """A name in the region map's legend only where something is marked: a dashboard keeps room for all."""
    return {"name": name if len(spans) else "", "showlegend": len(spans) > 0}


def _map_chunk_place_text(chunk: np.void) -> str:
    return f"{exact_bytes(int(chunk['size']))} at {int(chunk['address']):#x}"


def _marker_points(
    visible: VisibleChunks, pieces: Pieces, symbol: tuple[str, int, str, str], texts: Sequence[str]
) -> dict[str, Any]:
    """A marker on the region map near the left edge of each piece, or of its part on screen."""
    shape, size, colour, rim = symbol
    left, right = pieces.ends_in(visible.part)
    inset = np.minimum((right - left) / 2, _MARKER_INSET * (visible.part.right - visible.part.left))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": (left + inset) / visible.divisor,
        "y": pieces.row + 0.5,
        "marker": {"symbol": shape, "size": size, "color": colour, "line": {"width": 1, "color": rim}},
        "hovertext": texts,
        "hoverinfo": "text",
    }


# ------------------------------------------------------------------------------
# The map as panels: of a heap at a step, of a moving one, and of a running one.

MOST_FOUND: Final = 300  # matches that are outlined; more of them cannot be told apart


def map_search_matches(chunks: NDArray[np.void], labels: Labels, search: str | None) -> NDArray[np.bool_]:
    """Which chunks of the region map a search finds; only an address finds free ones."""
    if not search or not search.strip():
        return np.zeros(len(chunks), bool)
    is_address = search_filter(search).address is not None
    matches: NDArray[np.bool_] = found_by(labels, search)(chunks) & (chunks["in_use"] | is_address)
    return matches


def _outlined_matches(chunks: NDArray[np.void], matches: NDArray[np.bool_]) -> NDArray[np.void]:
    """The matches of a search that the region map outlines, the largest `MOST_FOUND`."""
    at = np.flatnonzero(matches)
    if len(at) > MOST_FOUND:
        at = np.sort(at[np.argpartition(~chunks["size"][at], MOST_FOUND)[:MOST_FOUND]])
    found: NDArray[np.void] = chunks[at]
    return found


MOST_GONE: Final = 300
"""Spans of what is gone that are shaded, the largest; more of them cannot be told apart."""


def map_gone_spans(model: Model, since: int | None) -> NDArray[np.void]:
    """What to shade as gone, of SPAN, the largest: in use at the step `since`, and free now; none without a step.

    Where new chunks lie in its place, these are shown.
    """
    if since is None or not model.trace.first <= since <= model.step:
        return _NONE
    chunks = model.chunks()
    before = growth_chunks_at(model, since)
    gone = before[np.isin(before["born"], chunks["born"][chunks["in_use"]], invert=True)]
    found = _common_spans(gone, chunks[~chunks["in_use"]])
    largest: NDArray[np.void] = found[np.argsort(~found["size"], kind="stable")[:MOST_GONE]]
    return largest


def _common_spans(chunks: NDArray[np.void], free: NDArray[np.void]) -> NDArray[np.void]:
    """The spans on the map that lie in one of these chunks and in a free one; `free` by ascending address."""
    stop, free_stop = (each["address"] + each["size"] for each in (chunks, free))
    first = np.searchsorted(free_stop, chunks["address"], side="right")
    count = np.searchsorted(free["address"], stop, side="left") - first
    mine = np.repeat(np.arange(len(chunks)), count)
    theirs = np.arange(len(mine)) - np.repeat(np.cumsum(count) - count - first, count)
    found = np.empty(len(mine), SPAN)
    found["address"] = np.maximum(chunks["address"][mine], free["address"][theirs])
    found["size"] = np.minimum(stop[mine], free_stop[theirs]) - found["address"]
    return found


EXACT_CHUNKS: Final = 3000
"""Pieces of chunks on screen that are drawn as exact rectangles, or have hover texts of their own, at most."""

_MOST_TICKS = 20
_TOP = -0.2  # rows: the upper end of the y axis
_REACH = 0.003  # of the screen's width: a click this close to a narrow chunk selects it

_DEFINITION = (
    "region: one grant from the sub-allocator; a long one continues in the next row.<br>"
    "chunk: wholly free or wholly in use.<br>waste: its size - its requested bytes."
)


def region_panel(
    model: Model,
    highlight: Events | None,
    look: Look,
    colours: Colouring | None = None,
    kept: Callable[[Callable[[], MapCells]], MapCells] = lambda measure: measure(),
) -> Panel:
    """The map as a panel; it always has the same traces in the same order, some of them empty.

    Args:
        model: the heap; it stays at its step.
        highlight: events whose chunks are outlined.
        look: with `wanted`, the places of such a request are marked.
        colours: the colouring of `look` for this heap; None: it is made here.
        kept: gives the cells of an image that were measured before for another theme, or measures them.
    """
    visible, exact = _visible_chunks(model, look, colours)
    chunks = visible.chunks
    chosen = selected(model.chunks(), look.selected)
    found = _outlined_matches(chunks, visible.found)
    labels, details = model.trace.labels, model.trace.origin.details
    request = request_at(model, look.wanted)
    answer = fit_of(model, request.size) if request is not None else None
    if answer is not None:
        with_marker = answer.takers[:1] if len(answer.takers) else answer.blockers[:MOST_BLOCKERS]
        visible = replace(visible, marked=with_marker["address"].tolist())
    traces = [
        *(
            exact_traces(visible, labels)
            if exact
            else image_traces(visible, labels, kept(partial(map_image_cells, visible)))
        ),
        gone_trace(visible, map_gone_spans(model, look.since)),
        *request_marks(visible, answer, model.trace.labels),
        *outline_traces(visible, touched(highlight, model.chunks(), model.regions()), chosen, found),
        hover_points(visible, labels, HoverFacts.of(model)),
        note_trace(visible, known=chunks_known(details, model.pool)),
    ]
    panel = _region_map_panel(visible, traces, look, exact=exact)
    return (
        panel if answer is None else replace(panel, caption=region_map_fit_text(answer, model.trace.labels))
    )


def _visible_chunks(model: Model, look: Look, colours: Colouring | None) -> tuple[VisibleChunks, bool]:
    """The chunks of the part of the map that a look shows, and whether they are few enough for exact rectangles."""
    chunks = model.chunks()
    colours = colours or colouring(model.trace, model.pool, look.colour, look.paints, chunks)
    rows = rows_of(model)
    part = rows.part(look.map_window)
    indices, pieces = rows.chunks_in(chunks["address"], part)
    if len(indices) < len(chunks):
        chunks = chunks[indices]
    visible = VisibleChunks(
        chunks=chunks,
        rows=rows,
        part=part,
        divisor=axis_unit(_map_screen_bytes(rows, look))[0],
        theme=look.paints,
        colours=colours,
        classes=colours.classes(chunks, model.step),
        faded=faded(model.trace, model.pool, look, chunks),
        found=map_search_matches(chunks, model.trace.labels, look.search),
        shows_waste=colours.shows_waste and requested_bytes_known(model.trace.origin.details, model.pool),
        legend=look.legend,
        pixels=look.map_pixels,
    )
    # A browser mixes the colours of rectangles that share a pixel, and the mix can look like free.
    return visible, pieces <= EXACT_CHUNKS and not visible.rows_share_pixels


def image_panel(model: Model, look: Look, colours: Colouring) -> Panel:
    """The region map as an image, without the slow parts: hover texts, names and outlines. See `region_panel`."""
    visible, _ = _visible_chunks(model, look, colours)
    image = moving_image_trace(visible) if len(visible.chunks) else {"visible": False}
    return _image_panel(replace(visible, **_NO_CHUNKS), image, model.trace.labels, look)


_NO_CHUNKS: Final[dict[str, Any]] = {
    "chunks": np.empty(0, CHUNK),
    "classes": np.empty(0, np.uint8),
    "faded": np.empty(0, bool),
    "found": np.empty(0, bool),
}


def moving_map_panel(live_map: LiveMap, labels: Labels, look: Look) -> Panel:
    """The map of a running heap as a panel: an image, without hover texts and outlines; `map_window` is ignored."""
    rows, look = live_map.rows, replace(look, map_window=None)
    visible = VisibleChunks(
        **_NO_CHUNKS,
        rows=rows,
        part=rows.part(None),
        divisor=live_map.divisor,
        theme=look.paints,
        colours=live_map.colours,
        shows_waste=live_map.colours.shows_waste,
        legend=look.legend,
        pixels=look.map_pixels,
    )
    return _image_panel(visible, live_map.image(), labels, look)


def _image_panel(visible: VisibleChunks, image: Mapping[str, Any], labels: Labels, look: Look) -> Panel:
    """The region map with this image, the fields of its trace that change; `visible` has no chunks."""
    empty, *others = exact_traces(visible, labels)
    no_spans = np.empty(0, SPAN)
    traces = [
        {**empty, **image},
        *others,
        gone_trace(visible, no_spans),
        *request_marks(visible, None, labels),
        *outline_traces(visible, no_spans, no_spans, no_spans),
        hover_points(visible, labels),
        note_trace(visible),
    ]
    return _region_map_panel(visible, traces, look, exact=False)


_BY_ADDRESS: Final = "addresses rise left to right, then down"
_BY_SIZE: Final = "many regions, the largest first"


def row_order(rows: Rows) -> str:
    """The order of the region map's rows, in words."""
    return _BY_SIZE if rows.are_by_size else _BY_ADDRESS


def _region_map_panel(
    visible: VisibleChunks, traces: list[dict[str, Any]], look: Look, *, exact: bool
) -> Panel:
    rows, divisor = visible.rows, visible.divisor
    return Panel(
        name="region_map",
        title="Region map",
        caption=f"{row_order(rows)}; widths to scale; "
        f"coloured by {COLOURINGS.get(visible.colours.name, visible.colours.name)}",
        definition=_DEFINITION,
        traces=traces,
        xaxis=_region_map_x_axis(rows, look, exact=exact),
        yaxis=_region_map_y_axis(rows, visible.part, look),
        x_unit=divisor,
    )


def chunk_at(model: Model, x: float, y: float, look: Look) -> np.void | None:
    """The chunk at `x`, `y` of the region map drawn with `look`, as a CHUNK record; None if there is none.

    A click next to a chunk in use that is too narrow to hit selects that chunk.

    Args:
        model: the heap at the step that is shown.
        x: in the units of the panel's x axis.
        y: in rows.
        look: that of the map.
    """
    chunks, rows = model.chunks(), rows_of(model)
    span = _map_screen_bytes(rows, look)
    offset, row = x * axis_unit(span)[0], int(np.floor(y))
    if not (0 <= row < len(rows) and 0 <= offset < rows.width):
        return None
    region = int(rows.region_of(np.array([row]))[0])
    place = offset + (row - int(rows.first[region])) * rows.width
    if place >= int(rows.size[region]):
        return None
    inside = rows.address[region] <= chunks["address"]
    mine = chunks[inside & (chunks["address"] < rows.address[region] + rows.size[region])]
    begin = (mine["address"] - rows.address[region]).astype(np.float64)
    at = int(np.searchsorted(begin, place, side="right")) - 1
    return mine[_map_clicked_index(begin, mine, at, place, _REACH * span)]  # type: ignore[no-any-return]


def _map_clicked_index(begin: Any, mine: Any, at: int, place: float, reach: float) -> int:
    """The index of the chunk that a click at `place`, inside chunk `at`, selects."""
    if mine["size"][at] < 2 * reach:
        return at
    low, high = np.searchsorted(begin, [place - 2 * reach, place + reach])
    near = np.arange(low, high)
    near = near[mine["in_use"][near] & (mine["size"][near] < 2 * reach)]
    gap = np.abs(begin[near] + mine["size"][near] / 2 - place)
    return int(near[np.argmin(gap)]) if len(near) and gap.min() <= reach else at


def _map_screen_bytes(rows: Rows, look: Look) -> float:
    """The width of the screen in bytes."""
    window = look.map_window
    if window is None:
        return float(rows.width) if len(rows) else 1.0
    return max(abs(window.bytes[1] - window.bytes[0]), 1.0)


def _region_map_x_axis(rows: Rows, look: Look, *, exact: bool) -> dict[str, Any]:
    span = _map_screen_bytes(rows, look)
    divisor, unit = axis_unit(span)
    low, high = (0.0, span) if look.map_window is None else look.map_window.bytes
    tick = 2.0 ** np.ceil(np.log2(span / 8))
    pixels = "; each pixel has the colour of one of its chunks, paler by what is free: zoom in"
    return {
        "title": {"text": f"offset within the row ({unit}){'' if exact else pixels}"},
        "range": [low / divisor, high / divisor],
        "minallowed": 0.0,
        "maxallowed": (float(rows.width) if len(rows) else 1.0) / divisor,
        "dtick": float(tick) / divisor,
        "tick0": 0,
        "tickformat": ",~r" if tick < divisor else ",d",
        "showgrid": False,
        "zeroline": False,
        "showticklabels": len(rows) > 0,
    }


def _region_map_y_axis(rows: Rows, part: VisibleRows, look: Look) -> dict[str, Any]:
    values, texts = _row_names(rows, part)
    end = float(max(len(rows), 1))
    top, bottom = (_TOP, end) if look.map_window is None else look.map_window.rows
    return {
        "range": [bottom, top],
        "minallowed": _TOP,
        "maxallowed": end,
        "tickvals": values,
        "ticktext": texts,
        "ticks": "",
        "ticklabelstandoff": 4,
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "scaleanchor": False,
        "title": {"text": "regions by size" if rows.are_by_size else "row: region, or offset in the region"},
    }


def _row_names(rows: Rows, part: VisibleRows) -> tuple[list[float], list[str]]:
    """Tick labels of the region map's rows: the region at its first row, else the offset; fewer if many."""
    longest = int(rows.size.max(initial=0))
    divisor, unit = axis_unit(max(rows.width, longest // 5))  # "+10,240 MiB" would be clipped
    if rows.are_by_size and len(part) > _MOST_TICKS:
        return _region_map_size_ticks(rows, part)
    every = max(1, -(-len(part) // _MOST_TICKS))
    values, texts = [], []
    for row in range(part.first, part.first + len(part), every):
        region = int(rows.region_of(np.array([row]))[0])
        offset = (row - int(rows.first[region])) * rows.width
        values.append(row + 0.5)
        texts.append(f"region {rows.slot[region]}" if offset == 0 else f"+{offset / divisor:,.6g} {unit}")
    return values, texts


def _region_map_size_ticks(rows: Rows, part: VisibleRows) -> tuple[list[float], list[str]]:
    """Tick labels of rows by size: how many regions have each size, beside the middle of their rows."""
    texts = [round_bytes(size) for size in rows.size[rows.order].tolist()]
    begins = [at for at, text in enumerate(texts) if at == 0 or text != texts[at - 1]]
    edges = np.append(rows.first[rows.order], len(rows))
    found = []
    for begin, end in zip(begins, [*begins[1:], len(texts)], strict=True):
        top, bottom = max(int(edges[begin]), part.first), min(int(edges[end]), part.stop)
        if top < bottom:
            found.append((bottom - top, (top + bottom) / 2, f"{end - begin:,} of<br>{texts[begin]}"))
    apart = 2 * len(part) / _MOST_TICKS  # a label has two lines
    kept: list[tuple[float, str]] = []
    for _, middle, text in sorted(found, reverse=True):
        beside_ticks = middle > part.stop - apart / 2  # of the x axis
        if not beside_ticks and all(abs(middle - other) >= apart for other, _ in kept):
            kept.append((middle, text))
    return [middle for middle, _ in kept], [text for _, text in kept]


def chunk_table(model: Model) -> pa.Table:
    """The table of the region map: one row per chunk, by address; sizes in bytes, null for what is not known."""
    chunks = model.chunks()
    in_use, size, requested = chunks["in_use"], chunks["size"], chunks["requested"]
    names, unknown = model.trace.labels, unknown_of_chunks(model.trace.origin.details, model.pool)
    columns = pa.table(
        {
            "address": chunks["address"],
            "size": size,
            "requested": requested,
            "waste": np.where(in_use, size - requested, np.uint64(0)),
            "state": pa.array(np.where(in_use, "in use", "free")),
            "bin": bin_numbers(size).astype(np.int8),
            "chunk": chunks["handle"],
            "region": chunks["region"],
            "label": pa.array([names.name(number) for number in chunks["label"].tolist()], pa.string()),
            "thread": chunks["thread"],
            "stream": chunks["stream"],
            "allocated_at_step": pa.array(chunks["born"] + np.uint64(1), mask=~in_use),
        }
    )
    return without_unknown(columns, unknown)


def map_panel(heap: HeapData, look: Look, live_map: LiveMap | None = None) -> Panel:
    """The region map of the heap at its step.

    Args:
        heap: the heap; a dashboard lists holders beside the map.
        look: see `region_panel`.
        live_map: the map of a running heap, drawn instead, without what costs most.
    """
    if heap.brief:
        look = replace(look, legend=look.colour != "holder" or look.since is not None)
    if live_map is not None:
        return moving_map_panel(live_map, heap.trace.labels, look)
    key = (len(heap.trace), heap.step, replace(look, theme=PLAIN.theme))
    kept = partial(heap.cached, "cells of the map", key)
    return region_panel(heap.model, heap.last_event, look, heap.colours(look), kept)


def _map_selection_at(model: Model, _: HeapData, look: Look, x: float, y: float) -> Selected | None:
    chunk = chunk_at(model, x, y, look)
    return None if chunk is None else Selected.of(chunk)


VIEW: Final = View(
    name="region_map",
    title="region map",
    data=lambda heap, _look: heap.model,
    panels=lambda _model, heap, look: [map_panel(heap, look)],
    table=chunk_table,
    height=lambda model, look: [int(np.clip(26 * len(rows_of(model).part(look.map_window)), 200, 620))],
    at=_map_selection_at,
    windows=("map_window",),
    dashboard=DashboardPlace(None, height=246, below=24),
)
