"""Keep the arrays of bfcviz itself out of a heap that serves NumPy in this process."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from threading import RLock


@contextmanager
def unwatched() -> Iterator[None]:
    """Use NumPy's own memory inside, and in threads started inside: for what bfcviz computes and draws."""
    serve = sys.modules.get("bfcviz.live.numpy")  # without it no heap serves NumPy, and it is slow to import
    with nullcontext() if serve is None else serve.unserved():
        yield


class UnwatchedLock:
    """A reentrant lock; what its holder allocates belongs to no watched heap, whichever thread holds it."""

    def __init__(self) -> None:
        self._lock = RLock()
        # One for each time that the holder entered; only the holder changes it.
        self._held: list[ExitStack] = []

    def __enter__(self) -> None:
        with ExitStack() as held:
            held.enter_context(self._lock)
            held.enter_context(unwatched())
            self._held.append(held.pop_all())

    def __exit__(self, *error: object) -> None:
        self._held.pop().close()
