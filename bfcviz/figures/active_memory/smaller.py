"""The smaller allocations of the active-memory timeline: areas above the bands, one a colour.

::

    bytes |      ......
          |  ....%%%%%%%%      % . areas: all smaller allocations of a colour, averaged over a column
          |  %%%%========      = bands of single allocations
          +------------------- step

Averages leave the peaks of a column to the line of all bytes in use.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.active_memory.bands import Bands
from bfcviz.figures.address_time.event_reader import continued
from bfcviz.figures.style.colour_math import mixed
from bfcviz.figures.style.colouring import Colouring
from bfcviz.figures.style.fading import FADE, choice_of, grouping_of
from bfcviz.figures.style.view_options import Look
from bfcviz.figures.timelines.axis import StepAxis
from bfcviz.model import Model
from bfcviz.model.holders.holder_choice import members
from bfcviz.model.lifetimes.address_layout import GRANT, Layout
from bfcviz.model.lifetimes.lifetimes import LIFETIME
from bfcviz.model.lifetimes.occupancy import OccupancyReader
from bfcviz.model.lifetimes.occupancy_grid import Classes, OccupancyGrid

MOST_AREAS: Final = 16
"""Areas of different colours, at most: as many as `Colouring.for_images` has classes."""

_COLUMNS: Final = 400  # at most; more than half of it
_LARGEST: Final = float(1 << 44)  # bytes of an allocation
_BY_LABEL: Final = ("op", "stack")

Floats = NDArray[np.float64]


class _OnePosition(Layout):
    """Every address at position 0: only the sizes matter."""

    def position(self, address: NDArray[np.uint64]) -> Floats:
        """Zeros."""
        return np.zeros(len(address))


_ONE_POSITION: Final = _OnePosition(
    np.zeros(0, GRANT), np.zeros(0, np.uint64), np.zeros(1, np.uint64), np.zeros(0)
)


@dataclass(frozen=True)
class HeldByClass:
    """Bytes in use by class, averaged over columns.

    Attributes:
        edges: the ends of the columns in axis units, (columns + 1,).
        held: bytes, (classes, columns).
    """

    edges: Floats
    held: Floats


@dataclass
class ClassReader:
    """Reads the bytes in use by class; each event once while only the end of the steps moves on."""

    trace: Trace
    pool: int
    model: Model
    _known: tuple[object, OccupancyReader] | None = field(default=None, init=False)

    def read(self, steps: tuple[int, int], step_axis: StepAxis, colours: Colouring) -> HeldByClass:
        """The bytes of each class of `colours` in these steps."""
        start, stop = steps

        def begin() -> OccupancyReader:
            grid = OccupancyGrid(start, stop, 0.0, _LARGEST, _COLUMNS, 1, step_axis.axis)
            classes = Classes(len(colours.paints), lambda lives: colours.classes(lives, stop))
            return OccupancyReader(self.trace, self.pool, grid, _ONE_POSITION, classes, self.model)

        self._known = continued(self._known, (start, step_axis.axis, colours.key_at(stop)), stop, begin)
        found = self._known[1].read_to(stop, _ONE_POSITION)
        left, right = step_axis.position(start), step_axis.position(stop)
        edges = left + np.arange(found.grid.columns + 1) * (found.grid.width / step_axis.unit)
        edges[-1] = right
        return HeldByClass(np.minimum(edges, right), found.by_class[:, 0, :].copy())


def area_traces(
    every: HeldByClass | None, bands: Bands, colours: Colouring, fills: list[str], divisor: int
) -> list[dict[str, Any]]:
    """The areas of the smaller allocations as `MOST_AREAS` plotly traces; those without memory are empty.

    Args:
        every: the bytes of all allocations, by the classes of `colours`; None: there are no smaller ones.
        bands: the allocations with a band.
        colours: `Colouring.for_images`.
        fills: the colour of each class.
        divisor: bytes per unit of the y axis.
    """
    found = [] if every is None else _areas(every, bands, fills, colours)
    nothing = np.full(1, np.nan)
    found += [("#000000", nothing, nothing)] * (MOST_AREAS - len(found))
    return [
        {
            "type": "scatter",
            "mode": "none",
            "visible": x is not nothing,  # the page lays out no empty ones
            "x": x.astype(np.float32),
            "y": (y / divisor).astype(np.float32),
            "fill": "toself",
            "fillcolor": fill,
            "showlegend": False,
            "hoverinfo": "skip",
        }
        for fill, x, y in found
    ]


def _areas(
    every: HeldByClass, bands: Bands, fills: list[str], colours: Colouring
) -> list[tuple[str, Floats, Floats]]:
    """The colour and the outline of each area, from the lowest up; x in axis units, y in bytes."""
    of_bands = _bytes_of_bands(bands, every.edges, colours, len(every.held))
    smaller = np.maximum(every.held - of_bands, 0.0)
    low, found = of_bands.sum(axis=0), []
    for fill in dict.fromkeys(fills):
        held = smaller[[each == fill for each in fills]].sum(axis=0)
        if held.max(initial=0.0) >= 1.0:  # less is a sum of fractions
            found.append((fill, *_outline(every.edges, low, low + held)))
        low = low + held
    return found


def _bytes_of_bands(bands: Bands, edges: Floats, colours: Colouring, classes: int) -> Floats:
    """The bytes of the bands by class, averaged over the columns between these edges, (classes, columns)."""
    which = colours.classes(bands.lifetimes, 0)
    left, right = bands.ends()
    begin, end = edges[:-1], edges[1:]
    found = np.zeros((classes, len(begin)))
    shared = np.minimum(end, right[:, None]) - np.maximum(begin, left[:, None])
    held = np.maximum(shared, 0.0) * bands.lifetimes["size"].astype(np.float64)[:, None]
    np.add.at(found, which.astype(np.intp), held / np.maximum(end - begin, 1e-9))
    return found


def _outline(edges: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """A closed outline of steps between two heights of each column."""
    across = np.repeat(edges, 2)[1:-1]
    x = np.concatenate([across, across[::-1], across[:1]])
    y = np.concatenate([np.repeat(low, 2), np.repeat(high, 2)[::-1], low[:1]])
    return x, y


def fills_of(trace: Trace, pool: int, look: Look, colours: Colouring) -> list[str]:
    """The colour of each class; faded where no label of it belongs to the holder that the user chose."""
    fills = [paint.fill for paint in colours.paints]
    choice = choice_of(look)
    if choice is None or choice.by not in _BY_LABEL:
        return fills
    labels = np.zeros(len(trace.labels), LIFETIME)
    labels["label"] = np.arange(len(labels))
    chosen = labels[members(grouping_of(trace, pool, choice.by), choice)(labels)]
    kept = set(colours.classes(chosen, 0).tolist())
    paper = look.paints.paper
    return [fill if number in kept else mixed(fill, paper, FADE) for number, fill in enumerate(fills)]
