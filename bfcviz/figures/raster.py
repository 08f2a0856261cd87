"""Chunks -> pixels: what a region map costs depends on its pixels, however many chunks there are.

A pixel's colour mixes what its bytes are by their share. Chunks are read through running totals of bytes and of
bytes times colour, so that a pixel is two look-ups, whether it shows a tenth of a chunk or ten thousand of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.rows import Part, Rows
from bfcviz.figures.theme import Theme, rgb

LINES = 480
"""Most pixel lines of the picture, gaps between rows included (more rows than that share lines)."""

_LINES_A_ROW = 12  # as many as show the gaps; fewer lines are made, packed and sent sooner
_FAINTEST = 0.3  # a single chunk in an otherwise free pixel may pin gigabytes: it is never blended away


@dataclass(frozen=True)
class Grid:
    """The cells of a picture: `columns` across each of the rows that are seen in `part`."""

    rows: Rows
    part: Part
    columns: int


@dataclass(frozen=True)
class Shares:
    """What the cells of an even grid over the rows hold, each (rows, columns) float64, in bytes.

    Attributes:
        in_use: in chunks in use, waste included.
        waste: nobody asked for.
        region: inside a region.
        colour: (rows, columns, 3): the sum of the colours (0..255) of the bytes in use.
    """

    in_use: NDArray[np.float64]
    waste: NDArray[np.float64]
    region: NDArray[np.float64]
    colour: NDArray[np.float64]


def shares(chunks: NDArray[np.void], classes: NDArray[np.uint8], fills: Sequence[str], grid: Grid) -> Shares:
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
    return Shares(
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


def _edges(grid: Grid, before: NDArray[np.float64]) -> NDArray[np.float64]:
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


def paint(held: Shares, theme: Theme, *, waste: bool = True) -> NDArray[np.uint8]:
    """The picture (lines, columns, 4): rows from the top, a clear gap around each where there is room.

    `waste`: show wasted bytes in their own colour, not in that of their chunk.
    """
    held = _merged(held)
    total = np.maximum(held.region, 1e-9)
    used = np.where(held.in_use > 0, np.clip(held.in_use / total, _FAINTEST, 1.0), 0.0)
    spilled = np.clip(held.waste / total, 0.0, 1.0) if waste else np.zeros_like(used)
    asked = np.clip(used - spilled, 0.0, 1.0)
    hue = held.colour / np.maximum(held.in_use, 1e-9)[..., None]
    mixed = (
        asked[..., None] * hue
        + spilled[..., None] * np.array(rgb(theme.waste.fill))
        + np.clip(1.0 - asked - spilled, 0.0, 1.0)[..., None] * np.array(rgb(theme.free.fill))
    )
    pixels = np.zeros((*used.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.rint(mixed)
    pixels[..., 3] = np.where(held.region > 0, 255, 0)
    return _as_lines(pixels)


def lone(held: Shares, apart: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of the cells that are mostly free, with nothing in use `apart` cells to either side."""
    used = held.in_use > 0
    totals = np.pad(np.cumsum(used, axis=1), ((0, 0), (apart + 1, apart)), mode="edge")
    totals[:, : apart + 1] = 0
    around: NDArray[np.int64] = totals[:, 2 * apart + 1 :] - totals[:, : -2 * apart - 1]
    row, column = np.nonzero(used & (around == 1) & (held.in_use < _FAINTEST * held.region))
    return row, column


def _merged(held: Shares) -> Shares:
    """Several rows as one where there are more than lines: so a lone chunk in any of them still shows."""
    rows = len(held.region)
    if rows <= LINES:
        return held
    cut = np.linspace(0, rows, LINES, endpoint=False).astype(np.intp)
    sums = (held.in_use, held.waste, held.region, held.colour)
    return Shares(*(np.add.reduceat(each, cut, axis=0) for each in sums))


def _as_lines(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each row as several lines, with a clear one between where there is room."""
    rows, columns, _ = pixels.shape
    high = min(max(LINES // rows, 1), _LINES_A_ROW)
    lines = np.repeat(pixels, high, axis=0).reshape(rows, high, columns, 4)
    if high >= 3:
        gap = max(round(high * 0.08), 1)
        lines[:, :gap] = 0
        lines[:, high - gap :] = 0
    return lines.reshape(rows * high, columns, 4)
