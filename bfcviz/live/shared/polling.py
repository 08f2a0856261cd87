"""Polling: what is not told but must be asked for, asked for again and again by a thread of its own."""

import threading
from collections.abc import Callable
from typing import Any

from bfcviz.errors import LiveError
from bfcviz.live.numpy.serve import unserved
from bfcviz.periodic import Periodic


class Polling:
    """Calls a function every so often, never twice at a time; what it raises ends that, and is kept.

    Args:
        ask: what to call.
        every_s: seconds from the end of one call to the next.
        name: of the thread.

    Attributes:
        error: what `ask` raised in the thread.
    """

    def __init__(self, ask: Callable[[], Any], every_s: float, name: str) -> None:
        self._ask = ask
        self._every_s = every_s
        self._lock = threading.Lock()
        self._began = False
        # Python may end within the `with`: a thread in a framework's C++ then would abort the process.
        self._periodic = Periodic(self._next, name, failed=self._keep, at_exit=True)
        self.error: Exception | None = None

    def refuse_twice(self, whom: str) -> None:
        """Raises LiveError where it runs already: the `with` of an observer was entered twice."""
        if self._began:
            raise LiveError(f"{whom} is observed by this already: leave that `with` first")

    def start(self) -> None:
        """Begin; the thread's own arrays are not on a heap that serves NumPy."""
        with unserved():
            self._periodic.start(self._every_s)
        self._began = True

    def stop(self) -> None:
        """End, when a call under way is over."""
        self._periodic.stop()
        self._began = False

    def last(self, error: BaseException | None, times: int = 1) -> None:
        """Call it in this thread at the end of a `with`; raises what it raises, unless the `with` ends by an error."""
        try:
            for _ in range(times):
                self.now()
        except Exception as raised:
            self.error = self.error or raised
            if error is None:
                raise

    def now(self) -> None:
        """Call it in this thread; raises what it raises."""
        with self._lock:
            self._ask()

    def _next(self) -> float:
        self.now()
        return self._every_s

    def _keep(self, error: Exception) -> None:
        self.error = error
