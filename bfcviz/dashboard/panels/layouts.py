"""Which panels a dashboard shows, and where: three layouts, each also for a narrow page."""

from collections.abc import Mapping
from typing import Final

from bfcviz.figures.panel import BELOW, Panel, Place

NARROW_PX: Final = 760
"""Below this width each panel has its own row."""

_HEIGHTS: Final = {"region_map": 300, "address_time": 260, "lifetimes": 220, "rate": 80}
_HEIGHT: Final = 165  # of every other plot, in pixels
_BELOW: Final = {"bin_chunks": 66}  # pixels under the plot: its ticks are slanted, and its axis has a title
_GAP: Final = 0.08

Rows = tuple[tuple[tuple[str, float], ...], ...]
"""For each row: its panels from the left, and their shares of the width."""

_STEP: Final[Rows] = (
    (("region_map", 1.0),),
    (("stats", 0.6), ("bin_bytes", 0.4)),
    (("fragmentation", 0.6), ("bin_chunks", 0.4)),
)
_TIME: Final[Rows] = (
    (("address_time", 1.0),),
    (("lifetimes", 1.0),),
    (("stats", 0.5), ("fragmentation", 0.5)),
    (("rate", 1.0),),
)

LAYOUTS: Final[Mapping[str, Rows]] = {
    "heap": _STEP,
    "time": _TIME,
    "everything": (*_STEP, *_TIME[:2], *_TIME[3:]),
}
"""Name -> layout: the heap at one step, the heap over time, or both."""


def names_in(layout: str) -> list[str]:
    """Names of the panels that the layout shows."""
    return [name for row in LAYOUTS[layout] for name, _ in row]


def arrange(layout: str, panels: Mapping[str, Panel], *, narrow: bool = False) -> dict[str, Place]:
    """The place of each panel of the layout: pixels from the top, shares of the width."""
    rows = LAYOUTS[layout]
    if narrow:
        rows = tuple(((name, 1.0),) for row in rows for name, _ in row)
    places: dict[str, Place] = {}
    top = 0
    for row in rows:
        plot = top + max(panels[name].above for name, _ in row)
        left = 0.0
        for name, share in row:
            right = left + share if left + share > 1 - 1e-6 else left + share - _GAP / 2
            begin = left if left == 0 else left + _GAP / 2
            places[name] = Place(begin, min(right, 1.0), plot, _HEIGHTS.get(name, _HEIGHT))
            left += share
        top = plot + max(places[name].height + _BELOW.get(name, BELOW) for name, _ in row)
    return places
