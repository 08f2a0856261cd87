"""Look: the view options of a picture: theme, colouring, axis, window, selection; no state of the heap."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bfcviz.figures.theme import Theme, ThemeName, theme_of
from bfcviz.model.grouping import HolderChoice

Axis = Literal["step", "time", "mark"]
"""The x axis of timelines: the number of events applied; time; or events with the program's own steps as ticks."""

Span = tuple[float, float]
"""Begin and end."""


@dataclass(frozen=True)
class MapWindow:
    """The window of the region map that the user chose: bytes from the left edge, and rows from the top."""

    bytes: Span
    rows: Span


@dataclass(frozen=True)
class Selected:
    """The chunk that the user selected, by its address and (if in use) the event that allocated it."""

    address: int  # the address of its first byte
    born: int | None = None  # `seq` of its ALLOCATE; None for a free chunk

    @classmethod
    def of(cls, chunk: Any) -> "Selected":
        """The chunk of a CHUNK record."""
        return cls(int(chunk["address"]), int(chunk["born"]) if chunk["in_use"] else None)


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
        map_pixels: width and height of the plot, in a dashboard of the region map's: names are written, and lines
            drawn, where they have room.
    """

    theme: ThemeName = "light"
    colour: str = "holder"
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
        """What distances on the axis of a look are: events, or time."""
        return "time" if self.axis == "time" else "step"

    @property
    def paints(self) -> Theme:
        """The colours of a look's theme."""
        return theme_of(self.theme)


PLAIN = Look()
"""The whole heap, coloured by holder, in light colours."""


# ------------------------------------------------------------------------------
# Choice: what is drawn in full colour, a holder or what a search finds; and a look with another step, or less chosen.

FADE: Final = 0.78
"""The share of the paper's colour in a faded one."""


@dataclass(frozen=True)
class SearchChoice:
    """What a search finds; see `bfcviz.model.filters.search_filter`."""

    text: str


Choice = HolderChoice | SearchChoice


def choice_of(look: Look) -> Choice | None:
    """The holder, or else the search, whose chunks are drawn in full colour; None: all are."""
    searched = SearchChoice(look.search) if look.search and look.search.strip() else None
    return look.hovered or look.holder or searched


_BEFORE: Final = 0.1  # of the window: what it shows before a step that it follows


def with_step(look: Look, step: int, last: int) -> Look:
    """`look` with its window of steps moved, where `step` lies outside: to just before it, or just after."""
    if look.steps is None or look.steps[0] <= step <= look.steps[1]:
        return look
    length = look.steps[1] - look.steps[0]
    behind = round(length * (_BEFORE if step > look.steps[1] else 1 - _BEFORE))
    first = max(min(step - behind, last - length), 0)
    return replace(look, steps=(first, first + length))


def unmarked(look: Look) -> Look:
    """`look` without what is hovered, and without the first of what is filtered by, searched, compared and selected.

    What is hovered ends with the next move of the mouse: it must not use up the key that ends a choice.
    """
    if look.holder is not None:
        return replace(look, hovered=None, holder=None)
    if look.search is not None:
        return replace(look, hovered=None, search=None)
    if look.since is not None:
        return replace(look, hovered=None, since=None)
    return replace(look, hovered=None, selected=None)
