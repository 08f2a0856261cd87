"""Call a function periodically in the background; the program does not wait for it."""

import atexit
import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bfcviz import _forks

if TYPE_CHECKING:
    import asyncio

PATIENCE_S: Final = 5.0
"""Seconds that the exit of Python waits for a running call."""


class _Run:
    """One run of periodic calls, from its start to its end: the thread or task."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_over = False

    @property
    def is_alive(self) -> bool:
        """Whether the periodic calls can go on; threads do not survive a fork."""
        if self.task is not None:
            return not self.task.done()
        return self.thread is not None and self.thread.is_alive()


class Periodic:
    """Calls a function repeatedly, one call at a time, until it is stopped or the function returns None.

    It runs in a daemon thread (`start`) or as a task of an event loop (`start_task`), with the caller's context
    variables. In a forked process it is stopped, and can be started again. The exit of Python does not wait for it,
    unless `at_exit` is true.

    Args:
        call: the function; returns the seconds until the next call, None to end.
        name: of the thread.
        failed: receives the exception of a call, which ends the run. Without it, the thread or task raises the
            exception.
        ended: called in the thread or task when the run ends, for any reason.
        at_exit: whether the exit of Python stops it and waits for a running call: a thread inside a framework's C++
            code would otherwise abort the process.

    Attributes:
        thread: of the last `start`; None before it and after `stop`.
    """

    def __init__(
        self,
        call: Callable[[], float | None],
        name: str,
        *,
        failed: Callable[[Exception], object] | None = None,
        ended: Callable[[], object] | None = None,
        at_exit: bool = False,
    ) -> None:
        self._call = call
        self._name = name
        self._failed = failed
        self._ended = ended
        self._at_exit = at_exit
        self._run: _Run | None = None
        self.thread: threading.Thread | None = None
        self._changed = threading.Condition(_forks.keep(threading.RLock(), _forks.HEAP))

    @property
    def running(self) -> bool:
        """Whether the periodic calls were started and have not ended."""
        run = self._run
        return run is not None and run.is_alive

    def start(self, after_s: float = 0.0) -> None:
        """Start the periodic calls in a thread after `after_s` seconds; no effect if it is running."""
        if self.running:
            return
        run = self._run = _Run()
        begin = contextvars.copy_context().run
        run.thread = threading.Thread(
            target=begin, args=(self._loop, run, after_s), name=self._name, daemon=True
        )
        self.thread = run.thread
        run.thread.start()
        if self._at_exit:
            atexit.register(self.stop, PATIENCE_S)

    def start_task(self) -> None:
        """Start the periodic calls on the event loop of this thread; no effect if it is running.

        Raises:
            RuntimeError: no event loop runs in this thread.
        """
        if self.running:
            return
        import asyncio  # noqa: PLC0415  8 ms, which the bar of a short command does not need

        loop = asyncio.get_running_loop()
        self.thread = None
        run = self._run = _Run()
        run.task = loop.create_task(self._loop_task(run))
        run.task.add_done_callback(lambda _: self._end(run))  # also if the task is cancelled before it begins

    def stop(self, patience_s: float | None = None) -> bool:
        """Stop the periodic calls; they can be started again.

        Args:
            patience_s: seconds to wait for a running call of the thread; None: until it returns. If the call itself
                stops it, there is no wait.

        Returns:
            Whether no call of the thread is running.
        """
        if self._at_exit:
            atexit.unregister(self.stop)
        with self._changed:
            run, self._run = self._run, None
            thread, self.thread = self.thread, None
            self._changed.notify_all()
        if run is not None and run.task is not None and not run.task.get_loop().is_closed():
            run.task.get_loop().call_soon_threadsafe(run.task.cancel)
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(patience_s)
        return not thread.is_alive()

    def sleep(self, seconds: float) -> bool:
        """Sleep within a periodic call in the thread, at most until `stop`; returns whether it still runs."""
        return self._sleep(self._run, seconds)

    def _sleep(self, run: _Run | None, seconds: float) -> bool:
        if run is None:
            return False
        with self._changed:
            self._changed.wait_for(lambda: self._run is not run, seconds)
            return self._run is run

    def _loop(self, run: _Run, after_s: float) -> None:
        try:
            wait: float | None = after_s
            while wait is not None and self._sleep(run, wait):
                wait = self._next()
        finally:
            self._end(run)

    async def _loop_task(self, run: _Run) -> None:
        import asyncio  # noqa: PLC0415  as in `start_task`

        try:
            wait: float | None = 0.0
            while wait is not None:
                await asyncio.sleep(wait)
                wait = self._next() if self._run is run else None
        finally:
            self._end(run)

    def _next(self) -> float | None:
        """One periodic call; returns the seconds until the next."""
        try:
            return self._call()
        except Exception as error:
            if self._failed is None:
                raise
            self._failed(error)
            return None

    def _end(self, run: _Run) -> None:
        if run.is_over:
            return
        run.is_over = True
        with self._changed:
            if self._run is run:
                self._run = None
        if self._ended is not None:
            self._ended()
