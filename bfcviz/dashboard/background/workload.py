"""Workload: a function in a separate thread, so that the notebook's kernel can handle clicks."""

import asyncio
import contextvars
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Workload(Generic[T]):
    """A running function; `await` it, or call `result()` in a script, for its result or exception.

    Python cannot stop a thread from outside: an interrupt ends the wait, not the function.
    """

    def __init__(
        self, function: Callable[..., T], arguments: tuple[Any, ...], ended: Callable[[], None]
    ) -> None:
        self._future: Future[T] = Future()
        self._function = function
        self._arguments = arguments
        self._ended = ended
        run = contextvars.copy_context().run  # what it prints appears in the cell that started it
        self._thread = Thread(target=run, args=(self._run,), name="bfcviz-workload", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has returned or raised."""
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        """The exception it raised; None while it runs, and if it returned."""
        return self._future.exception() if self._future.done() else None

    def result(self, timeout: float | None = None) -> T:
        """Wait at most `timeout` seconds; return its result, or raise its exception or TimeoutError."""
        return self._future.result(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        # Shielded: cancelling the wait must not cancel the future, as the function cannot be stopped.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    def _run(self) -> None:
        try:
            result = self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001  `result` raises it
            self._future.set_exception(error)
        else:
            self._future.set_result(result)
        self._ended()
