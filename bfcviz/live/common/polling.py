"""Polling: calls a function at regular intervals in a thread of its own."""

import threading
import time
from collections.abc import Callable
from typing import Any

from bfcviz.live.numpy.serve import unserved
from bfcviz.periodic import Periodic


class Polling:
    """Calls a function at regular intervals, never twice at a time; an error ends the polling and is kept.

    Args:
        poll: what to call.
        every_s: seconds from the end of one call to the next.
        name: the name of the thread.
        share: the most of a processor's time that the calls may take, 0..1; after a long one the wait is longer.

    Attributes:
        error: what `poll` raised in the thread.
    """

    def __init__(self, poll: Callable[[], Any], every_s: float, name: str, share: float = 1.0) -> None:
        self._poll = poll
        self._rest = (1 - share) / share
        self._every_s = every_s
        self._lock = threading.Lock()
        # Python may exit within the `with`: a thread in a framework's C++ would then abort the process.
        self._periodic = Periodic(self._next, name, failed=self._keep, at_exit=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin; the thread's own arrays do not come from a heap that serves NumPy."""
        with unserved():
            self._periodic.start(self._every_s)

    def stop(self) -> None:
        """End, after a running call has returned."""
        self._periodic.stop()

    def last(self, error: BaseException | None, call: Callable[[], Any] | None = None) -> None:
        """Call it in this thread at the end of a `with`; an error is raised unless the `with` ends by another error.

        Args:
            error: what ends the `with`.
            call: what to call instead.
        """
        try:
            (call or self.now)()
        except Exception as raised:
            self.error = self.error or raised
            if error is None:
                raise

    def now(self) -> None:
        """Call it in this thread; errors are raised."""
        with self._lock:
            self._poll()

    def _next(self) -> float:
        begin = time.perf_counter()
        self.now()
        return max(self._every_s, (time.perf_counter() - begin) * self._rest)

    def _keep(self, error: Exception) -> None:
        self.error = error
