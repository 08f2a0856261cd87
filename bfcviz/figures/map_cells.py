"""Cells: the bytes in use of each cell of an even grid over the rows, updated by events; and the pixels of cells.

The sums hold differences: a chunk from 1.25 to 3.5 cells is +0.75 at cell 1, +0.25 at 2, -0.5 at 3 and -0.5 at 4,
and their running total is 0.75, 1, 0.5, 0: four numbers a chunk, however many cells it covers.

The compiled code keeps the GIL: it runs for a fraction of a millisecond, and a renderer that released the GIL beside
a busy thread would wait 5 ms to get it back.
"""

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.figures.map_rows import CellBytes, Rows
from bfcviz.model import array_access
from bfcviz.model.row_storage import contiguous


class Cells:
    """The cells of the region map of one heap, all empty at first.

    Regions that are granted later have no cells, nor do the bytes by which a region grows later.

    Args:
        rows: where addresses lie; one row at least.
        columns: cells across a row.
        classes: how many classes of chunks in use there are; one at least.
        pool: the heap; events of other heaps are skipped.
    """

    def __init__(self, rows: Rows, columns: int, classes: int, pool: int) -> None:
        self._address = rows.address
        self._size = rows.size
        self._first = rows.first * columns
        self._regions = len(rows.size)
        self._columns = columns
        self._count = len(rows) * columns
        self._cell = rows.width / columns
        self._classes = classes
        self._pool = pool
        layers = array_access.FIRST_CLASS + classes
        self._sums = np.zeros((layers, self._count + 2))
        self._totals = np.zeros(layers)

    def add_chunks(
        self,
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
        requested: NDArray[np.uint64],
        classes: NDArray[np.uint8],
    ) -> None:
        """Add chunks in use to the map's cells: columns of n values; `classes` are 0 to `classes - 1`."""
        for i in range(len(address)):
            self._add(address[i], size[i], requested[i], classes[i], 1.0)

    def take(self, block: Events, classes: NDArray[np.uint8]) -> None:
        """Add the chunk of each ALLOCATE to the map's cells and subtract that of each FREE.

        Args:
            block: (n,) events.
            classes: (n,): the class of each ALLOCATE and FREE; ignored for other events.
        """
        block = contiguous(block)
        count = len(block)
        events = array_access.events(block)
        for i in range(count):
            e = array_access.event(events, i)
            if e.pool != self._pool:
                continue
            if e.kind == array_access.ALLOCATE:
                self._add(e.address, e.size, e.requested, classes[i], 1.0)
            elif e.kind == array_access.FREE:
                self._add(e.address, e.size, e.requested, classes[i], -1.0)

    def cell_bytes(self) -> CellBytes:
        """The bytes of each cell of the map."""
        held = CellBytes.unfilled(self._classes, self._count // self._columns, self._columns)
        in_use = held.in_use.reshape(-1)
        waste = held.waste.reshape(-1)
        region = held.region.reshape(-1)
        by_class = held.by_class.reshape(self._classes, -1)
        self._totals[:] = 0.0
        mine = 0
        for i in range(self._count):
            while mine + 1 < self._regions and i >= self._first[mine + 1]:
                mine += 1
            left = self._size[mine] - (i - self._first[mine]) * self._cell
            region[i] = min(max(left, 0.0), self._cell)
            in_use[i] = self._total(array_access.HELD, i)
            waste[i] = self._total(array_access.WASTED, i)
            for each in range(self._classes):
                by_class[each, i] = self._total(array_access.FIRST_CLASS + each, i)
        return held

    def _total(self, layer: int, i: int) -> float:
        """Bytes of cell `i` of a layer; call it for each cell in order."""
        self._totals[layer] += self._sums[layer, i]
        total = self._totals[layer]
        # Smaller totals are rounding errors, of addresses that need all bits of a double.
        return total * self._cell if total > 1e-7 or total < -1e-7 else 0.0

    def _add(self, address: int, size: int, requested: int, class_: int, sign: float) -> None:
        mine = self._region_of(address)
        if mine < 0 or class_ >= self._classes:
            return
        # A region may have grown since the rows were laid out: a chunk can reach past its old end.
        size = min(size, self._size[mine] - (address - self._address[mine]))
        begin = self._first[mine] + (address - self._address[mine]) / self._cell
        end = begin + size / self._cell
        self._ramp(array_access.HELD, begin, end, sign)
        self._ramp(array_access.WASTED, begin + min(requested, size) / self._cell, end, sign)
        self._ramp(array_access.FIRST_CLASS + class_, begin, end, sign)

    def _region_of(self, address: int) -> int:
        """The index of the region that holds an address; -1 if none of these does."""
        low, high = 0, self._regions
        while low < high:
            middle = (low + high) >> 1
            if self._address[middle] <= address:
                low = middle + 1
            else:
                high = middle
        low -= 1
        return low if low >= 0 and address - self._address[low] < self._size[low] else -1

    def _ramp(self, layer: int, begin: float, end: float, weight: float) -> None:
        self._step(layer, begin, weight)
        self._step(layer, end, -weight)

    def _step(self, layer: int, place: float, weight: float) -> None:
        at = min(array_access.whole_part(place), self._count)
        late = (place - at) * weight
        self._sums[layer, at] += weight - late
        self._sums[layer, at + 1] += late


def choose_classes(by_class: NDArray[np.float64], out: NDArray[np.uint8], along_rows: bool = False) -> None:  # noqa: FBT001, FBT002  Cython has no named ones
    """Choose the class that colours each cell of the map.

    Two colours mixed can look like a third that means something else, such as free. So of neighbours that hold several
    classes, each class colours its share (ordered dithering): of 4 by 4 cells, or of 16 rows.

    Args:
        by_class: (classes, rows, columns), bytes.
        out: (rows, columns), is overwritten; a class that the cell has bytes of, or 0.
        along_rows: a row that has the same classes in all its cells has the colour of one of them all along:
            for rows that stand for several, which columns would seem to cut.
    """
    for row in range(by_class.shape[1]):
        for i in range(by_class.shape[2]):
            total = 0.0
            for each in range(by_class.shape[0]):
                total += by_class[each, row, i]
            across = row ^ (row >> 2 if along_rows else i)
            turn = (across & 1) * 8 + (row & 1) * 4 + (across & 2) + ((row & 2) >> 1)
            wanted = total * (turn + 0.5) / 16.0
            total = 0.0
            chosen = 0
            for each in range(by_class.shape[0]):
                if by_class[each, row, i] > 0.0:
                    chosen = each
                    total += by_class[each, row, i]
                    if total > wanted:
                        break
            out[row, i] = chosen


def paint_cells(
    held: CellBytes,
    chosen: NDArray[np.uint8],
    fills: NDArray[np.float64],
    min_share: float,
    out: NDArray[np.uint8],
) -> None:
    """Write the pixel of each cell of the map: the colour of one class, paler by what is free.

    Args:
        held: the bytes of each cell; the pixel is transparent where `region` is 0.
        chosen: (rows, columns) the class that colours each cell, an index into `fills`.
        fills: (n + 1, 3) the colour of each class and, last, of free bytes, 0..255.
        min_share: the least share (0..1) of a pixel that chunks in use get, if the cell has any.
        out: (rows, columns, 4) red, green, blue and opacity, 0..255; is overwritten.
    """
    in_use = held.in_use
    region = held.region
    free = fills.shape[0] - 1
    for row in range(in_use.shape[0]):
        for i in range(in_use.shape[1]):
            used = 0.0
            if region[row, i] > 0.0 and in_use[row, i] > 0.0:
                used = min(max(in_use[row, i] / region[row, i], min_share), 1.0)
            for channel in range(3):
                mixed = used * fills[chosen[row, i], channel] + (1.0 - used) * fills[free, channel]
                out[row, i, channel] = array_access.whole_part(mixed + 0.5)
            out[row, i, 3] = 255 if region[row, i] > 0.0 else 0
