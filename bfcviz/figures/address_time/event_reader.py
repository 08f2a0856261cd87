"""Reads the events of the address-time map, each only once while the trace grows."""

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import Colouring
from bfcviz.figures.style.view_options import Look
from bfcviz.model import Model
from bfcviz.model.lifetimes.address_layout import Layout, LayoutReader
from bfcviz.model.lifetimes.ends import Ends
from bfcviz.model.lifetimes.lifetimes import Found, LifetimeReader, Wanted
from bfcviz.model.lifetimes.occupancy import OccupancyReader
from bfcviz.model.lifetimes.occupancy_grid import Classes, Occupancy, OccupancyGrid

EXACT_LIFETIMES: Final = 3000
"""Allocations drawn as exact rectangles, at most."""

PIXELS: Final = (1000, 320)
"""Pixels of the image: columns (at most, and more than half of it) and lines."""

COARSER: Final = (750, 240)
"""The same if there are several classes, each with a grid of its own."""

Reader = TypeVar("Reader", LifetimeReader, OccupancyReader)


class EventReader:
    """What the address-time map reads of one heap: the layout, the lifetimes, the image and the ends of lifetimes.

    A window that differs from the last one only in its end, which moved on, costs only the events between. Another
    window, other classes, or a region at new addresses cost all events of the window again; other colours of the same
    classes cost none.

    Args:
        trace: the events.
        pool: index of the pool.
        model: a model of this trace and pool, to reach the first step sooner; it returns to its step.

    Attributes:
        trace, pool, model: the arguments.
        ends: finds the ends of lifetimes.
    """

    def __init__(self, trace: Trace, pool: int, model: Model) -> None:
        self.trace, self.pool, self.model = trace, pool, model
        self.ends = Ends(trace, pool)
        self._layouts = LayoutReader(trace, pool)
        self._lifetimes: tuple[object, LifetimeReader] | None = None
        self._image: tuple[object, OccupancyReader] | None = None
        self._positions: Layout | None = None
        self._by_position = False  # lifetimes were selected by their positions

    def layout(self) -> Layout:
        """The layout of all grants so far."""
        layout = self._layouts.read()
        if self._positions is None or not layout.same_positions(self._positions):
            self._positions, self._image = layout, None
            if self._by_position:
                self._lifetimes = None
        return layout

    def lifetimes(self, steps: tuple[int, int], layout: Layout, look: Look) -> Found:
        """The lifetimes in the window of these steps and the look's addresses; none if they are too many."""
        start, stop = steps

        def begin() -> LifetimeReader:
            wanted = _touching(layout, look)
            return LifetimeReader(
                self.trace, self.pool, start, wanted=wanted, most=EXACT_LIFETIMES, model=self.model
            )

        self._by_position = look.addresses is not None
        self._lifetimes = continued(self._lifetimes, (start, look.addresses), stop, begin)
        return self._lifetimes[1].read_to(stop)

    def image(
        self,
        steps: tuple[int, int],
        positions: tuple[float, float],
        look: Look,
        layout: Layout,
        colours: Colouring,
    ) -> Occupancy:
        """The occupancy of the window of these steps and positions, by the classes of `colours`."""
        start, stop = steps
        count = len(colours.paints)
        columns, lines = COARSER if count > 1 else PIXELS

        def begin() -> OccupancyReader:
            grid = OccupancyGrid(start, stop, *positions, columns, lines, look.scale)
            classes = Classes(count, lambda lives: colours.classes(lives, stop)) if count > 1 else None
            return OccupancyReader(self.trace, self.pool, grid, layout, classes, self.model)

        key = (start, positions, look.axis, colours.key_at(stop))
        self._image = continued(self._image, key, stop, begin)
        return self._image[1].read_to(stop, layout)


def continued(
    known: tuple[object, Reader] | None, key: object, stop: int, begin: Callable[[], Reader]
) -> tuple[object, Reader]:
    """The known reader, if it is for the same window and has not read beyond step `stop`; else a new one."""
    if known is not None and known[0] == key and known[1].stop <= stop:
        return known
    return key, begin()


def _touching(layout: Layout, look: Look) -> Wanted | None:
    """A test whether allocations overlap the window of positions; None if the window is everything."""
    if look.addresses is None:
        return None
    low, high = look.addresses

    def touching(address: NDArray[np.uint64], size: NDArray[np.uint64]) -> NDArray[np.bool_]:
        begin = layout.position(address)
        found: NDArray[np.bool_] = (begin < high) & (begin + size > low)
        return found

    return touching
