"""Look: how a heap is looked at. Everything a person chose, and nothing of the heap's state."""

from dataclasses import dataclass
from typing import Literal

from bfcviz.figures.style.theme import Theme, ThemeName, theme_of

Axis = Literal["step", "time"]

Span = tuple[float, float]
"""From where to where."""


@dataclass(frozen=True)
class MapWindow:
    """The part of the region map on screen: bytes from the rows' left edge, and rows from the top."""

    bytes: Span
    rows: Span


@dataclass(frozen=True)
class Selected:
    """The chunk a person clicked, by where it begins and (in use) the event that handed it out.

    Attributes:
        address: where it begins.
        born: `seq` of its ALLOCATE; None for a free chunk.
    """

    address: int
    born: int | None = None


@dataclass(frozen=True)
class Look:
    """What pictures are drawn with besides a heap at a step.

    Attributes:
        theme: `light` or `dark`.
        colour: what chunks are coloured by; one of `colouring.COLOURINGS`.
        axis: what timelines run over.
        map_window: the part of the region map to draw; None: all of it.
        steps: the steps [first, last] that the timelines draw; None: all there are.
        addresses: the positions (bytes, regions side by side) the address-time map draws; None: all.
        wanted: bytes of a request: free chunks smaller than this are of no use to it; None: none asked about.
        selected: the chunk to mark.
    """

    theme: ThemeName = "light"
    colour: str = "state"
    axis: Axis = "step"
    map_window: MapWindow | None = None
    steps: tuple[int, int] | None = None
    addresses: Span | None = None
    wanted: int | None = None
    selected: Selected | None = None

    @property
    def paints(self) -> Theme:
        """The colours of `theme`."""
        return theme_of(self.theme)


PLAIN = Look()
"""The whole heap, coloured by state, in light colours."""
