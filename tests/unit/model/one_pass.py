"""What readers of growing traces find in a finished trace, in one call."""

from bfcviz.model.address_layout import Layout
from bfcviz.model.lifetimes import LifetimeReader
from bfcviz.model.occupancy import OccupancyGrid, OccupancyReader


def find(trace, pool=0, start=None, stop=None, **bounds):
    """The lifetimes of the allocations alive at any of the steps [start, stop]."""
    start = trace.first if start is None else start
    return LifetimeReader(trace, pool, start, **bounds).read_to(len(trace) if stop is None else stop)


def occupancy(
    trace, pool=0, *, start=0, stop=None, positions=None, columns, lines, axis="step", classes=None
):
    """The occupancy of the steps [start, stop]."""
    layout = Layout.of(trace, pool)
    low, high = positions or (0.0, float(max(layout.total, 1)))
    stop = len(trace) if stop is None else stop
    grid = OccupancyGrid(start, stop, low, high, columns, lines, axis)
    return OccupancyReader(trace, pool, grid, layout, classes).read_to(stop, layout)
