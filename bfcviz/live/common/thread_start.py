"""ThreadStartHook: a new thread inherits serving from the thread that starts it; NumPy's handler is per context."""

import threading
from collections.abc import Callable


class ThreadStartHook:
    """While active, a new thread calls `prepare` first if `is_wanted` was true in the thread that started it."""

    def __init__(self, is_wanted: Callable[[], bool], prepare: Callable[[], object]) -> None:
        self._is_wanted = is_wanted
        self._prepare = prepare
        self._start: Callable[[threading.Thread], None] | None = None
        self._original = threading.Thread.start

    def begin(self) -> None:
        """Replace `threading.Thread.start`."""
        self._original = original = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if self._start is None or not self._is_wanted():
                return original(thread)
            self._wrap(thread)
            try:
                original(thread)
            except BaseException:  # it runs already, or no thread can start
                del thread.run
                raise

        self._start = start
        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def end(self) -> None:
        """Restore the original; if other code has replaced it since, only pass calls on."""
        if threading.Thread.start is self._start:
            threading.Thread.start = self._original  # type: ignore[method-assign]
        self._start = None

    def _wrap(self, thread: threading.Thread) -> None:
        run = thread.run

        def prepared() -> None:
            del thread.run  # a thread that references itself would be freed late
            self._prepare()
            run()

        thread.run = prepared  # type: ignore[method-assign]
