"""Paint chunks as pixels: the cost depends on the pixels, not on the number of chunks.

A pixel mixes the colours of its bytes by their share. Running totals of bytes and of bytes times colour make a
pixel two look-ups, whether it shows a tenth of a chunk or ten thousand chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.cell_bytes import CellBytes
from bfcviz.figures.region_map.cells import paint_cells
from bfcviz.figures.region_map.rows import Rows, VisibleRows
from bfcviz.figures.shapes import data_uri
from bfcviz.figures.theme import Theme, rgb

LINES = 480
"""Pixel lines of an image at most, gaps between rows included; if there are more rows, rows share lines."""

_FAINTEST = (
    0.3  # a single chunk in an otherwise free pixel can keep gigabytes from being freed: it stays visible
)
_LINES_A_ROW = 12  # enough to show the gaps; fewer lines are faster to make, compress and send


@dataclass(frozen=True)
class RasterGrid:
    """The cells of an image: `columns` cells in each row of `part`."""

    rows: Rows
    part: VisibleRows
    columns: int


@dataclass(frozen=True)
class RasterImage:
    """An image: each row of cells is several lines high, with a transparent gap around it if there is room.

    Attributes:
        pixels: (rows, columns, 4): red, green, blue and opacity, rows from the top.
    """

    pixels: NDArray[np.uint8]

    @property
    def high(self) -> int:
        """Lines per row."""
        return min(max(LINES // len(self.pixels), 1), _LINES_A_ROW)

    def __len__(self) -> int:
        return len(self.pixels) * self.high

    def data_uri(self) -> str:
        """The image as a data URI, plotly's `source`."""
        gap = max(round(self.high * 0.08), 1) if self.high >= 3 else 0
        return data_uri(self.pixels, self.high, gap)


def cell_bytes(
    chunks: NDArray[np.void], classes: NDArray[np.uint8], fills: Sequence[str], grid: RasterGrid
) -> CellBytes:
    """The bytes of each cell of `grid`.

    Args:
        chunks: CHUNK records, shape (n,), by address, n >= 1; must include all chunks on the grid.
        classes: the class of each chunk, an index into `fills`; ignored for free chunks.
        fills: the colour of each class, `#RRGGBB`.
        grid: the cells to measure.
    """
    rows = grid.rows
    # Position: bytes from the start of the first region, gaps between regions left out.
    before = _before(rows.size.astype(np.float64))
    begin = _positions(np.ascontiguousarray(chunks["address"]), rows, before)
    used = np.where(chunks["in_use"], chunks["size"], 0).astype(np.float64)
    asked = np.minimum(chunks["requested"].astype(np.float64), used)

    edge = _edges(grid, before)
    at = np.maximum(np.searchsorted(begin, edge, side="right") - 1, 0)
    inside = np.clip(edge - begin[at], 0.0, used[at])
    # Waste begins inside a chunk: its total is constant up to `requested`, then rises to the chunk's end.
    spilled = np.maximum(inside - asked[at], 0.0)
    in_use = np.diff(_before(used)[at] + inside, axis=1)
    lut = np.zeros((256, 3))
    lut[: len(fills)] = [rgb(fill) for fill in fills]
    if len(fills) == 1:
        colour = in_use[..., None] * lut[0]
    else:
        totals = [_before(used * lut[classes, i])[at] + inside * lut[classes[at], i] for i in range(3)]
        colour = np.stack([np.diff(total, axis=1) for total in totals], axis=-1)
    return CellBytes(
        in_use=in_use,
        waste=np.diff(_before(used - asked)[at] + spilled, axis=1),
        region=np.diff(edge, axis=1),
        colour=colour,
    )


def _positions(address: NDArray[np.uint64], rows: Rows, before: NDArray[np.float64]) -> NDArray[np.float64]:
    """The positions of these addresses (ascending)."""
    first = np.searchsorted(address, rows.address)
    count = np.diff(np.append(first, len(address)))
    positions: NDArray[np.float64] = (address - np.repeat(rows.address, count)).astype(np.float64)
    positions += np.repeat(before[:-1], count)
    return positions


def _edges(grid: RasterGrid, before: NDArray[np.float64]) -> NDArray[np.float64]:
    """The positions between the cells of each row, (rows, columns + 1)."""
    rows, part = grid.rows, grid.part
    row = np.arange(part.first, part.stop)
    region = rows.region_of(row)
    row_begin = (row - rows.first[region]) * float(rows.width)
    edge = row_begin[:, None] + np.linspace(part.left, part.right, grid.columns + 1)[None, :]
    inside = np.minimum(edge, rows.size[region].astype(np.float64)[:, None])
    positions: NDArray[np.float64] = before[region][:, None] + inside
    return positions


def _before(amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of all amounts before each one, shape (n + 1,): the last entry is the total."""
    sums = np.zeros(len(amounts) + 1)
    np.cumsum(amounts, out=sums[1:])
    return sums


def paint(held: CellBytes, theme: Theme, *, waste: bool = True) -> RasterImage:
    """The image of these cells; `waste` shows wasted bytes in their own colour, not in that of their chunk."""
    held = _merged(held)
    held = held if waste else replace(held, waste=np.zeros_like(held.waste))
    states = np.array([rgb(theme.free.fill), rgb(theme.waste.fill)], np.float64)
    pixels = np.empty((*held.region.shape, 4), np.uint8)
    paint_cells(held, states, _FAINTEST, pixels)
    return RasterImage(pixels)


def lone(held: CellBytes, apart: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of mostly free cells with some bytes in use, and none within `apart` cells on both sides."""
    used = held.in_use > 0
    totals = np.pad(np.cumsum(used, axis=1), ((0, 0), (apart + 1, apart)), mode="edge")
    totals[:, : apart + 1] = 0
    around: NDArray[np.int64] = totals[:, 2 * apart + 1 :] - totals[:, : -2 * apart - 1]
    row, column = np.nonzero(used & (around == 1) & (held.in_use < _FAINTEST * held.region))
    return row, column


def _merged(held: CellBytes) -> CellBytes:
    """Merge rows if there are more rows than lines, so that a lone chunk in any of them stays visible."""
    rows = len(held.region)
    if rows <= LINES:
        return held
    cut = np.linspace(0, rows, LINES, endpoint=False).astype(np.intp)
    sums = (held.in_use, held.waste, held.region, held.colour)
    return CellBytes(*(np.add.reduceat(each, cut, axis=0) for each in sums))
