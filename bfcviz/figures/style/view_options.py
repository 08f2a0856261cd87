"""Look: the view options of a picture: theme, colouring, axis, window, selection; no state of the heap."""

from dataclasses import dataclass
from typing import Literal

from bfcviz.figures.style.theme import Theme, ThemeName, theme_of
from bfcviz.model.holders.holder_choice import HolderChoice

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
        hovered: the holder that the user points at: its chunks are drawn in full colour, the others faded; None: none.
        holder: the holder that every view and table is filtered by, drawn as `hovered` is; None: no filter.
        search: text in the labels of the chunks to outline in the colour of search; None: no search.
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
