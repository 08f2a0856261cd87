"""Chunks -> pixels: what a region map costs depends on its pixels, however many chunks there are.

A pixel's colour mixes what its bytes are by their share. Chunks are read through running totals of bytes and of
bytes times colour, so that a pixel is two look-ups, whether it shows a tenth of a chunk or ten thousand of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.region_map.raster.cell_bytes import CellBytes
from bfcviz.figures.region_map.raster.cells import paint_cells
from bfcviz.figures.region_map.rows import Rows, VisibleRows
from bfcviz.figures.style.png import data_uri
from bfcviz.figures.style.theme import Theme, rgb

LINES = 480
"""Most pixel lines of the picture, gaps between rows included (more rows than that share lines)."""

_FAINTEST = 0.3  # a single chunk in an otherwise free pixel may pin gigabytes: it is never blended away
_LINES_A_ROW = 12  # as many as show the gaps; fewer lines are made, packed and sent sooner


@dataclass(frozen=True)
class RasterGrid:
    """The cells of a picture: `columns` across each of the rows that are seen in `part`."""

    rows: Rows
    part: VisibleRows
    columns: int


@dataclass(frozen=True)
class RasterImage:
    """A picture, each row of cells some lines high, with a clear gap around it where there is room.

    Attributes:
        pixels: (rows, columns, 4): red, green, blue and opacity, rows from the top.
    """

    pixels: NDArray[np.uint8]

    @property
    def high(self) -> int:
        """Lines of a row."""
        return min(max(LINES // len(self.pixels), 1), _LINES_A_ROW)

    def __len__(self) -> int:
        return len(self.pixels) * self.high

    def data_uri(self) -> str:
        """What plotly takes for an image's source."""
        gap = max(round(self.high * 0.08), 1) if self.high >= 3 else 0
        return data_uri(self.pixels, self.high, gap)


def cell_bytes(
    chunks: NDArray[np.void], classes: NDArray[np.uint8], fills: Sequence[str], grid: RasterGrid
) -> CellBytes:
    """Measures each cell of `grid`.

    Args:
        chunks: shape (n,) of CHUNK, by address; at least all that are seen, and one.
        classes: of each, an index into `fills`; of free ones it does not matter.
        fills: the colour of each class, `#RRGGBB`.
        grid: where to look.
    """
    rows = grid.rows
    # Position: bytes from the first region's start, as if the regions lay side by side.
    before = _before(rows.size.astype(np.float64))
    begin = _positions(np.ascontiguousarray(chunks["address"]), rows, before)
    used = np.where(chunks["in_use"], chunks["size"], 0).astype(np.float64)
    asked = np.minimum(chunks["requested"].astype(np.float64), used)

    edge = _edges(grid, before)
    at = np.maximum(np.searchsorted(begin, edge, side="right") - 1, 0)
    inside = np.clip(edge - begin[at], 0.0, used[at])
    # Waste begins inside a chunk: its total stands still up to `requested`, then rises to the chunk's end.
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
    """Where these addresses, ascending, lie when the regions lie side by side."""
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
    """The sum of all amounts before each, and at the end of all."""
    sums = np.zeros(len(amounts) + 1)
    np.cumsum(amounts, out=sums[1:])
    return sums


def paint(held: CellBytes, theme: Theme, *, waste: bool = True) -> RasterImage:
    """The picture of these cells.

    `waste`: show wasted bytes in their own colour, not in that of their chunk.
    """
    held = _merged(held)
    held = held if waste else replace(held, waste=np.zeros_like(held.waste))
    states = np.array([rgb(theme.free.fill), rgb(theme.waste.fill)], np.float64)
    pixels = np.empty((*held.region.shape, 4), np.uint8)
    paint_cells(held, states, _FAINTEST, pixels)
    return RasterImage(pixels)


def lone(held: CellBytes, apart: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of the cells that are mostly free, with nothing in use `apart` cells to either side."""
    used = held.in_use > 0
    totals = np.pad(np.cumsum(used, axis=1), ((0, 0), (apart + 1, apart)), mode="edge")
    totals[:, : apart + 1] = 0
    around: NDArray[np.int64] = totals[:, 2 * apart + 1 :] - totals[:, : -2 * apart - 1]
    row, column = np.nonzero(used & (around == 1) & (held.in_use < _FAINTEST * held.region))
    return row, column


def _merged(held: CellBytes) -> CellBytes:
    """Several rows as one where there are more than lines: so a lone chunk in any of them still shows."""
    rows = len(held.region)
    if rows <= LINES:
        return held
    cut = np.linspace(0, rows, LINES, endpoint=False).astype(np.intp)
    sums = (held.in_use, held.waste, held.region, held.colour)
    return CellBytes(*(np.add.reduceat(each, cut, axis=0) for each in sums))
