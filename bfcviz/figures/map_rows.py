"""Rows: the layout of addresses on the region map; a long region wraps into several rows like text.

::

      row 0  region 0  |aaaaaaaabbbbbbbbbbbb|      every row spans `width` bytes
      row 1  + width   |bbbbcccc            |      (b continues here: two pieces of one chunk)
      row 2  region 1  |dddddddddddddd|
"""

from dataclasses import dataclass
from math import ceil, floor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.view_options import MapWindow, Selected
from bfcviz.model import Model

WRAPPED_ROWS = 16  # rows of the map, if the regions alone do not need more


@dataclass(frozen=True)
class VisibleRows:
    """The part of the map's rows that is on screen."""

    left: float  # bytes from the rows' left edge
    right: float  # the right end, likewise
    first: int  # the first row at least partly on screen
    stop: int  # the row after the last

    def __len__(self) -> int:
        """Rows at least partly on screen; 0 if only empty space is on screen."""
        return max(self.stop - self.first, 0) if self.left < self.right else 0


@dataclass(frozen=True)
class Pieces:
    """Address ranges split at the ends of the map's rows; one entry per piece."""

    source: NDArray[np.intp]  # the index of the piece's range
    row: NDArray[np.intp]  # its row
    left: NDArray[np.float64]  # bytes from the row's left edge, float64 (exact to 2^53)
    right: NDArray[np.float64]  # the right end, likewise

    def __len__(self) -> int:
        return len(self.row)

    def within(self, part: VisibleRows) -> "Pieces":
        """The pieces of rows at least partly in `part`; they are not clipped."""
        seen = (self.row >= part.first) & (self.row < part.stop)
        seen &= (self.left < part.right) & (self.right > part.left)
        return self.only(seen)

    def only(self, wanted: NDArray[np.bool_]) -> "Pieces":
        """The pieces of rows where `wanted` is true."""
        return Pieces(self.source[wanted], self.row[wanted], self.left[wanted], self.right[wanted])

    def ends_in(self, part: VisibleRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The left and the right end of each piece of a row, clipped to `part`."""
        return np.maximum(self.left, part.left), np.minimum(self.right, part.right)


@dataclass(frozen=True)
class Rows:
    """The rows of the map: the layout of one set of regions."""

    width: int  # bytes per full row: a power of two, at least 256
    address: NDArray[np.uint64]  # of each region, ascending, uint64
    size: NDArray[np.uint64]  # bytes of each region, uint64
    slot: NDArray[np.uint16]  # the number of each region
    first: NDArray[np.intp]  # the first row of each region; a last entry holds the number of rows
    order: NDArray[np.intp]  # the regions in the order of their rows: by address, or by size

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def are_by_size(self) -> bool:
        """Whether rows are in the order of the sizes of regions."""
        return bool((np.diff(self.order) < 0).any())

    def pieces(self, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> Pieces:
        """Split address ranges at the ends of the map's rows; each is not empty and lies inside one region."""
        region = np.searchsorted(self.address, address, side="right") - 1
        begin = (address - self.address[region]).astype(np.float64)
        end = begin + size.astype(np.float64)
        first_row = (begin // self.width).astype(np.intp)
        count = ((end - 1) // self.width).astype(np.intp) - first_row + 1
        source = np.repeat(np.arange(len(address)), count)
        nth = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
        row_in_region = first_row[source] + nth
        edge = row_in_region * float(self.width)
        return Pieces(
            source=source,
            row=self.first[region][source] + row_in_region,
            left=np.maximum(begin[source], edge) - edge,
            right=np.minimum(end[source], edge + self.width) - edge,
        )

    def part(self, window: MapWindow | None) -> VisibleRows:
        """The part of the map's rows that `window` shows (None: all), clipped to the existing rows."""
        if window is None:
            return VisibleRows(0.0, float(self.width), 0, len(self))
        left, right = (min(max(end, 0.0), float(self.width)) for end in sorted(window.bytes))
        top, bottom = (min(max(end, 0.0), float(len(self))) for end in sorted(window.rows))
        return VisibleRows(left, right, floor(top), ceil(bottom))

    def region_of(self, row: NDArray[np.intp]) -> NDArray[np.intp]:
        """The index of the region of each row of the map."""
        found: NDArray[np.intp] = self.order[np.searchsorted(self.first[self.order], row, side="right") - 1]
        return found

    def chunks_in(self, address: NDArray[np.uint64], part: VisibleRows) -> tuple[NDArray[np.intp], int]:
        """Which chunks are at least partly in `part` of the rows, and in how many pieces.

        Args:
            address: the addresses of all chunks, ascending; the chunks tile the regions.
            part: the part on screen.

        Returns:
            Indices of `address`, ascending; an upper bound of the pieces (an end of a row may fall between chunks).
        """
        if part == self.part(None):
            return np.arange(len(address)), len(address) + len(self) - len(self.size)
        row = np.arange(part.first, part.first + len(part))
        region = self.region_of(row)
        edge = (row - self.first[region]) * self.width
        begin = edge + floor(part.left)
        end = np.minimum(edge + ceil(part.right), self.size[region].astype(np.int64))
        not_empty = begin < end
        base = self.address[region][not_empty]
        low = np.searchsorted(address, base + begin[not_empty].astype(np.uint64), side="right") - 1
        high = np.searchsorted(address, base + end[not_empty].astype(np.uint64), side="left")
        pieces = int((high - low).sum())
        by_address = np.argsort(low, kind="stable")
        low, high = low[by_address], high[by_address]
        # A chunk may continue from the row before.
        low = np.maximum(low, np.append(0, high[:-1])[: len(low)])
        count = np.maximum(high - low, 0)
        return np.arange(count.sum()) + np.repeat(low - (np.cumsum(count) - count), count), pieces

    def of_regions(self) -> Pieces:
        """One piece per row of the map: the bytes of its region in it."""
        return self.pieces(self.address, self.size)


@dataclass(frozen=True)
class CellBytes:
    """The bytes of each cell of an even grid over the map's rows: arrays (rows, columns), float64.

    An image of the map is painted from it. It is here and not in `cells`: a compiled module that is imported first
    cannot give a class to the modules that it imports itself.
    """

    in_use: NDArray[np.float64]  # bytes of chunks in use, waste included
    waste: NDArray[np.float64]  # bytes of chunks in use that were not requested
    region: NDArray[np.float64]  # bytes inside a region
    by_class: NDArray[np.float64]  # (classes, rows, columns): bytes in use of each class

    @classmethod
    def unfilled(cls, classes: int, rows: int, columns: int) -> "CellBytes":
        """Arrays for so many cells, with undefined values."""
        shape = rows, columns
        return cls(np.empty(shape), np.empty(shape), np.empty(shape), np.empty((classes, *shape)))


MANY_REGIONS: Final = 64
"""Of more regions the rows are too low to tell one from the next: those of one size lie together."""


def rows_of(model: Model) -> Rows:
    """The map's rows for the heap at its step: by address; of many regions by size, unless more may come."""
    regions = model.regions()
    return lay_out(regions, by_size=len(regions) > MANY_REGIONS and not model.trace.following)


def lay_out(regions: NDArray[np.void], wrapped_rows: int = WRAPPED_ROWS, *, by_size: bool = False) -> Rows:
    """Rows of the map for `regions` (the model's REGION records, ascending), or the largest ones first.

    The width is the smallest power of two at which the regions need at most `wrapped_rows` rows; if there are
    more than half as many regions, at most `wrapped_rows` rows more than regions.
    """
    address = regions["address"].astype(np.uint64)
    size = regions["size"].astype(np.uint64)
    allowed = wrapped_rows if len(regions) <= wrapped_rows // 2 else len(regions) + wrapped_rows
    width = 256
    while len(regions) and int(_rows_needed(size, width).sum()) > allowed:
        width *= 2
    order = np.argsort(~size, kind="stable") if by_size else np.arange(len(size))
    ends = np.cumsum(_rows_needed(size, width)[order]).astype(np.intp)
    first = np.zeros(len(size) + 1, np.intp)
    first[order[1:]] = ends[:-1]
    first[-1] = ends[-1] if len(ends) else 0
    slot = regions["slot"].astype(np.uint16)
    return Rows(width=width, address=address, size=size, slot=slot, first=first, order=order)


def _rows_needed(size: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    return (size + np.uint64(width - 1)) // np.uint64(width)


def no_pieces() -> Pieces:
    """Empty pieces of rows."""
    return Pieces(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), np.empty(0))


SPAN: Final = np.dtype([("address", "<u8"), ("size", "<u8")])
"""The span of a chunk to highlight, such as the one that the user selected."""


def selected(chunks: NDArray[np.void], chosen: Selected | None) -> NDArray[np.void]:
    """The span of the selected chunk on the map's rows if it still exists, as at most one `SPAN` record."""
    if chosen is None or not len(chunks):
        return np.empty(0, SPAN)
    at = int(np.searchsorted(chunks["address"], np.uint64(chosen.address)))
    if at == len(chunks) or chunks["address"][at] != chosen.address:
        return np.empty(0, SPAN)
    born = int(chunks["born"][at]) if chunks["in_use"][at] else None
    spans = [(chosen.address, int(chunks["size"][at]))] if born == chosen.born else []
    return np.array(spans, SPAN)
