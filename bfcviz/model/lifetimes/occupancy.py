"""Occupancy: how full each range of addresses was in each range of time, on an even grid.

::

    position |......|######|##....|     a cell: the bytes in use among its positions,
             |######|######|######|     averaged over its time
             +--------------------- step or time

An event changes a range of positions from a moment on: two points in a grid of second differences. Cumulative sums in
both directions then give the cells. So the cost of an event does not depend on its size, and the cost of the sums is
proportional to the number of cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes.address_layout import NEVER, Layout
from bfcviz.model.lifetimes.difference_grid import DifferenceGrid, Floats
from bfcviz.model.lifetimes.lifetimes import born_by, born_of, in_use_at, of_chunks
from bfcviz.model.state.model import Model

_BATCH: Final = 32_768
"""Events processed together: their numbers fit into the processor's cache."""


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
        start, stop: the first and last step; the state after step `stop` takes no time.
        low, high: positions (see `Layout`) at the bottom and top edge.
        columns, lines: number of cells across and up.
        axis: columns are equal in steps or in time.
    """

    start: int
    stop: int
    low: float
    high: float
    columns: int
    lines: int
    axis: Literal["step", "time"] = "step"

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


def occupancy(  # noqa: PLR0913, PLR0917  where and how finely, and what is known already
    trace: Trace,
    pool: int = 0,
    start: int | None = None,
    stop: int | None = None,
    positions: tuple[float, float] | None = None,
    columns: int = 800,
    lines: int = 300,
    *,
    axis: Literal["step", "time"] = "step",
    classes: Classes | None = None,
    layout: Layout | None = None,
    model: Model | None = None,
) -> Occupancy:
    """Compute how full each cell of an even grid over steps [start, stop] and positions was.

    Args:
        trace: the events.
        pool: index of the pool.
        start: the first step; None: the first step of the trace.
        stop: the last step; None: the last step of the trace.
        positions: the lowest and highest position; None: all.
        columns: cells across.
        lines: cells up.
        axis: columns are equal in steps or in time.
        classes: the classes of bytes in use; None: one class.
        layout: of the trace and pool, where the caller has it.
        model: a model of this trace and pool, to reach `start` sooner; it returns to its step.

    Raises:
        TraceError: the trace has no such steps, the grid no cells, or the events up to `start` contradict
            each other.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    layout = layout or Layout.of(trace, pool)
    low, high = positions or (0.0, float(max(layout.total, 1)))
    grid = OccupancyGrid(start, stop, low, high, columns, lines, axis)
    _check(trace, grid)
    across = _ColumnScale(trace, grid)
    held = _CellBytes(grid, classes)
    _add_carried(held, layout, in_use_at(trace, pool, start, model))
    for block in trace.blocks(start, stop):
        kinds = np.where(block["pool"] == pool, block["kind"], 0)
        at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
        for first in range(0, len(at), _BATCH):
            _add_events(held, layout, across, block, at[first : first + _BATCH])
    return Occupancy(grid, held.sums(), _pool(grid, layout, across))


def _check(trace: Trace, grid: OccupancyGrid) -> None:
    if not trace.first <= grid.start <= grid.stop <= len(trace) or min(grid.columns, grid.lines) < 1:
        raise TraceError(
            f"occupancy of steps {grid.start} to {grid.stop} in {grid.columns} x {grid.lines} cells is not possible: "
            f"the trace has steps {trace.first} to {len(trace)}, and the grid needs at least one cell"
        )
    if not grid.high > grid.low:
        raise TraceError(
            f"occupancy of positions {grid.low:g} to {grid.high:g} is not possible: give a high end above the low end"
        )


def _add_carried(held: "_CellBytes", layout: Layout, chunks: NDArray[np.void]) -> None:
    carried = of_chunks(chunks)
    which = held.classes.of(carried) if held.classes else None
    at_once, signs = np.zeros(len(carried)), np.ones(len(carried))
    held.add(_ranges(layout, carried["address"], carried["size"]), at_once, signs, which)


def _add_events(
    held: "_CellBytes", layout: Layout, across: "_ColumnScale", block: Events, at: NDArray[np.intp]
) -> None:
    freed = block["kind"][at] == Kind.FREE
    which = None
    if held.classes is not None:
        allocations = born_by(block, at)
        allocations["born"][freed] = born_of(block, at[freed])
        which = held.classes.of(allocations)
    x = across.after(block["seq"][at], block["time"][at])
    held.add(_ranges(layout, block["address"][at], block["size"][at]), x, 1.0 - 2.0 * freed, which)


def _pool(grid: OccupancyGrid, layout: Layout, across: "_ColumnScale") -> Floats:
    held, grants = _CellBytes(grid, None), layout.grants
    gone = grants[grants["died"] != NEVER]
    for records, end, sign in ((grants, "born", 1.0), (gone, "died", -1.0)):
        x = across.after(records[end], records[f"{end}_time"])
        ranges = _ranges(layout, records["address"], records["size"])
        held.add(ranges, x, np.full(len(records), sign))
    total: Floats = held.sums()[0]
    return total


def _ranges(layout: Layout, address: NDArray[np.uint64], size: NDArray[np.uint64]) -> tuple[Floats, Floats]:
    low = layout.position(address)
    return low, low + size.astype(np.float64)


class _ColumnScale:
    """Converts moments to columns from the left edge; moments outside are moved to the nearest edge."""

    def __init__(self, trace: Trace, grid: OccupancyGrid) -> None:
        self._grid = grid
        self._first, self._last = grid.start, grid.stop
        if grid.axis == "time":
            self._first, self._last = (_time_of(trace, step) for step in (grid.start, grid.stop))

    def after(self, seq: NDArray[np.uint64], time: NDArray[np.int64]) -> Floats:
        """The columns at which the states after these events begin."""
        when = time.astype(np.float64) if self._grid.axis == "time" else seq.astype(np.float64) + 1.0
        when -= self._first
        when *= self._grid.columns / max(self._last - self._first, 1)
        return np.clip(when, 0.0, self._grid.columns, out=when)


def _time_of(trace: Trace, step: int) -> int:
    """The time of the event that led to a step; for the first step, of the first event."""
    event = max(step - 1, trace.first)
    return int(trace.read(event, event + 1)["time"][0]) if len(trace) > trace.first else 0


class _CellBytes:
    """The bytes of each cell, summed from ranges of positions that gain and lose bytes."""

    def __init__(self, grid: OccupancyGrid, classes: Classes | None) -> None:
        self.classes = classes
        self._grid = grid
        self._grid_sums = DifferenceGrid(classes.count if classes else 1, grid.lines, grid.columns)

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
        """The cells in bytes, (classes, lines, columns)."""
        cells = self._grid_sums.sums() * self._grid.cell
        return np.maximum(cells, 0.0, out=cells)  # sums of fractions may be slightly negative
