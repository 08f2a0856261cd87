"""Cells: how many bytes of each cell of an even grid over the rows are in use, kept up to date by events.

The sums are those of differences: a chunk from 1.25 to 3.5 cells is +0.75 at cell 1, +0.25 at 2, -0.5 at 3 and
-0.5 at 4, and the running total says 0.75, 1, 0.5, 0: four numbers a chunk, however many cells it covers.

Compiled, it keeps the interpreter's lock: that is a fraction of a millisecond, and a renderer that gave it away
beside a busy thread would wait 5 ms to have it back.
"""

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.figures.region_map.raster.cell_bytes import Shares
from bfcviz.figures.region_map.rows import Rows
from bfcviz.model.state import array_access
from bfcviz.model.state.row_storage import contiguous


class Cells:
    """The cells of one heap, all empty at first.

    Regions that come later, and what others grow by, have no cells.

    Args:
        rows: where addresses lie; one row at least.
        columns: cells across a row.
        fills: the colour of each class of chunks in use, (n, 3), 0..255.
        pool: the heap; events of others are passed over.
    """

    def __init__(self, rows: Rows, columns: int, fills: NDArray[np.float64], pool: int) -> None:
        self._address = rows.address
        self._size = rows.size
        self._first = rows.first * columns
        self._regions = len(rows.size)
        self._columns = columns
        self._count = len(rows) * columns
        self._cell = rows.width / columns
        self._fills = fills
        self._colours = len(fills)
        self._pool = pool
        self._sums = np.zeros((array_access.LAYERS, self._count + 2))
        self._totals = np.zeros(array_access.LAYERS)

    def hold(
        self,
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
        requested: NDArray[np.uint64],
        classes: NDArray[np.uint8],
    ) -> None:
        """Add chunks in use, one a place of these columns, (n,) each; `classes`: indices into `fills`."""
        for i in range(len(address)):
            self._add(address[i], size[i], requested[i], classes[i], 1.0)

    def take(self, block: Events, classes: NDArray[np.uint8]) -> None:
        """Add the chunk of each ALLOCATE and take that of each FREE away.

        Args:
            block: (n,) events.
            classes: (n,): an index into `fills` for each of these chunks; of other events anything.
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

    def shares(self) -> Shares:
        """What each cell holds."""
        held = Shares.unknown(self._count // self._columns, self._columns)
        in_use = held.in_use.reshape(-1)
        waste = held.waste.reshape(-1)
        region = held.region.reshape(-1)
        colour = held.colour.reshape(-1, 3)
        self._totals[:] = 0.0
        mine = 0
        for i in range(self._count):
            while mine + 1 < self._regions and i >= self._first[mine + 1]:
                mine += 1
            left = self._size[mine] - (i - self._first[mine]) * self._cell
            region[i] = min(max(left, 0.0), self._cell)
            in_use[i] = self._total(array_access.HELD, i)
            waste[i] = self._total(array_access.WASTED, i)
            for channel in range(3):
                if self._colours > 1:
                    colour[i, channel] = self._total(array_access.RED + channel, i)
                else:
                    colour[i, channel] = in_use[i] * self._fills[0, channel]
        return held

    def _total(self, layer: int, i: int) -> float:
        """Bytes of the next cell `i` of a layer."""
        self._totals[layer] += self._sums[layer, i]
        total = self._totals[layer]
        # What is smaller is rounding, in a heap whose addresses need all bits of a number.
        return total * self._cell if total > 1e-7 or total < -1e-7 else 0.0

    def _add(self, address: int, size: int, requested: int, fill: int, sign: float) -> None:
        mine = self._region_of(address)
        if mine < 0 or fill >= self._colours:
            return
        # A region may have grown since the rows were laid out, and a chunk reach beyond it.
        size = min(size, self._size[mine] - (address - self._address[mine]))
        begin = self._first[mine] + (address - self._address[mine]) / self._cell
        end = begin + size / self._cell
        self._ramp(array_access.HELD, begin, end, sign)
        self._ramp(array_access.WASTED, begin + min(requested, size) / self._cell, end, sign)
        if self._colours > 1:
            for channel in range(3):
                self._ramp(array_access.RED + channel, begin, end, sign * self._fills[fill, channel])

    def _region_of(self, address: int) -> int:
        """The number of the region that an address lies in, below 0 where it lies in none of these."""
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
