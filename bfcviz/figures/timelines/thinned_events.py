"""The single events that timelines draw: marks and failed requests, evenly thinned if there are too many."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.model.timelines.rolling import NotableEvents

_FEW: Final = 2_000_000
"""A window of at most so many events is read again for its marks and OOMs."""


@dataclass(frozen=True)
class ThinnedEvents:
    """Events that timelines draw one by one, evenly thinned if there are too many.

    Attributes:
        events: the events that are left, in order.
        every: each stands for so many events, itself included; 1: not thinned.
    """

    events: Events
    every: int = 1

    def between(self, start: int, stop: int) -> "ThinnedEvents":
        """Those with start <= seq < stop."""
        first, end = np.searchsorted(self.events["seq"], [start, stop])
        return ThinnedEvents(self.events[first:end], self.every)


def thinned_events(notes: NotableEvents, trace: Trace, start: int, stop: int) -> ThinnedEvents:
    """The events with start <= seq < stop; they are read again if they were thinned and the window is small."""
    found = ThinnedEvents(notes.events, notes.every).between(start, stop)
    if notes.every == 1 or stop - start > _FEW:
        return found
    again = NotableEvents(notes.kind, notes.pool)
    for block in trace.blocks(start, stop):
        again.take(block)
    return ThinnedEvents(again.events, again.every)
