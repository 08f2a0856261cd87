"""SearchControl: the progress of a search, and how to stop it."""

import threading
from collections.abc import Callable

Progress = Callable[[int, int, str], object]
"""Called with replays done, replays expected, and a text; the expected number can change."""


class SearchStopped(Exception):
    """The search was stopped by `SearchControl.stop`."""


class SearchControl:
    """Reports the progress of one search and stops it, from any thread.

    A stopped search, and one that Ctrl-C interrupts, returns what it knows; `complete` of its result is false.

    Args:
        progress: called before each replay, in the thread of the search.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop the search before its next replay."""
        self._stopped.set()

    def report(self, done: int, total: int, text: str) -> None:
        """Report the progress.

        Raises:
            SearchStopped: the search must end.
        """
        if self._progress is not None and not self.stopped:
            self._progress(done, max(done, total), text)
        if self.stopped:
            raise SearchStopped
