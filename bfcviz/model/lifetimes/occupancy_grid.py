"""The cells of an occupancy: an even grid over positions and steps or time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.lifetimes.difference_grid import DifferenceGrid, Floats

Axis = Literal["step", "time"]


@dataclass(frozen=True)
class Classes:
    """The classes by which bytes in use are counted.

    Attributes:
        count: number of classes.
        of: gives the class, below `count`, of each row of an array of LIFETIME (`died` is not known yet).
    """

    count: int
    of: Callable[[NDArray[np.void]], NDArray[np.integer]]


@dataclass(frozen=True)
class OccupancyGrid:
    """The cells of an occupancy.

    Attributes:
        start, stop: the first and last step; the state at step `stop` fills the rest of the last column.
        low, high: positions (see `Layout`) at the bottom and top edge.
        columns, lines: number of cells across and up.
        axis: columns are equal in steps or in time.
        width: steps or nanoseconds of a column, a power of two; the first column begins at step `start`.
    """

    start: int
    stop: int
    low: float
    high: float
    columns: int
    lines: int
    axis: Axis = "step"
    width: int = 1

    @property
    def cell(self) -> float:
        """Height of a cell in bytes."""
        return (self.high - self.low) / self.lines

    def rows(self, positions: Floats) -> Floats:
        """Positions in lines from the bottom; positions outside are moved to the nearest edge."""
        scaled: Floats = (positions - self.low) * (self.lines / (self.high - self.low))
        return np.clip(scaled, 0.0, self.lines, out=scaled)


@dataclass(frozen=True)
class Occupancy:
    """The bytes in each cell of a grid, averaged over the time of its column, float64.

    Attributes:
        grid: the cells.
        by_class: bytes in use, (classes, lines, columns); line 0 is the lowest.
        pool: bytes of regions, (lines, columns).
    """

    grid: OccupancyGrid
    by_class: Floats
    pool: Floats

    @property
    def in_use(self) -> Floats:
        """Bytes in use, (lines, columns)."""
        total: Floats = self.by_class.sum(axis=0)
        return total


class CellSums:
    """The bytes of each cell, summed from ranges of positions that gain and lose bytes."""

    def __init__(self, grid: OccupancyGrid, classes: int, columns: int) -> None:
        self._grid = grid
        self._grid_sums = DifferenceGrid(classes, grid.lines, columns)

    def add(
        self,
        ranges: tuple[Floats, Floats],
        x: Floats,
        signs: Floats,
        which: NDArray[np.integer] | None = None,
    ) -> None:
        """Add (sign 1) or remove (-1) the bytes of ranges, given by their starts and ends, from columns `x` on."""
        low, high = (self._grid.rows(end) for end in ranges)
        seen = high > low
        if not seen.all():
            low, high, x, signs = low[seen], high[seen], x[seen], signs[seen]
            which = None if which is None else which[seen]
        self._grid_sums.add(x, low, signs, which)
        self._grid_sums.add(x, high, -signs, which)

    def sums(self) -> Floats:
        """The cells in bytes, (classes, lines, columns + 1), as `DifferenceGrid.sums`."""
        cells = self._grid_sums.sums()
        cells *= self._grid.cell
        return cells
