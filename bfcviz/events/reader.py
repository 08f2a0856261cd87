"""Reader: one of any number of readers of an EventLog, each at its own place."""

from bfcviz.errors import Lapped
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Events


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
        stop = min(self._log.head, self.position + max_events)
        self._raise_if_lapped()
        events = self._log.copy(self.position, max(stop, self.position))
        self._raise_if_lapped()  # what was copied may have been overwritten meanwhile
        self.position += len(events)
        return events

    def resync(self) -> int:
        """Go on at the oldest event that is still there; returns how many were missed."""
        missed = max(self._log.oldest - self.position, 0)
        self.position += missed
        return missed

    def _raise_if_lapped(self) -> None:
        oldest = self._log.oldest
        if oldest > self.position:
            raise Lapped(oldest - self.position, oldest)
