"""Events that a timeline marks, such as marks and failed requests: a bounded number of them."""

from typing import Final

import numpy as np

from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind

MOST: Final = 1000
"""The most events that are kept."""


class NotableEvents:
    """The events of one kind and pool among all added; thinned evenly where there are too many.

    Attributes:
        kind, pool: which events these are.
        total: number of such events.
        every: one of `every` events is kept.
    """

    def __init__(self, kind: Kind, pool: int, most: int = MOST) -> None:
        self.kind, self.pool = kind, pool
        self.total = 0
        self.every = 1
        self._most = most
        self._kept = np.zeros(0, EVENT)

    @property
    def events(self) -> Events:
        """The kept events in order: all, or every second, every fourth, ... one."""
        return self._kept

    def take(self, block: Events) -> None:
        """Add the next events of the trace."""
        found = taken(block, (block["kind"] == self.kind) & (block["pool"] == self.pool))
        if not len(found):
            return
        self._kept = joined([self._kept, found[-self.total % self.every :: self.every]])
        self.total += len(found)
        while len(self._kept) > self._most:
            self._kept = self._kept[::2]
            self.every *= 2
