"""Work: a workload in a thread of its own, so that the notebook's kernel stays free for clicks."""

import asyncio
import contextvars
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """A function under way; `await` it, or ask `result()` from a script, for what it returns or raises.

    Python cannot end a thread from outside: an interrupt ends the waiting, not the work.
    """

    def __init__(
        self, function: Callable[..., T], arguments: tuple[Any, ...], ended: Callable[[], None]
    ) -> None:
        self._future: Future[T] = Future()
        self._function = function
        self._arguments = arguments
        self._ended = ended
        run = contextvars.copy_context().run  # what it prints stays with the cell that began it
        self._thread = Thread(target=run, args=(self._run,), name="bfcviz-work", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        """What it raised; None while it runs, and where it ended well."""
        return self._future.exception() if self._future.done() else None

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, at most `timeout` seconds; returns or raises what it did, or TimeoutError."""
        return self._future.result(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        # Shielded: a waiter that is cancelled must not cancel what cannot be stopped.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    def _run(self) -> None:
        try:
            result = self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits
            self._future.set_exception(error)
        else:
            self._future.set_result(result)
        self._ended()
