"""The active-memory timeline: bytes in use over time, with the largest allocations stacked as bands.

A band runs from the step that allocated its memory to the step that freed it; the bands above it drop when it ends.
Areas above the bands show all smaller allocations, one area for each colour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures import timeline_parts
from bfcviz.figures.address_time import continued, life_table, life_text
from bfcviz.figures.colouring import MOST_CLASSES, Colouring, colouring, faded
from bfcviz.figures.panel import (
    HOVER_POINTS,
    LEAST_EDGED,
    LINES,
    TEXTS,
    Floats,
    Panel,
    edges_trace,
    fade_trace,
)
from bfcviz.figures.text import axis_unit, fitted, harmless
from bfcviz.figures.theme import Paint, Theme, contrasting, mixed
from bfcviz.figures.timeline_parts import StepAxis, timeline_steps
from bfcviz.figures.view import DashboardPlace, HeapData, View, ViewTab, plot_pixels
from bfcviz.figures.view_options import FADE, PLAIN, Look, SearchChoice, Selected, choice_of
from bfcviz.model import Model, timeline
from bfcviz.model.address_layout import GRANT, NEVER, Layout
from bfcviz.model.filters import Filter, found_by, search_filter
from bfcviz.model.grouping import grouping_of, members
from bfcviz.model.lifetimes import LIFETIME, LifetimeReader
from bfcviz.model.occupancy import Classes, OccupancyGrid, OccupancyReader
from bfcviz.model.trace_index import LEAST_EVENTS, REST, TraceIndex, known_index

# ------------------------------------------------------------------------------
# The bands of the active-memory timeline: stacked lifetimes, their outlines, names and hover texts.
#
# Lifetimes are stacked in the order they began; when one ends, those above it move down::
#
#     bytes |        [=== c ===
#           |   [== b ==]  [=== c ======     c moves down when b ends
#           |[===== a =====================
#           +------------------------------ step


@dataclass(frozen=True)
class Stack:
    """Heights of the bands of active memory over time."""

    moments: NDArray[np.uint64]  # each `seq` at which a lifetime begins or ends, ascending, uint64
    times: NDArray[np.int64]  # when, in nanoseconds; undefined for the moment NEVER
    below: NDArray[np.float64]  # bytes below each lifetime after each moment, (lifetimes, moments), float64
    # first, last: for each lifetime the indices of the moments at which it begins and ends
    first: NDArray[np.intp]
    last: NDArray[np.intp]

    def turns(self, life: int) -> NDArray[np.intp]:
        """The indices of the moments at which a lifetime begins or changes its height."""
        heights = self.below[life, self.first[life] : self.last[life]]
        changed = np.flatnonzero(np.diff(heights)) + 1
        found: NDArray[np.intp] = self.first[life] + np.append(0, changed)
        return found


def stack(lifetimes: NDArray[np.void]) -> Stack:
    """The bands of an array of LIFETIME, ordered by `born`, stacked; memory grows with the square of its length."""
    moments, at = np.unique(np.concatenate([lifetimes["born"], lifetimes["died"]]), return_index=True)
    times = np.concatenate([lifetimes["born_time"], lifetimes["died_time"]])[at]
    first = np.searchsorted(moments, lifetimes["born"])
    last = np.searchsorted(moments, lifetimes["died"])
    order = np.arange(len(moments))
    alive = (first[:, None] <= order) & (order < last[:, None])
    held = np.cumsum(alive * lifetimes["size"].astype(np.float64)[:, None], axis=0)
    below = np.vstack([np.zeros((1, len(moments))), held[:-1]]) if len(lifetimes) else held
    return Stack(moments, times, below, first, last)


_COLUMNS: Final = 60  # of the grid of hover points
_POINTS: Final = 1500
_PIXELS: Final = 400  # about half of a plot's width: band outlines keep one corner per such pixel
_NAMED: Final = 12  # bands that carry their name, at most
_SHORTEST: Final = 0.07  # of the window's width: a shorter band carries no name
_LOWEST: Final = 0.05  # of the plot's height: a thinner band carries no name
_LETTER: Final = 1 / 130  # of the window's width, on a page 880 pixels wide


@dataclass(frozen=True)
class Bands:
    """Bands of active memory: stacked lifetimes on an x axis."""

    lifetimes: NDArray[np.void]  # LIFETIME records, ordered by `born`
    stack: Stack  # the height of each band over time, in bytes
    x: Floats  # the positions of the stack's moments, in axis units, clipped to the window
    sides: tuple[float, float]  # the ends of the window, in axis units

    @property
    def highest(self) -> float:
        """The height of the whole stack of active memory at its peak, in bytes."""
        if not len(self.lifetimes):
            return 0.0
        return float((self.stack.below[-1] + self._alive(len(self.lifetimes) - 1)).max())

    def outlines(self, lives: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Closed outlines, x in axis units and y in bytes, NaN after each; one NaN if there are none."""
        if not len(lives):
            return np.full(1, np.nan), np.full(1, np.nan)
        outlines = [self._outlines[life] for life in lives.tolist()]
        return np.concatenate([x for x, _ in outlines]), np.concatenate([y for _, y in outlines])

    @cached_property
    def _outlines(self) -> list[tuple[Floats, Floats]]:
        """The outline of each band: other colours need no new ones."""
        return [self._outline(life) for life in range(len(self.lifetimes))]

    def at(self, x: float, num_bytes: float) -> int | None:
        """The index of the band of active memory at `x` (axis units) and `num_bytes`; None if there is none."""
        moment = int(np.searchsorted(self.x, x, side="right")) - 1
        if moment < 0 or not self.sides[0] <= x <= self.sides[1]:
            return None
        low = self.stack.below[:, moment]
        alive = (self.stack.first <= moment) & (moment < self.stack.last)
        hits = np.flatnonzero(alive & (low <= num_bytes) & (num_bytes < low + self.lifetimes["size"]))
        return int(hits[0]) if len(hits) else None

    def middle(self, life: int, x: float) -> float:
        """The middle of a band at `x`, in bytes; at the nearest end of its life if `x` is outside of it."""
        moment = int(np.searchsorted(self.x, x, side="right")) - 1
        moment = min(max(moment, int(self.stack.first[life])), int(self.stack.last[life]) - 1)
        return float(self.stack.below[life, moment]) + float(self.lifetimes["size"][life]) / 2

    def ends(self) -> tuple[Floats, Floats]:
        """Where each band begins and ends, in axis units."""
        return self.x[self.stack.first], self.x[self.stack.last]

    def level_part(self, life: int) -> tuple[float, float]:
        """The longest part of a band, in axis units, in which its height changes by at most a quarter of its own."""
        turns = self._visible(self.stack.turns(life))
        edges = [*self.x[turns].tolist(), float(self.x[self.stack.last[life]])]
        spare = float(self.lifetimes["size"][life]) / 4
        best = begin = edges[0], edges[0]
        lowest = highest = float(self.stack.below[life, turns[0]])
        for height, start, end in zip(
            self.stack.below[life, turns].tolist(), edges[:-1], edges[1:], strict=True
        ):
            lowest, highest = min(lowest, height), max(highest, height)
            if highest - lowest > spare:
                lowest = highest = height
                begin = start, start
            begin = begin[0], end
            best = max(best, begin, key=lambda part: part[1] - part[0])
        return best

    def _alive(self, life: int) -> Floats:
        at = np.arange(len(self.x))
        alive = (self.stack.first[life] <= at) & (at < self.stack.last[life])
        held: Floats = alive * float(self.lifetimes["size"][life])
        return held

    def _visible(self, turns: NDArray[np.intp]) -> NDArray[np.intp]:
        """The turns of a band that a picture can show: the first, and the last in each of `_PIXELS` columns."""
        left, right = self.sides
        pixel = np.floor((self.x[turns] - left) * (_PIXELS / max(right - left, 1e-9)))
        keep = np.append(pixel[1:] != pixel[:-1], True)
        keep[0] = True
        visible: NDArray[np.intp] = turns[keep]
        return visible

    def _outline(self, life: int) -> tuple[Floats, Floats]:
        turns = self._visible(self.stack.turns(life))
        edges = np.append(self.x[turns], self.x[self.stack.last[life]])
        across = np.repeat(edges, 2)[1:-1]
        low = np.repeat(self.stack.below[life, turns], 2)
        high = low + float(self.lifetimes["size"][life])
        x = np.concatenate([across, across[::-1], across[:1], [np.nan]])
        y = np.concatenate([low, high[::-1], low[:1], [np.nan]])
        return x, y


def bands_of(lifetimes: NDArray[np.void], step_axis: StepAxis, steps: tuple[int, int]) -> Bands:
    """The bands of these lifetimes, clipped to the window of steps."""
    stacked = stack(lifetimes)
    left, right = step_axis.position(steps[0]), step_axis.position(steps[1])
    x = step_axis.positions(stacked.moments + np.uint64(1), stacked.times)
    x = np.where(stacked.moments < steps[1], x, right)
    return Bands(lifetimes, stacked, np.clip(x, left, right), (left, right))


def names_on_bands(
    bands: Bands, trace: Trace, divisor: int, reach: float, fills: Sequence[str]
) -> dict[str, Any]:
    """A text trace: names on the bands that have room for one, the largest first.

    Args:
        bands: the bands.
        trace: has the labels.
        divisor: bytes per unit of the y axis.
        reach: the end of the y axis, in its units.
        fills: the colour of each band; empty for one that carries no name.
    """
    width = max(bands.sides[1] - bands.sides[0], 1e-9)
    high = bands.lifetimes["size"] >= _LOWEST * reach * divisor
    drawn = np.array([bool(fill) for fill in fills], bool)
    room = np.flatnonzero(high & drawn & (bands.lifetimes["label"] > 0))
    # A name that reached over a step of its band would lie on other bands.
    left, right = np.array([bands.level_part(band) for band in room.tolist()]).reshape(-1, 2).T
    wide = (right - left) >= _SHORTEST * width
    room, left, right = room[wide], left[wide], right[wide]
    most = np.argsort(-(bands.lifetimes["size"][room] * (right - left)), kind="stable")[:_NAMED]
    room, left, right = room[most], left[most], right[most]
    x = (left + right) / 2
    names = [trace.labels.name(number) for number in bands.lifetimes["label"][room].tolist()]
    letters = (right - left) / (width * _LETTER)
    below = [fills[band] for band in room.tolist()]
    return {
        **TEXTS,
        "x": x,
        "y": np.array([bands.middle(*at) for at in zip(room.tolist(), x.tolist(), strict=True)]) / divisor,
        "text": [harmless(fitted(*each)) for each in zip(names, letters.astype(int).tolist(), strict=True)],
        "textfont": {
            "color": [contrasting(fill) for fill in below],
            "size": 10,
            # An outline around the letters: a name may reach over the edges of its band.
            "shadow": [", ".join(f"{side} 1px {fill}" for side in _SIDES) for fill in below],
        },
    }


_SIDES: Final = [f"{x}px {y}px" for x in (-1, 0, 1) for y in (-1, 0, 1)]


def hover_points(bands: Bands, trace: Trace, pool: int, divisor: int) -> dict[str, Any]:
    """Invisible points with hover texts: at least one in each band, more along the long ones."""
    left, right = bands.ends()
    width = max(bands.sides[1] - bands.sides[0], 1e-9)
    along = np.maximum(np.ceil((right - left) / width * _COLUMNS), 1.0)
    along = np.maximum(along * min(1.0, _POINTS / max(along.sum(), 1.0)), 1.0).astype(np.intp)
    band = np.repeat(np.arange(len(along)), along)
    nth = np.arange(len(band)) - np.repeat(np.cumsum(along) - along, along)
    x = left[band] + (nth + 0.5) * ((right - left) / along)[band]
    y = [bands.middle(*at) for at in zip(band.tolist(), x.tolist(), strict=True)]
    texts = [life_text(life, trace, pool) for life in bands.lifetimes]
    hovertext = [texts[number] for number in band.tolist()]
    return {**HOVER_POINTS, "x": x, "y": np.array(y) / divisor, "hovertext": hovertext}


# ------------------------------------------------------------------------------
# The smaller allocations of the active-memory timeline: areas above the bands, one a colour.
#
# ::
#
#     bytes |      ......
#           |  ....%%%%%%%%      % . areas: all smaller allocations of a colour, averaged over a column
#           |  %%%%========      = bands of single allocations
#           +------------------- step
#
# Averages leave the peaks of a column to the line of all bytes in use.

MOST_AREAS: Final = MOST_CLASSES  # areas of different colours, at most

_AREA_COLUMNS: Final = 400  # at most; more than half of it
_LARGEST: Final = float(1 << 44)  # bytes of an allocation
_BY_LABEL: Final = ("op", "stack")
_LABEL_COLOURS: Final = ("holder", "label", "op", "stack")  # colourings whose classes follow from the label


class _ActiveMemoryLayout(Layout):
    """The layout that the areas are summed with: every address at position 0, as only the sizes matter."""

    def position(self, address: NDArray[np.uint64]) -> Floats:
        """Zeros."""
        return np.zeros(len(address))


_ONE_POSITION: Final = _ActiveMemoryLayout(
    np.zeros(0, GRANT), np.zeros(0, np.uint64), np.zeros(1, np.uint64), np.zeros(0)
)


@dataclass(frozen=True)
class AreaBytes:
    """Bytes in use by class, averaged over columns: what the areas of the active-memory timeline show."""

    edges: Floats  # the ends of the columns in axis units, (columns + 1,)
    held: Floats  # bytes, (classes, columns)


@dataclass
class ClassReader:
    """Reads the bytes in use by class; each event once while only the end of the steps moves on."""

    trace: Trace
    pool: int
    model: Model
    _known: tuple[object, OccupancyReader] | None = field(default=None, init=False)

    def read(self, steps: tuple[int, int], step_axis: StepAxis, colours: Colouring) -> AreaBytes:
        """The bytes of each class of `colours` in these steps."""
        start, stop = steps
        index = stored_area_index(self.trace, self.pool, steps)
        if index is not None and colours.name in _LABEL_COLOURS:
            return _held_from_index(index, steps, step_axis, colours)

        def begin() -> OccupancyReader:
            grid = OccupancyGrid(start, stop, 0.0, _LARGEST, _AREA_COLUMNS, 1, step_axis.axis)
            classes = Classes(len(colours.paints), lambda lives: colours.classes(lives, stop))
            return OccupancyReader(self.trace, self.pool, grid, _ONE_POSITION, classes, self.model)

        self._known = continued(self._known, (start, step_axis.axis, colours.key_at(stop)), stop, begin)
        found = self._known[1].read_to(stop, _ONE_POSITION)
        left, right = step_axis.position(start), step_axis.position(stop)
        edges = left + np.arange(found.grid.columns + 1) * (found.grid.width / step_axis.unit)
        edges[-1] = right
        return AreaBytes(np.minimum(edges, right), found.by_class[:, 0, :].copy())


def stored_area_index(trace: Trace, pool: int, steps: tuple[int, int]) -> TraceIndex | None:
    """The stored index of a long range of steps, which areas are made of; None: the events are read.

    The areas of such a range are made of the index, and no allocation has a band: it would be too narrow to see.
    """
    index = known_index(trace, pool)
    is_long = steps[1] - steps[0] >= LEAST_EVENTS
    return index if is_long and index is not None and index.knows_holders else None


def _held_from_index(
    index: TraceIndex, steps: tuple[int, int], step_axis: StepAxis, colours: Colouring
) -> AreaBytes:
    """The bytes of each class, averaged over the parts of the trace that overlap the steps."""
    held = index.held_within(*steps)
    starts, column = np.unique(held["start"], return_inverse=True)
    stops = np.append(starts[1:], held["stop"].max())
    labels, which = np.unique(held["label"], return_inverse=True)
    lives = np.zeros(len(labels), LIFETIME)  # one for each label: a colouring may need much memory for each
    lives["label"] = np.where(labels == REST, 0, labels)
    classes = np.where(labels == REST, len(colours.paints) - 1, colours.classes(lives, steps[1]))
    sums = np.zeros((len(colours.paints), len(starts)))
    np.add.at(sums, (classes.astype(np.intp)[which], column), held["byte_steps"])
    edges = np.clip(np.append(starts, stops[-1]).astype(np.float64), *steps)
    rows = index.rolling.series
    edges = step_axis.positions(edges, np.interp(edges, rows["step"], rows["time"]))
    return AreaBytes(edges, sums / (stops - starts).astype(np.float64))


def area_traces(
    every: AreaBytes | None, bands: Bands, colours: Colouring, fills: list[str], divisor: int
) -> list[dict[str, Any]]:
    """The areas of the smaller allocations as `MOST_AREAS` plotly traces; those without memory are empty.

    Args:
        every: the bytes of all allocations, by the classes of `colours`; None: there are no smaller ones.
        bands: the allocations with a band.
        colours: `Colouring.for_images`.
        fills: the colour of each class.
        divisor: bytes per unit of the y axis.
    """
    found = [] if every is None else _small_allocation_areas(every, bands, fills, colours)
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


def _small_allocation_areas(
    every: AreaBytes, bands: Bands, fills: list[str], colours: Colouring
) -> list[tuple[str, Floats, Floats]]:
    """The colour and the outline of each area, from the lowest up; x in axis units, y in bytes."""
    of_bands = _bytes_of_bands(bands, every.edges, colours, len(every.held))
    smaller = np.maximum(every.held - of_bands, 0.0)
    low, found = of_bands.sum(axis=0), []
    for fill in dict.fromkeys(fills):
        held = smaller[[each == fill for each in fills]].sum(axis=0)
        if held.max(initial=0.0) >= 1.0:  # less is a sum of fractions
            found.append((fill, *_stepped_area_outline(every.edges, low, low + held)))
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


def _stepped_area_outline(edges: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """A closed outline of steps between two heights of each column."""
    across = np.repeat(edges, 2)[1:-1]
    x = np.concatenate([across, across[::-1], across[:1]])
    y = np.concatenate([np.repeat(low, 2), np.repeat(high, 2)[::-1], low[:1]])
    return x, y


def area_fills(trace: Trace, pool: int, look: Look, colours: Colouring) -> list[str]:
    """The colour of the area of each class; faded where no label of it belongs to what the user chose."""
    fills = [paint.fill for paint in colours.paints]
    choice = choice_of(look)
    labels = np.zeros(len(trace.labels), LIFETIME)
    labels["label"] = np.arange(len(labels))
    if isinstance(choice, SearchChoice):
        wanted = search_filter(choice.text)
        if wanted != Filter(wanted.text) or wanted.address is not None:  # not only labels decide
            return fills
        chosen = labels[found_by(trace.labels, choice.text)(labels)]
    elif choice is None or choice.by not in _BY_LABEL:
        return fills
    else:
        chosen = labels[members(grouping_of(trace, pool, choice.by), choice)(labels)]
    kept = set(colours.classes(chosen, 0).tolist())
    paper = look.paints.paper
    return [fill if number in kept else mixed(fill, paper, FADE) for number, fill in enumerate(fills)]


# ------------------------------------------------------------------------------
# The active-memory timeline: bytes in use over time, with the largest allocations stacked as bands.

LARGEST: Final = 200
"""Allocations with a band of their own, at most."""

_EDGE: Final = 0.5  # pixels of the line around a band

INSTEAD_OF_STATE: Final = "holder"
"""What bands are coloured by if chunks are coloured by state: every band is in use."""


@dataclass(frozen=True)
class ActiveMemoryWindow:
    """The allocations in a window of steps, ready to draw."""

    # trace, pool, look: what it was made for
    trace: Trace
    pool: int
    look: Look
    step_axis: StepAxis  # the x axis
    steps: tuple[int, int]  # the first and last step
    bands: Bands  # the largest allocations
    others: int  # the number of all other allocations
    series: NDArray[np.void]  # TIMELINE records: bytes in use of all allocations
    colours: Colouring  # the colouring of the bands
    # reads the allocations, for this window and for a later end of it
    reader: LifetimeReader = field(repr=False)
    class_reader: ClassReader = field(repr=False)  # reads the bytes of all allocations by class, likewise
    by_class: AreaBytes | None  # those bytes; None: every allocation has a band
    # the number of labels that the trace had; those of a running recording may come after their events
    names: int
    # the traces of the panel that do not depend on the step
    static_traces: tuple[Mapping[str, Any], ...] = ()

    @property
    def divisor(self) -> int:
        """Bytes per unit of the y axis."""
        return axis_unit(self.top)[0]

    @property
    def reach(self) -> float:
        """The end of the y axis, in its units."""
        return 1.05 * self.top / self.divisor

    @property
    def top(self) -> float:
        """The most bytes in use, at least 1."""
        return float(max(self.series["bytes_in_use_max"].max(initial=0), self.bands.highest, 1))


def active_memory_window(  # noqa: PLR0913  the caller passes what it already has
    trace: Trace,
    pool: int = 0,
    look: Look = PLAIN,
    colours: Colouring | None = None,
    *,
    series: NDArray[np.void] | None = None,
    model: Model | None = None,
    before: ActiveMemoryWindow | None = None,
) -> ActiveMemoryWindow:
    """Read the allocations in the window of `look` (its `steps`), for the timeline of active memory.

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        look: theme, colouring, axis and window; its other fields do not matter here.
        colours: the colouring of `look`, if the caller has it; `INSTEAD_OF_STATE` replaces the one by state.
        series: `timeline`'s rows for these steps and at most one beyond each end, if the caller has them.
        model: a model of this trace and pool, whose snapshots speed up the search; returns to its step.
        before: the last window of this trace; only events that it did not read are read if both begin at one step.

    Raises:
        TraceError: the events up to the window contradict each other.
    """
    step_axis, model = StepAxis.of(trace, look.axis), model or Model(trace, pool)
    first, last = timeline_steps(step_axis, look)
    if before is not None and (before.trace is not trace or before.pool != pool):
        before = None
    if series is None:
        series = timeline(trace, pool, first, last, timeline_parts.drawn_intervals(last - first))
    reader, bands, others = _read_active_memory_bands(model, step_axis, (first, last), before)
    if colours is None or colours.name == "state":
        name = INSTEAD_OF_STATE if look.colour == "state" else look.colour
        colours = colouring(trace, pool, name, look.paints)
    class_reader = before.class_reader if before else ClassReader(trace, pool, model)
    by_class = class_reader.read((first, last), step_axis, colours.for_images) if others else None
    window = ActiveMemoryWindow(
        trace=trace,
        pool=pool,
        look=look,
        step_axis=step_axis,
        steps=(first, last),
        bands=bands,
        others=others,
        series=series,
        colours=colours,
        reader=reader,
        class_reader=class_reader,
        by_class=by_class,
        names=len(trace.labels),
    )
    return replace(window, static_traces=_active_memory_traces(window, look.paints, before))


def _read_active_memory_bands(
    model: Model, step_axis: StepAxis, steps: tuple[int, int], before: ActiveMemoryWindow | None
) -> tuple[LifetimeReader, Bands, int]:
    """The bands of these steps, and the number of other allocations; those of `before` if they are the same."""
    trace, pool = model.trace, model.pool
    if before is not None and before.steps[0] == steps[0] and before.reader.stop <= steps[1]:
        reader = before.reader
        if before.steps == steps and before.step_axis.axis == step_axis.axis:
            return reader, before.bands, before.others
    else:
        reader = LifetimeReader(trace, pool, steps[0], largest=LARGEST, model=model)
    if stored_area_index(trace, pool, steps) is not None:
        none = bands_of(np.zeros(0, LIFETIME), step_axis, steps)
        return reader, none, _active_memory_allocations(model, steps)
    found = reader.read_to(steps[1])
    return reader, bands_of(found.lifetimes, step_axis, steps), found.seen - len(found.lifetimes)


def _active_memory_allocations(model: Model, steps: tuple[int, int]) -> int:
    """How many allocations there were in these steps, beside those that were alive before."""
    counts = []
    for step in steps:
        with model.visiting(step) as there:
            counts.append(there.stats().num_allocs)
    return counts[1] - counts[0]


def _active_memory_traces(
    window: ActiveMemoryWindow, theme: Theme, before: ActiveMemoryWindow | None
) -> tuple[Mapping[str, Any], ...]:
    lives, grouped = window.bands.lifetimes, window.colours.for_images
    pale = faded(window.trace, window.pool, window.look, lives)
    which = window.colours.classes(lives, window.steps[1])
    fills = [
        "" if faint else window.colours.paints[number].fill
        for faint, number in zip(pale.tolist(), which.tolist(), strict=True)
    ]
    x, y = window.bands.outlines(np.flatnonzero(pale))
    areas = area_fills(window.trace, window.pool, window.look, grouped)
    return (
        _all_in_use(window, theme),
        *area_traces(window.by_class, window.bands, grouped, areas, window.divisor),
        *_band_class_traces(window, which, theme),
        _band_edges(window, theme),
        fade_trace(x, y / window.divisor, theme),
        names_on_bands(window.bands, window.trace, window.divisor, window.reach, fills),
        _band_hover_points(window, before),
    )


def _band_hover_points(window: ActiveMemoryWindow, before: ActiveMemoryWindow | None) -> Mapping[str, Any]:
    """The hover points of bands; those of the window before if only colours differ."""
    known = before is not None and before.bands is window.bands
    if known and before and (before.names, before.divisor) == (window.names, window.divisor):
        return before.static_traces[-1]
    return hover_points(window.bands, window.trace, window.pool, window.divisor)


def active_memory_panel(window: ActiveMemoryWindow, step: int | None, look: Look) -> Panel:
    """The timeline of active memory as a panel; only its last two traces depend on `step` and the selection."""
    theme = look.paints
    divisor, unit = axis_unit(window.top)
    drawn = len(window.bands.lifetimes)
    smaller = f"; {window.others:,} smaller ones, an area a colour" if window.others else ""
    return Panel(
        name="active_memory",
        title_names_y=True,
        listed_elsewhere=True,
        title=f"Active memory ({unit})",
        caption=f"the {drawn:,} largest allocations, each a band from allocate to free{smaller}",
        traces=[
            *window.static_traces,
            _selected_band(window, look, theme),
            timeline_parts.step_line(window.step_axis, step, window.reach, theme),
        ],
        xaxis=window.step_axis.xaxis(look.steps),
        yaxis={"title": {"text": f"bytes in use ({unit})"}, "range": [0, window.reach], "tickformat": ",~g"},
        x_unit=window.step_axis.unit,
        y_unit=float(divisor),
        definition=(
            "bytes in use: the sizes of all chunks in use, waste included.<br>"
            f"In these steps {drawn + window.others:,} allocations were in use:<br>"
            f" the {drawn:,} largest have a band each;<br>"
            " the areas above are all others, averaged<br> over a few pixels, one area a colour."
        ),
    )


def allocation_at(window: ActiveMemoryWindow, x: float, y: float) -> Selected | None:
    """The allocation whose band of active memory is at `x`, `y` (axis units); None if there is none."""
    found = window.bands.at(x, y * window.divisor)
    if found is None:
        return None
    life = window.bands.lifetimes[found]
    return Selected(int(life["address"]), int(life["born"]))


def band_table(window: ActiveMemoryWindow) -> pa.Table:
    """The table of active memory: one row per allocation, the largest first."""
    every = window.bands.lifetimes
    table = life_table(every[np.lexsort([every["born"], ~every["size"]])], window.trace, window.pool)
    what, when = ["size", "requested", "label"], ["allocated_at_step", "freed_at_step"]
    return table.select([*what, *when, "address", "chunk", "thread", "stream"])


def _all_in_use(window: ActiveMemoryWindow, theme: Theme) -> dict[str, Any]:
    """All bytes in use, behind bands and areas: what is visible are peaks that the areas average out."""
    x, y = timeline_parts.upper_edge(window.series, "bytes_in_use", window.step_axis)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "bytes in use",
        "x": x,
        "y": y / window.divisor,
        "line": {"color": theme.pool.line, "width": 1, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": theme.pool.fill,
        "hovertemplate": f"bytes in use: %{{y:,.2f}} {axis_unit(window.top)[1]}<extra></extra>",
    }


def _band_class_traces(
    window: ActiveMemoryWindow, which: NDArray[np.uint8], theme: Theme
) -> list[dict[str, Any]]:
    """One trace of bands per class; `which`: the class of each."""
    traces, areas = [], _fills_of_areas(window)
    for number in range(MOST_CLASSES):
        named = number < len(window.colours.names)
        paint = window.colours.paints[number] if named else Paint(theme.paper, theme.paper)
        mine = np.flatnonzero(which == number)
        x, y = window.bands.outlines(mine)
        drawn = len(mine) > 0 or paint.fill in areas
        traces.append(
            {
                **LINES,
                **window.colours.legend(number, shown=window.look.legend, drawn=drawn),
                "x": x,
                "y": y / window.divisor,
                "fill": "toself",
                "fillcolor": paint.fill,
                # Corners within a pixel stay: without them a thin band would have no area.
                "line": {"color": paint.fill, "width": _EDGE, "simplify": False},
            }
        )
    return traces


def _fills_of_areas(window: ActiveMemoryWindow) -> set[str]:
    """The colours of the classes that have memory in areas, faded or not."""
    if window.by_class is None:
        return set()
    paints = window.colours.for_images.paints
    return {paint.fill for paint, held in zip(paints, window.by_class.held, strict=True) if held.any()}


def _band_edges(window: ActiveMemoryWindow, theme: Theme) -> dict[str, Any]:
    """Lines around the bands that are much larger than a line."""
    width, height = window.look.map_pixels
    begin, end = window.bands.ends()
    left, right = window.bands.sides
    least = LEAST_EDGED * _EDGE
    high = window.bands.lifetimes["size"] >= least / height * window.reach * window.divisor
    wide = end - begin >= least / width * (right - left)
    x, y = window.bands.outlines(np.flatnonzero(high & wide))
    return edges_trace(x, y / window.divisor, theme, _EDGE)


def _selected_band(window: ActiveMemoryWindow, look: Look, theme: Theme) -> dict[str, Any]:
    born = None if look.selected is None else look.selected.born
    mine = np.flatnonzero(window.bands.lifetimes["born"] == (NEVER if born is None else born))
    x, y = window.bands.outlines(mine)
    return {
        **LINES,
        "name": "selected",
        "showlegend": False,
        "x": x,
        "y": y / window.divisor,
        "line": {"color": theme.selection, "width": 2.5},
    }


def _active_memory_data(heap: HeapData, look: Look) -> ActiveMemoryWindow:
    """What the active-memory timeline shows: coloured by holder, not by state, since all its chunks are in use."""
    colour = INSTEAD_OF_STATE if look.colour == "state" else look.colour
    pixels = plot_pixels(VIEW, heap, look)
    look = replace(look, colour=colour, legend=look.legend and not heap.brief, map_pixels=pixels)
    colours, before = heap.colours(look), heap.previous("active_memory")
    key = (len(heap.trace), look.axis, look.steps, pixels, colours, choice_of(look))

    def make() -> ActiveMemoryWindow:
        series = heap.history(look).series if heap.brief else None  # a dashboard has it for other views
        return active_memory_window(
            heap.trace, heap.model.pool, look, colours=colours, series=series, model=heap.model, before=before
        )

    return heap.cached("active_memory", key, make)


VIEW: Final = View(
    name="active_memory",
    title="active memory",
    data=_active_memory_data,
    panels=lambda window, heap, look: [active_memory_panel(window, heap.step, look)],
    table=band_table,
    height=380,
    at=lambda window, _heap, _look, x, y: allocation_at(window, x, y),
    windows=("steps",),
    dashboard=DashboardPlace(ViewTab("active_memory", "active memory", was="memory"), height=160),
)
