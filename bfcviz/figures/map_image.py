"""Region maps as images, whose cost depends on pixels: of all chunks at a step, and of a running heap."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.map_cells import Cells, choose_classes, paint_cells
from bfcviz.figures.map_rows import CellBytes, Rows, VisibleRows, lay_out
from bfcviz.figures.panel import Floats
from bfcviz.figures.text import axis_unit
from bfcviz.figures.theme import Theme, rgb
from bfcviz.model import CHUNK, Model

# ------------------------------------------------------------------------------
# Raster images: the bytes in each cell, the colour of each pixel, and the PNG that plotly shows.
#
# The cost depends on the pixels, not on the number of chunks. A line equal to the one above it is
# stored as zero differences (filter type Up): a row of a map is several equal lines.


# ------------------------------------------------------------------------------
# Encode an image as PNG: 8 bits each of red, green, blue and opacity, compressed by zlib.

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA_8_BIT = (8, 6, 0, 0, 0)
_PLAIN, _UP = 0, 2  # filters
_FAST = 1  # flat colours compress well at any level, and low levels are fast


def encode_png(pixels: NDArray[np.uint8], high: int = 1, gap: int = 0) -> bytes:
    """The image of a map: `pixels` (height, width, 4) as a PNG file.

    Args:
        pixels: red, green, blue and opacity.
        high: lines of the image per line of `pixels`.
        gap: of these lines, how many are transparent at the top and at the bottom each; fewer than half.
    """
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter type.
    if high > 1:
        clear, same = bytes(1 + 4 * width), bytes([_UP]) + bytes(4 * width)
        before, after = clear * gap + bytes([_PLAIN]), same * (high - 2 * gap - 1) + clear * gap
        lines = b"".join(before + line.tobytes() + after for line in pixels)
    else:
        flat = np.ascontiguousarray(pixels).reshape(height, 4 * width)
        repeats = np.zeros(height, dtype=bool)
        repeats[1:] = (flat[1:] == flat[:-1]).all(axis=1)
        table = np.zeros((height, 1 + 4 * width), dtype=np.uint8)
        table[:, 0] = np.where(repeats, _UP, _PLAIN)
        table[~repeats, 1:] = flat[~repeats]
        lines = table.tobytes()
    header = struct.pack(">IIBBBBB", width, height * high, *_RGBA_8_BIT)
    body = zlib.compress(lines, _FAST)
    return _SIGNATURE + _png_chunk(b"IHDR", header) + _png_chunk(b"IDAT", body) + _png_chunk(b"IEND", b"")


def data_uri(pixels: NDArray[np.uint8], high: int = 1, gap: int = 0) -> str:
    """The PNG of `encode_png` as a data URI, plotly's `source` of an image."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels, high, gap)).decode("ascii")


def _png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


# ------------------------------------------------------------------------------
# Paint chunks as pixels: the cost depends on the pixels, not on the number of chunks.
#
# A pixel has the colour of one class of its bytes, paler by what is free. Running totals of bytes make a pixel two
# look-ups a class, whether it shows a tenth of a chunk or ten thousand chunks.

LINES = 480
"""Pixel lines of an image at most, gaps between rows included; if there are more rows, rows share lines."""

# A single chunk in an otherwise free pixel can keep gigabytes from being freed: it stays visible.
_FAINTEST = 0.3

_LINES_A_ROW = 12  # enough to show the gaps; fewer lines are faster to make, compress and send


@dataclass(frozen=True)
class RasterGrid:
    """The cells of a map's image: `columns` cells in each row of `part`."""

    rows: Rows
    part: VisibleRows
    columns: int


@dataclass(frozen=True)
class RasterImage:
    """The image of a map: each row of cells is several lines high, with a gap around it if there is room."""

    pixels: NDArray[np.uint8]  # (rows, columns, 4): red, green, blue and opacity, rows from the top

    @property
    def high(self) -> int:
        """Lines per row of a map's image."""
        return min(max(LINES // len(self.pixels), 1), _LINES_A_ROW)

    def __len__(self) -> int:
        return len(self.pixels) * self.high

    def data_uri(self) -> str:
        """The image of a map as a data URI, plotly's `source` of an image."""
        gap = max(round(self.high * 0.08), 1) if self.high >= 3 else 0
        return data_uri(self.pixels, self.high, gap)


def cell_bytes(
    chunks: NDArray[np.void], classes: NDArray[np.uint8], count: int, grid: RasterGrid
) -> CellBytes:
    """The bytes of each cell of a raster `grid`, from all chunks on it.

    Args:
        chunks: CHUNK records, shape (n,), by address, n >= 1; must include all chunks on the grid.
        classes: the class of each chunk, below `count`; ignored for free chunks.
        count: how many classes there are.
        grid: the cells to measure.
    """
    rows = grid.rows
    # Position: bytes from the start of the first region, gaps between regions left out.
    before = _raster_sums_before(rows.size.astype(np.float64))
    begin = _raster_positions(np.ascontiguousarray(chunks["address"]), rows, before)
    used = np.where(chunks["in_use"], chunks["size"], 0).astype(np.float64)
    asked = np.minimum(chunks["requested"].astype(np.float64), used)

    edge = _raster_cell_edges(grid, before)
    at = np.maximum(np.searchsorted(begin, edge, side="right") - 1, 0)
    inside = np.clip(edge - begin[at], 0.0, used[at])
    # Waste begins inside a chunk: its total is constant up to `requested`, then rises to the chunk's end.
    spilled = np.maximum(inside - asked[at], 0.0)
    in_use = np.diff(_raster_sums_before(used)[at] + inside, axis=1)
    by_class = np.zeros((count, *in_use.shape))
    several = at[:, 1:] != at[:, :-1]
    alone = ~several & (in_use > 0)
    by_class[(classes[at[:, :-1][alone]], *np.nonzero(alone))] = in_use[alone]
    (first, last), (begins, ends) = ((each[:, :-1][several], each[:, 1:][several]) for each in (at, inside))
    for each in np.unique(classes[chunks["in_use"]]):
        mine = classes == each
        total = _raster_sums_before(np.where(mine, used, 0.0))
        until_end = total[last] + np.where(mine[last], ends, 0.0)
        by_class[each][several] = until_end - total[first] - np.where(mine[first], begins, 0.0)
    return CellBytes(
        in_use=in_use,
        waste=np.diff(_raster_sums_before(used - asked)[at] + spilled, axis=1),
        region=np.diff(edge, axis=1),
        by_class=by_class,
    )


def _raster_positions(address: NDArray[np.uint64], rows: Rows, before: Floats) -> Floats:
    """The positions of these addresses (ascending) in a map's image."""
    first = np.searchsorted(address, rows.address)
    count = np.diff(np.append(first, len(address)))
    positions: Floats = (address - np.repeat(rows.address, count)).astype(np.float64)
    positions += np.repeat(before[:-1], count)
    return positions


def _raster_cell_edges(grid: RasterGrid, before: Floats) -> Floats:
    """The positions between the cells of each row of a map's image, (rows, columns + 1)."""
    rows, part = grid.rows, grid.part
    row = np.arange(part.first, part.stop)
    region = rows.region_of(row)
    row_begin = (row - rows.first[region]) * float(rows.width)
    edge = row_begin[:, None] + np.linspace(part.left, part.right, grid.columns + 1)[None, :]
    inside = np.minimum(edge, rows.size[region].astype(np.float64)[:, None])
    positions: Floats = before[region][:, None] + inside
    return positions


def _raster_sums_before(amounts: Floats) -> Floats:
    """The sum of all amounts before each one, shape (n + 1,): the last entry is the total."""
    sums = np.zeros(len(amounts) + 1)
    np.cumsum(amounts, out=sums[1:])
    return sums


def raster_image(
    held: CellBytes, fills: Sequence[str], theme: Theme, *, waste: bool = True, lit: int | None = None
) -> RasterImage:
    """The raster image of these cells.

    Args:
        held: the bytes of each cell.
        fills: the colour of each class, `#RRGGBB`.
        theme: the colours of free bytes and of waste.
        waste: whether wasted bytes have their own colour, not that of their chunk.
        lit: the height of the plot in pixels: each pixel with any bytes of the last class lights up; None: none does.
    """
    held = merged_raster_rows(held)
    merged = isinstance(held, MergedCells)
    by_class, fills = held.by_class, list(fills)
    if waste:
        rest = 1.0 - np.clip(held.waste / np.maximum(held.in_use, 1e-9), 0.0, 1.0)
        by_class = np.concatenate([by_class * rest, held.waste[None]])
        fills += [theme.waste.fill]
    chosen = np.empty(held.region.shape, np.uint8)
    choose_classes(by_class, chosen, merged)
    pixels = np.empty((*held.region.shape, 4), np.uint8)
    colours = np.array([rgb(fill) for fill in (*fills, theme.free.fill)], np.float64)
    paint_cells(held, chosen, colours, _FAINTEST, pixels)
    if lit is not None:
        pixels[_lit_cells(held.by_class[-1], lit), :3] = colours[len(held.by_class) - 1]
    return RasterImage(pixels)


def _lit_cells(held: Floats, high: int) -> NDArray[np.bool_]:
    """The cells of a map's image with bytes, and those below that share their pixel: a browser shows one line."""
    found = held >= 0.5  # of a byte: sums of parts are not exact
    lit = found.copy()
    for below in range(1, -(-len(found) // max(high, 1))):
        lit[below:] |= found[:-below]
    return lit


def lone_raster_cells(held: CellBytes, apart: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of mostly free cells with some bytes in use, and none within `apart` cells on both sides."""
    used = held.in_use > 0
    totals = np.pad(np.cumsum(used, axis=1), ((0, 0), (apart + 1, apart)), mode="edge")
    totals[:, : apart + 1] = 0
    around: NDArray[np.int64] = totals[:, 2 * apart + 1 :] - totals[:, : -2 * apart - 1]
    row, column = np.nonzero(used & (around == 1) & (held.in_use < _FAINTEST * held.region))
    return row, column


class MergedCells(CellBytes):
    """The bytes of the cells of a map's image of which several are one: their rows were merged."""


def merged_raster_rows(held: CellBytes) -> CellBytes:
    """Merge rows of a map's image if there are more than lines, so that a lone chunk stays visible."""
    rows = len(held.region)
    if rows <= LINES:
        return held
    cut = np.linspace(0, rows, LINES + 1).astype(np.intp)
    first, count = cut[:-1], np.diff(cut)

    def sums(each: Floats) -> Floats:
        total = each[..., first, :]
        for more in range(1, int(count.max())):  # np.add.reduceat takes ten times as long
            line = np.flatnonzero(count > more)
            total[..., line, :] += each[..., first[line] + more, :]
        return total

    return MergedCells(*map(sums, (held.in_use, held.waste, held.region, held.by_class)))


# ------------------------------------------------------------------------------
# The region map of a running heap as an image, updated by events alone.
#
# The bytes of each cell are kept as sums: an ALLOCATE adds its chunk, a FREE subtracts it. An image costs its pixels
# and the events since the last image, however many chunks the heap has.


_CELLS: Final = 7680  # fewer than the map of a heap that is not running
_MOST_COLUMNS: Final = 480
_FEWEST_COLUMNS: Final = 60
_LOW: Final = np.uint64(0xFFFF_FFFF)


class LiveMap:
    """The whole region map of one heap as an image, from the model's step on.

    A region that is granted later is missing: it needs a new map. A colouring by age needs a new map too, because
    ages change without events: see `moves`.

    Args:
        model: the heap; its chunks are read here, and the model is not kept.
        colours: the colouring of chunks in use.
        theme: all other colours.

    Attributes:
        step: the step that is shown.
        rows: the layout of the regions.
        divisor: bytes per unit of the map's x axis.
        cells: the bytes of each cell; None if the heap has no region.
    """

    def __init__(self, model: Model, colours: Colouring, theme: Theme) -> None:
        self.step = model.step
        self.rows = lay_out(model.regions())
        self.divisor = axis_unit(float(self.rows.width))[0]
        self.colours = colours
        self._theme = theme
        self._columns = int(np.clip(_CELLS // max(len(self.rows), 1), _FEWEST_COLUMNS, _MOST_COLUMNS))
        self.cells = self._cells_of(model) if len(self.rows) else None

    @property
    def moves(self) -> bool:
        """Whether events alone can update the image of the live map."""
        return self.colours.name != "age"

    @property
    def _by_state(self) -> bool:
        return self.colours.name == "state"

    def take(self, events: Events) -> None:
        """Apply `events` to the image of the live map, those from `step` on."""
        self.step += len(events)
        if self.cells is not None:
            self.cells.take(events, self._classes(events if self._by_state else live_map_chunks(events)))

    def image(self) -> dict[str, Any]:
        """The fields of plotly's image trace that change in the live map."""
        if self.cells is None:
            return {"visible": False}
        fills = [paint.fill for paint in self.colours.paints]
        held, waste = self.cells.cell_bytes(), self.colours.shows_waste
        picture = raster_image(held, fills, self._theme, waste=waste)
        dx, dy = self.rows.width / self.divisor / self._columns, len(self.rows) / len(picture)
        place = {"dx": dx, "dy": dy, "x0": dx / 2, "y0": dy / 2}
        return {"visible": True, "source": picture.data_uri(), **place}

    def _cells_of(self, model: Model) -> Cells:
        cells = Cells(self.rows, self._columns, len(self.colours.paints), model.pool)
        used = model.in_use()
        cells.add_chunks(used["address"], used["size"], used["requested"], self._classes(used))
        return cells

    def _classes(self, chunks: NDArray[np.void]) -> NDArray[np.uint8]:
        """The class of each chunk in use; coloured by state there is only one class."""
        return np.zeros(len(chunks), np.uint8) if self._by_state else self.colours.classes(chunks, self.step)


def live_map_chunks(events: Events) -> NDArray[np.void]:
    """The chunk that each ALLOCATE and FREE adds to a live map, or takes from it, as CHUNK records in use."""
    chunks = np.zeros(len(events), CHUNK)
    for name in ("address", "size", "requested", "label", "thread", "stream"):
        chunks[name] = events[name]
    # `other` of a FREE is the low half of the `seq` of its ALLOCATE.
    seq, low = events["seq"], events["other"].astype(np.uint64)
    born = (seq & ~_LOW) + low - np.where(low > seq & _LOW, _LOW + np.uint64(1), np.uint64(0))
    chunks["born"] = np.where(events["kind"] == Kind.FREE, born, seq)
    chunks["in_use"] = True
    return chunks
