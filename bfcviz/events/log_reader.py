"""Reader: reads an EventLog. A log can have any number of readers, each with its own position."""

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
        """The next events, at most `max_events`, as a copy; empty if there are no new ones.

        Raises:
            Lapped: the writer overtook this reader; `resync()` continues after the gap.
        """
        events = np.empty(max(min(self._log.head - self.position, max_events), 0), EVENT)
        return events[: self.read_into(events)]

    def read_into(self, events: Events) -> int:
        """Copy the next events over the rows of `events`; returns how many. Raises as `read`.

        The content of the other rows is undefined; if it raises, that of all rows.
        """
        count = max(min(self._log.head - self.position, len(events)), 0)
        self._raise_if_lapped()
        copied = self._log.copy_into(events[:count], self.position)
        self._raise_if_lapped()  # the writer may have overwritten the rows during the copy
        self.position += copied
        return copied

    def resync(self) -> int:
        """Continue at the oldest event that is kept; returns how many were missed."""
        missed = max(self._log.oldest - self.position, 0)
        self.position += missed
        return missed

    def _raise_if_lapped(self) -> None:
        oldest = self._log.oldest
        if oldest > self.position:
            raise Lapped(oldest - self.position, oldest)
