"""Polling: what is not told but must be asked for, asked for again and again by a thread of its own."""

import atexit
import threading
from collections.abc import Callable
from typing import Any, Final

from bfcviz.errors import LiveError
from bfcviz.live.numpy import unserved

PATIENCE: Final = 5.0
"""Seconds that the end of Python waits for a call under way."""


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
        self._name = name
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def refuse_twice(self, whom: str) -> None:
        """Raises LiveError where it runs already: the `with` of an observer was entered twice."""
        if self._thread is not None:
            raise LiveError(f"{whom} is observed by this already: leave that `with` first")

    def start(self) -> None:
        """Begin; the thread's own arrays are not on a heap that serves NumPy."""
        self._ended = threading.Event()
        thread = threading.Thread(target=self._go_on, args=(self._ended,), name=self._name, daemon=True)
        with unserved():
            thread.start()
        self._thread = thread
        atexit.register(self._leave)

    def stop(self) -> None:
        """End, when a call under way is over."""
        atexit.unregister(self._leave)
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _leave(self) -> None:
        """Python ends within the `with`: a thread in a framework's C++ then would abort the process."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

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

    def _go_on(self, ended: threading.Event) -> None:
        while not ended.wait(self._every_s):
            try:
                self.now()
            except Exception as error:  # noqa: BLE001  whoever looks will be told
                self.error = error
                return
