"""Reader: one of any number of readers of an EventLog, each at its own place."""

import numpy as np

from bfcviz.errors import Lapped
from bfcviz.events.log import EventLog
from bfcviz.events.schema import EVENT, Events


class Reader:
    """Reads a log's events in order, each once.

    Args:
        log: the log to follow.
        start: number of the first event to read; by default the oldest there is.

    Attributes:
        position: number of the next event it will read.
    """

    def __init__(self, log: EventLog, start: int | None = None) -> None:
        self._log = log
        self.position = log.oldest if start is None else start

    def read(self, max_events: int = 65_536) -> Events:
        """The next events, at most `max_events`, as a copy; empty when there are no new ones.

        Raises:
            Lapped: the writer overtook this reader; `resync()` goes on behind the gap.
        """
        events = np.empty(max(min(self._log.head - self.position, max_events), 0), EVENT)
        return events[: self.read_into(events)]

    def read_into(self, events: Events) -> int:
        """Copy the next events over the rows of `events`; returns how many. Raises as `read`.

        Rows after those hold anything, and all rows where it raises.
        """
        count = max(min(self._log.head - self.position, len(events)), 0)
        self._raise_if_lapped()
        copied = self._log.copy_into(events[:count], self.position)
        self._raise_if_lapped()  # what was copied may have been overwritten meanwhile
        self.position += copied
        return copied

    def resync(self) -> int:
        """Go on at the oldest event that is still there; returns how many were missed."""
        missed = max(self._log.oldest - self.position, 0)
        self.position += missed
        return missed

    def _raise_if_lapped(self) -> None:
        oldest = self._log.oldest
        if oldest > self.position:
            raise Lapped(oldest - self.position, oldest)
