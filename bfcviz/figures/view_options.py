"""Look: the view options of a picture: theme, colouring, axis, window, selection; no state of the heap."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Classify, Colouring
from bfcviz.figures.theme import Theme, ThemeName, mixed, theme_of, translucent
from bfcviz.model.filters import found_by
from bfcviz.model.grouping import Grouping, HolderChoice, grouping, members

# ------------------------------------------------------------------------------
# Look: the view options of a picture: theme, colouring, axis, window, selection; no state of the heap.

Axis = Literal["step", "time", "mark"]
"""The x axis of timelines: the number of events applied; time; or events with the program's own steps as ticks."""

Span = tuple[float, float]
"""Begin and end."""


@dataclass(frozen=True)
class MapWindow:
    """The window of the region map: bytes from the left edge of the rows, and rows from the top."""

    bytes: Span
    rows: Span


@dataclass(frozen=True)
class Selected:
    """The selected chunk, by its address and (if in use) the event that allocated it.

    Attributes:
        address: the address of its first byte.
        born: `seq` of its ALLOCATE; None for a free chunk.
    """

    address: int
    born: int | None = None


@dataclass(frozen=True)
class Look:
    """The options of a picture, besides the heap and the step.

    Attributes:
        theme: `light` or `dark`.
        colour: the colouring of chunks, one of `colouring.COLOURINGS`.
        axis: the x axis of timelines: `step` (events applied), `time`, or `mark` (the steps of the program).
        map_window: the part of the region map to draw; None: all of it.
        steps: the steps [first, last] that the timelines draw; None: all.
        addresses: the positions that the address-time map draws, in bytes, gaps between regions left out; None: all.
        wanted: bytes of a request; `too small` is the share of free memory in chunks smaller than it; None: no request.
        selected: the chunk to mark; None: none.
        since: an earlier step: chunks are coloured by what grew since then; None: by `colour`.
        hovered: the holder that the user points at: its chunks are drawn in full colour, the others faded; None: none.
        holder: the holder that every view and table is filtered by, drawn as `hovered` is; None: no filter.
        search: what to find, see `bfcviz.model.filters.search_filter`: what it does not find is faded, and in the map
            what it finds is outlined; None: no search.
        legend: whether a legend names the classes of chunks; not where a list beside the picture does.
        map_pixels: width and height of the region map's plot: names are written where they have room.
    """

    theme: ThemeName = "light"
    colour: str = "state"
    axis: Axis = "step"
    map_window: MapWindow | None = None
    steps: tuple[int, int] | None = None
    addresses: Span | None = None
    wanted: int | None = None
    selected: Selected | None = None
    since: int | None = None
    hovered: HolderChoice | None = None
    holder: HolderChoice | None = None
    search: str | None = None
    legend: bool = True
    map_pixels: tuple[int, int] = (1080, 400)

    @property
    def scale(self) -> Literal["step", "time"]:
        """What distances on the axis are: events, or time."""
        return "time" if self.axis == "time" else "step"

    @property
    def paints(self) -> Theme:
        """The colours of `theme`."""
        return theme_of(self.theme)


PLAIN = Look()
"""The whole heap, coloured by state, in light colours."""


# ------------------------------------------------------------------------------
# Fading: the chunks outside of the holder that the user points at or filters by, or that a search does not find.

FADE: Final = 0.78
"""The share of the paper's colour in a faded one."""

_groupings: WeakKeyDictionary[Trace, dict[tuple[int, str], tuple[int, Grouping]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class SearchChoice:
    """The chunks that a search finds; see `bfcviz.model.filters.search_filter`."""

    text: str


Choice = HolderChoice | SearchChoice


def choice_of(look: Look) -> Choice | None:
    """The holder, or else the search, whose chunks are drawn in full colour; None: all are."""
    searched = SearchChoice(look.search) if look.search and look.search.strip() else None
    return look.hovered or look.holder or searched


def faded(trace: Trace, pool: int, look: Look, records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records in use are drawn faded; free chunks never are.

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        look: has the holder or the search.
        records: chunks or lifetimes, with the fields address, size, label, thread, stream and born.
    """
    choice = choice_of(look)
    if choice is None or not len(records):
        return np.zeros(len(records), bool)
    return _records_outside_choice(trace, pool, choice, records)


def _records_outside_choice(
    trace: Trace, pool: int, choice: Choice, records: NDArray[np.void]
) -> NDArray[np.bool_]:
    if isinstance(choice, SearchChoice):
        belongs = found_by(trace.labels, choice.text)
    else:
        belongs = members(grouping_of(trace, pool, choice.by), choice)
    outside = ~belongs(records)
    return outside & records["in_use"] if "in_use" in (records.dtype.names or ()) else outside


@dataclass(frozen=True)
class _FadedClasses:
    """The classes of a colouring, and after these one for the faded ones of each."""

    classify: Classify
    count: int
    trace: Trace
    pool: int
    choice: Choice

    def __call__(self, records: NDArray[np.void], step: int) -> NDArray[np.integer]:
        pale = _records_outside_choice(self.trace, self.pool, self.choice, records)
        found: NDArray[np.integer] = self.classify(records, step) + self.count * pale.astype(np.uint8)
        return found


def with_faded(colours: Colouring, trace: Trace, pool: int, look: Look) -> Colouring:
    """A colouring with a second class for the faded ones of each class; the same one if nothing is faded."""
    choice = choice_of(look)
    if choice is None:
        return colours
    number, paper = len(colours.paints), look.paints.paper
    pale = [replace(paint, fill=mixed(paint.fill, paper, FADE)) for paint in colours.paints]
    classify = _FadedClasses(colours.classify, number, trace, pool, choice)
    return Colouring(colours.name, [*colours.names, *[""] * number], [*colours.paints, *pale], classify)


def grouping_of(trace: Trace, pool: int, by: str) -> Grouping:
    """The grouping, made once for each length of the trace."""
    known = _groupings.setdefault(trace, {})
    found = known.get((pool, by))
    if found is None or found[0] != len(trace):
        found = known[pool, by] = len(trace), grouping(trace, pool, by)
    return found[1]


def fade_trace(x: Any, y: Any, theme: Theme) -> dict[str, Any]:
    """A trace that fades what lies under these closed outlines."""
    return {
        "type": "scatter",
        "mode": "none",
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": translucent(theme.paper, FADE),
        "showlegend": False,
        "hoverinfo": "skip",
    }
