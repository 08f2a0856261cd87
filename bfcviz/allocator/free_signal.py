"""FreeSignal: threads without memory wait for a free; used by the heap itself and by RetryAllocator."""

import threading
import time
from collections.abc import Callable

from bfcviz import _forks, native


class FreeSignal:
    """Lets threads try a request again after each free.

    Whoever frees calls `wake_waiters` where `waiters` is not 0. No free is missed: a thread is counted before it tries,
    so a free that comes after its try finds it counted.

    Attributes:
        waiters: threads that try again.
        wakes: how often they were woken.
    """

    def __init__(self) -> None:
        self.lock = native.spinlock_new()
        self.waiters = 0
        self.wakes = 0
        self.freed = threading.Condition(_forks.keep(threading.RLock(), _forks.HEAP))

    def __dealloc__(self) -> None:
        native.spinlock_delete(self.lock)

    def try_after_frees(self, attempt: Callable[[], int | None], seconds: float) -> int | None:
        """Try at once, and after each free until the time is up.

        Args:
            attempt: makes the request; returns None where there is no memory.
            seconds: how long to wait for frees.

        Returns:
            What the last attempt returned.
        """
        deadline = time.monotonic() + seconds
        self.count_waiter(1)
        try:
            while True:
                seen = self.wakes  # before the try: a free between it and the wait is not slept through
                address = attempt()
                if address is not None or not self.wait_for_free(seen, deadline):
                    return address
        finally:
            self.count_waiter(-1)

    def wait_for_free(self, seen: int, deadline: float) -> bool:
        """Sleep until `wakes` is no longer `seen`; False where the time is up."""
        with self.freed:
            while self.wakes == seen:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.freed.wait(left)
        return True

    def wake_waiters(self) -> None:
        """Let the threads that wait try again."""
        with self.freed:
            self.wakes += 1
            self.freed.notify_all()

    def count_waiter(self, change: int) -> None:
        """A thread begins (1) or ends (-1) trying."""
        native.spin_lock(self.lock)
        self.waiters += change
        native.spin_unlock(self.lock)
