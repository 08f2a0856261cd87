"""Threads are served from their start, if whoever started them was: NumPy's handler belongs to a context."""

import threading
from collections.abc import Callable


class Inheritance:
    """While on, `prepare` is called in each new thread whose starter `is_wanted` at that moment."""

    def __init__(self, is_wanted: Callable[[], bool], prepare: Callable[[], object]) -> None:
        self._is_wanted = is_wanted
        self._prepare = prepare
        self._start: Callable[[threading.Thread], None] | None = None
        self._original = threading.Thread.start

    def begin(self) -> None:
        """Stand in for `threading.Thread.start`."""
        self._original = original = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if self._start is None or not self._is_wanted():
                return original(thread)
            self._wrap(thread)
            try:
                original(thread)
            except BaseException:  # it runs already, or there can be no more
                del thread.run
                raise

        self._start = start
        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def end(self) -> None:
        """Put back what was there; where somebody else stands in by now, only pass on."""
        if threading.Thread.start is self._start:
            threading.Thread.start = self._original  # type: ignore[method-assign]
        self._start = None

    def _wrap(self, thread: threading.Thread) -> None:
        run = thread.run

        def prepared() -> None:
            del thread.run  # a thread that refers to itself would be freed late
            self._prepare()
            run()

        thread.run = prepared  # type: ignore[method-assign]
