"""Fading: the chunks outside of the holder that the user points at, or filters by, are drawn faded."""

from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.style.colour_math import mixed, translucent
from bfcviz.figures.style.colouring import Classify, Colouring
from bfcviz.figures.style.theme import Theme
from bfcviz.figures.style.view_options import Look
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.holders.holder_choice import HolderChoice, members

FADE: Final = 0.78
"""The share of the paper's colour in a faded one."""

_groupings: WeakKeyDictionary[Trace, dict[tuple[int, str], tuple[int, Grouping]]] = WeakKeyDictionary()


def choice_of(look: Look) -> HolderChoice | None:
    """The holder whose chunks are drawn in full colour; None: all are."""
    return look.hovered or look.holder


def faded(trace: Trace, pool: int, look: Look, records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records in use are drawn faded; free chunks never are.

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        look: has the holder.
        records: chunks or lifetimes, with the fields label, thread, stream and born.
    """
    choice = choice_of(look)
    if choice is None or not len(records):
        return np.zeros(len(records), bool)
    return _outside(trace, pool, choice, records)


def _outside(trace: Trace, pool: int, choice: HolderChoice, records: NDArray[np.void]) -> NDArray[np.bool_]:
    outside = ~members(grouping_of(trace, pool, choice.by), choice)(records)
    return outside & records["in_use"] if "in_use" in (records.dtype.names or ()) else outside


@dataclass(frozen=True)
class _FadedClasses:
    """The classes of a colouring, and after these one for the faded ones of each."""

    classify: Classify
    count: int
    trace: Trace
    pool: int
    choice: HolderChoice

    def __call__(self, records: NDArray[np.void], step: int) -> NDArray[np.integer]:
        pale = _outside(self.trace, self.pool, self.choice, records)
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
