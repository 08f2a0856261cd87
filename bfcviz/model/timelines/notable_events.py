"""Events worth a sign of their own in a timeline, such as marks and failed requests: never too many of them."""

from typing import Final

import numpy as np

from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind

MOST: Final = 1000
"""Events that are kept of those that come."""


class NotableEvents:
    """The events of one kind and pool among all that are taken in; thinned evenly when there are too many.

    Attributes:
        kind, pool: which events these are.
        total: how many there were.
        every: one of so many is kept.
    """

    def __init__(self, kind: Kind, pool: int, most: int = MOST) -> None:
        self.kind, self.pool = kind, pool
        self.total = 0
        self.every = 1
        self._most = most
        self._kept = np.zeros(0, EVENT)

    @property
    def events(self) -> Events:
        """Those that are kept, in order: all, or every second, every fourth, ... of them."""
        return self._kept

    def take(self, block: Events) -> None:
        """Take in the events that follow."""
        found = taken(block, (block["kind"] == self.kind) & (block["pool"] == self.pool))
        if not len(found):
            return
        self._kept = joined([self._kept, found[-self.total % self.every :: self.every]])
        self.total += len(found)
        while len(self._kept) > self._most:
            self._kept = self._kept[::2]
            self.every *= 2
