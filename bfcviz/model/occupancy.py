"""Occupancy: how full each range of addresses was in each range of time, on an even grid.

::

    position |......|######|##....|     a cell: the bytes in use among its positions,
             |######|######|######|     averaged over its time
             +--------------------- step or time

An event changes a range of positions from a moment on: two points in a grid of second differences. Cumulative sums in
both directions then give the cells. So the cost of an event does not depend on its size, and the cost of the sums is
proportional to the number of cells.

A column is 1, 2, 4, 8, ... steps or nanoseconds wide. A trace that grows only changes the last columns; when it needs
too many, pairs of columns become one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.address_layout import Layout
from bfcviz.model.lifetimes import born_by, born_of, of_chunks
from bfcviz.model.model import Model, model_chunks_in_use

Floats = NDArray[np.float64]

Axis = Literal["step", "time"]


@dataclass(frozen=True)
class Classes:
    """The classes by which the bytes in use of an occupancy are counted.

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
        """Height of a cell of the grid in bytes."""
        return (self.high - self.low) / self.lines

    def rows(self, positions: Floats) -> Floats:
        """Positions in lines from the bottom of the grid; those outside are moved to the nearest edge."""
        scaled: Floats = (positions - self.low) * (self.lines / (self.high - self.low))
        return np.clip(scaled, 0.0, self.lines, out=scaled)


@dataclass(frozen=True)
class Occupancy:
    """How full the cells of a grid are: the bytes in each, averaged over the time of its column, float64.

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
        """Bytes in use of an occupancy, (lines, columns)."""
        total: Floats = self.by_class.sum(axis=0)
        return total


_AROUND: Final = ((0, 0), (0, 1), (1, 0), (1, 1))  # lines up, columns to the right

_SPARSE: Final = 12
"""From this many cells for each point on, points are added one by one (measured)."""


class OccupancySums:
    """The bytes of each cell of an `OccupancyGrid`, summed from ranges of positions that gain and lose bytes.

    The cells are built from their second differences. A point with a weight adds that weight to every cell above and to
    the right of it. A point inside a cell is divided among the four grid points around it, so that the cell receives
    its share. Each class has one extra line and column of cells for points on the far edges.
    """

    def __init__(self, grid: OccupancyGrid, classes: int, columns: int) -> None:
        self._grid = grid
        self._cells = np.zeros((classes, grid.lines + 2, columns + 2))

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
        self._add_points(x, low, signs, which)
        self._add_points(x, high, -signs, which)

    def sums(self) -> Floats:
        """The bytes of each cell, (classes, lines, columns + 1). Call it once: it sums in place.

        The last column is that after the grid: it has the sums of all points.
        """
        np.cumsum(self._cells, axis=1, out=self._cells)
        np.cumsum(self._cells, axis=2, out=self._cells)
        cells = self._cells[:, :-2, :-1]
        cells *= self._grid.cell
        return cells

    def _add_points(self, x: Floats, y: Floats, weights: Floats, classes: NDArray[np.integer] | None) -> None:
        """Add points: `x` in columns and `y` in lines from the lower left, inside the grid or on its edges."""
        if not len(x):
            return
        column, line = x.astype(np.intp), y.astype(np.intp)
        right, up = x - column, y - line
        across, lower = weights * right, 1.0 - up
        left = weights - across
        shares = (left * lower, across * lower, left * up, across * up)
        sheet = np.zeros(1, np.intp) if classes is None else classes.astype(np.intp)
        first, last = int(column.min()), int(column.max())
        if len(x) * _SPARSE < self._cells[:, :, first : last + 1].size:
            self._add_each((sheet, line, column), shares)
        else:
            self._add_sums((sheet, line, column - first), shares, first, last - first + 1)

    def _add_each(self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...]) -> None:
        _, lines, columns = self._cells.shape
        cells = self._cells.reshape(-1)
        place = (at[0] * lines + at[1]) * columns + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            np.add.at(cells, place + (up * columns + right), share)

    def _add_sums(
        self, at: tuple[NDArray[np.intp], ...], shares: tuple[Floats, ...], first: int, width: int
    ) -> None:
        """Sum points by cell first: a short part of a long trace puts many points in few columns."""
        sheets, lines, _ = self._cells.shape
        place = (at[0] * lines + at[1]) * width + at[2]
        for (up, right), share in zip(_AROUND, shares, strict=True):
            sums = np.bincount(place, share, sheets * lines * width).reshape(sheets, lines, width)
            # No point lies on the last line: it receives the shares of points one line below.
            self._cells[:, up:, first + right : first + right + width] += sums[:, : lines - up]


# ------------------------------------------------------------------------------
# The reader.

_BATCH: Final = 32_768
"""Events processed together: their numbers fit into the processor's cache."""


class OccupancyReader:
    """Computes the occupancy of a range of steps whose end moves on as the trace grows; reads each event once.

    Args:
        grid: the first step, the positions, the axis, the lines and the most columns.
        classes: the classes of bytes in use; None: one class.
        model: a model of this trace and pool, to reach the first step sooner; it returns to its step.

    Attributes:
        stop: the step up to which events were read.

    Raises:
        TraceError: the events up to the first step contradict each other.
    """

    def __init__(  # noqa: PLR0913, PLR0917  the caller passes what it already has
        self,
        trace: Trace,
        pool: int,
        grid: OccupancyGrid,
        layout: Layout,
        classes: Classes | None = None,
        model: Model | None = None,
    ) -> None:
        self.stop = grid.start
        self._trace, self._pool, self._grid, self._classes = trace, pool, grid, classes
        self._origin = self._moment(grid.start)
        self._width = 1
        count = classes.count if classes else 1
        self._cells = np.zeros((count, grid.lines, grid.columns + grid.columns % 2))  # pairs can become one
        self._columns = 0  # filled
        self._now = np.zeros((count, grid.lines))  # the column of the state at step `stop`
        carried = of_chunks(model_chunks_in_use(trace, pool, grid.start, model))
        which = classes.of(carried) if classes else None
        at_once, signs = np.zeros(len(carried)), np.ones(len(carried))
        self._add(_occupied_ranges(layout, carried), at_once, signs, which)

    def read_to(self, stop: int, layout: Layout) -> Occupancy:
        """The occupancy up to step `stop`, at least `self.stop`; reads the events between these steps.

        Args:
            stop: the last step.
            layout: the present layout, with the same positions as the first one.

        Returns:
            The cells. `by_class` is only valid until the next call, which changes it.
        """
        columns = self._fit(self._moment(stop) - self._origin)
        for block in self._trace.blocks(self.stop, stop):
            kinds = np.where(block["pool"] == self._pool, block["kind"], 0)
            at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
            for first in range(0, len(at), _BATCH):
                self._take(block, at[first : first + _BATCH], layout, columns)
        self.stop = stop
        self._fill(columns)
        grid = replace(self._grid, stop=stop, columns=columns, width=self._width)
        return Occupancy(grid, self._cells[:, :, :columns], self._pool_bytes(grid, layout))

    def _moment(self, step: int) -> int:
        """The step itself, or the time of the event that led to it; for the first step, of the first event."""
        if self._grid.axis == "step":
            return step
        if len(self._trace) == self._trace.first:
            return 0
        event = max(step - 1, self._trace.first)
        return int(self._trace.read(event, event + 1)["time"][0])

    def _fit(self, span: int) -> int:
        """Widen the columns until those for so many steps or nanoseconds fit; returns their number."""
        while -(-span // self._width) > self._grid.columns:
            self._fill(self._columns + self._columns % 2)
            half, cells = self._columns // 2, self._cells
            cells[:, :, :half] = (cells[:, :, : 2 * half : 2] + cells[:, :, 1 : 2 * half : 2]) / 2
            self._width, self._columns = 2 * self._width, half
        return max(-(-span // self._width), 1)

    def _fill(self, columns: int) -> None:
        """Fill the columns of the grid up to this number with the present state."""
        if columns > self._columns:
            self._cells[:, :, self._columns : columns] = self._now[:, :, None]
            self._columns = columns

    def _take(self, block: Events, at: NDArray[np.intp], layout: Layout, columns: int) -> None:
        """Add the ALLOCATE and FREE events of a block at these indices to the occupancy."""
        freed = block["kind"][at] == Kind.FREE
        which = None
        if self._classes is not None:
            allocations = born_by(block, at)
            allocations["born"][freed] = born_of(block, at[freed])
            which = self._classes.of(allocations)
        x = self._across(block["seq"][at], block["time"][at], columns)
        self._add(_occupied_ranges(layout, block, at), x, 1.0 - 2.0 * freed, which, columns)

    def _across(self, seq: NDArray[np.uint64], time: NDArray[np.int64], columns: int) -> Floats:
        """The columns of the grid at which the states after these events begin, moved to the nearest edge."""
        when = time.astype(np.float64) if self._grid.axis == "time" else seq.astype(np.float64) + 1.0
        when -= self._origin
        when /= self._width
        return np.clip(when, 0.0, columns, out=when)

    def _add(
        self,
        ranges: tuple[Floats, Floats],
        x: Floats,
        signs: Floats,
        which: NDArray[np.integer] | None,
        columns: int = 1,
    ) -> None:
        """Add (sign 1) or remove (-1) the bytes of ranges, given by their starts and ends, from columns `x` on."""
        if not len(x):
            return
        first = min(int(x.min()), columns - 1)
        last = max(min(int(x.max()) + 1, columns), self._columns, first + 1)
        changes = OccupancySums(self._grid, len(self._now), last - first)
        changes.add(ranges, x - first, signs, which)
        sums = changes.sums()
        self._fill(last)
        cells = self._cells[:, :, first:last]
        cells += sums[:, :, :-1]
        self._now += sums[:, :, -1]
        for rounded in (cells, self._now):  # sums of fractions may be slightly negative
            np.maximum(rounded, 0.0, out=rounded)

    def _pool_bytes(self, grid: OccupancyGrid, layout: Layout) -> Floats:
        held, grants = OccupancySums(grid, 1, grid.columns), layout.grants
        for end, sign in (("born", 1.0), ("died", -1.0)):
            records = grants[grants[end] < grid.stop]
            x = self._across(records[end], records[f"{end}_time"], grid.columns)
            held.add(_occupied_ranges(layout, records), x, np.full(len(records), sign))
        total: Floats = np.maximum(held.sums()[0, :, :-1], 0.0)
        return total


def _occupied_ranges(
    layout: Layout, records: NDArray[np.void], at: NDArray[np.intp] | None = None
) -> tuple[Floats, Floats]:
    """For an occupancy, the starts and ends of the positions of these records, or of those at these indices."""
    address, size = records["address"], records["size"]
    if at is not None:
        address, size = address[at], size[at]
    low = layout.position(address)
    return low, low + size.astype(np.float64)
