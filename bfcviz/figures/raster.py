"""Chunks -> pixels: what a region map costs depends on its pixels, however many chunks there are.

A pixel's colour mixes what its bytes are by their share. Chunks are read through running totals of bytes in
use and wasted, so that a pixel is two look-ups, whether it shows a tenth of a chunk or ten thousand of them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.rows import Rows
from bfcviz.figures.theme import Theme, rgb

LINES = 480
"""Pixel lines of the picture, gaps between rows included (more rows than that share lines)."""

_FAINTEST = 0.3  # a single chunk in an otherwise free pixel may pin gigabytes: it is never blended away


@dataclass(frozen=True)
class Shares:
    """What the cells of an even grid over the rows hold, each (rows, columns) float64, in bytes."""

    in_use: NDArray[np.float64]
    waste: NDArray[np.float64]
    region: NDArray[np.float64]


def shares(chunks: NDArray[np.void], rows: Rows, columns: int) -> Shares:
    """Measures bytes in use (waste included), wasted, and inside a region, in each cell of every row."""
    # Position: bytes from the first region's start, as if the regions lay side by side.
    before = np.concatenate([[0.0], np.cumsum(rows.size.astype(np.float64))])
    region = np.searchsorted(rows.address, chunks["address"], side="right") - 1
    begin = before[region] + (chunks["address"] - rows.address[region]).astype(np.float64)
    size = chunks["size"].astype(np.float64)
    requested = np.where(chunks["in_use"], chunks["requested"], chunks["size"]).astype(np.float64)

    row_region = np.repeat(np.arange(len(rows.size)), np.diff(rows.first))
    row_begin = (np.arange(len(rows)) - rows.first[row_region]) * float(rows.width)
    edge = row_begin[:, None] + np.linspace(0.0, float(rows.width), columns + 1)[None, :]
    edge = before[row_region][:, None] + np.minimum(edge, rows.size[row_region].astype(np.float64)[:, None])

    ends = np.append(begin, before[-1])
    used = np.append(0.0, np.cumsum(np.where(chunks["in_use"], size, 0.0)))
    # Waste begins inside a chunk: its total stands still up to `requested`, then rises to the chunk's end.
    corners = np.append(np.column_stack([begin, begin + np.minimum(requested, size)]).ravel(), before[-1])
    spilled = np.append(0.0, np.cumsum(np.maximum(size - requested, 0.0)))
    wasted = np.append(np.repeat(spilled[:-1], 2), spilled[-1])
    return Shares(
        in_use=np.diff(np.interp(edge, ends, used), axis=1),
        waste=np.diff(np.interp(edge, corners, wasted), axis=1),
        region=np.diff(edge, axis=1),
    )


def paint(held: Shares, theme: Theme) -> NDArray[np.uint8]:
    """The picture (lines, columns, 4): rows from the top, a clear gap around each where there is room."""
    total = np.maximum(held.region, 1e-9)
    waste = held.waste / total
    used = held.in_use / total
    used = np.where(held.in_use > 0, np.maximum(used, _FAINTEST), 0.0)
    used, waste = np.clip(used - waste, 0.0, 1.0), np.clip(waste, 0.0, 1.0)
    colours = np.array(
        [rgb(theme.in_use.fill), rgb(theme.waste.fill), rgb(theme.free.fill)], dtype=np.float64
    )
    mixed = np.stack([used, waste, np.clip(1.0 - used - waste, 0.0, 1.0)], axis=-1) @ colours
    pixels = np.zeros((*used.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.rint(mixed)
    pixels[..., 3] = np.where(held.region > 0, 255, 0)
    return _as_lines(pixels)


def _as_lines(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each row as several lines with a clear one between, or several rows averaged into each line."""
    rows, columns, _ = pixels.shape
    if rows > LINES:
        cut = np.linspace(0, rows, LINES, endpoint=False).astype(np.intp)
        sums = np.add.reduceat(pixels.astype(np.float64) * (pixels[..., 3:] > 0), cut, axis=0)
        filled = np.add.reduceat((pixels[..., 3:] > 0).astype(np.float64), cut, axis=0)
        mean: NDArray[np.uint8] = np.rint(sums / np.maximum(filled, 1.0)).astype(np.uint8)
        return mean
    high = max(LINES // rows, 1)
    lines = np.repeat(pixels, high, axis=0).reshape(rows, high, columns, 4)
    if high >= 3:
        gap = max(round(high * 0.08), 1)
        lines[:, :gap] = 0
        lines[:, high - gap :] = 0
    return lines.reshape(rows * high, columns, 4)
