"""FreeSignal: wake threads that wait for a free; used by the heap and by RetryAllocator."""

import threading
import time
from collections.abc import Callable

from bfcviz import _forks, native


class FreeSignal:
    """Lets threads try a request again after each free.

    A thread that frees calls `wake_waiters`, at least where `waiters` is not 0. A thread is counted in `waiters` before
    `try_after_frees` tries, so a free after that try wakes it.

    Attributes:
        waiters: threads that try again.
        wakes: number of calls of `wake_waiters`.
    """

    def __init__(self) -> None:
        self.lock = native.spinlock_new()
        self.waiters = 0
        self.wakes = 0
        self.freed = threading.Condition(_forks.keep(threading.RLock(), _forks.HEAP))

    def __dealloc__(self) -> None:
        native.spinlock_delete(self.lock)

    def try_after_frees(
        self, attempt: Callable[[], int | None], seconds: float, seen: int | None = None
    ) -> int | None:
        """Try again after each free until the time is up.

        Args:
            attempt: makes the request; returns None where there is no memory.
            seconds: how long to wait for frees.
            seen: `wakes` before a try that failed already: the next try follows the first wake since then, provided
                that every free wakes. None: try at once.

        Returns:
            What the last attempt returned; None without an attempt.
        """
        deadline = time.monotonic() + seconds
        self.count_waiter(1)
        try:
            if seen is not None and not self.wait_for_free(seen, deadline):
                return None
            while True:
                before = self.wakes  # read before the try: a free during the try then ends the wait
                address = attempt()
                if address is not None or not self.wait_for_free(before, deadline):
                    return address
        finally:
            self.count_waiter(-1)

    def wait_for_free(self, seen: int, deadline: float) -> bool:
        """Sleep until `wakes` differs from `seen`; False where the time is up."""
        with self.freed:
            while self.wakes == seen:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.freed.wait(left)
        return True

    def wake_waiters(self) -> None:
        """Let all waiting threads try again."""
        with self.freed:
            self.wakes += 1
            self.freed.notify_all()

    def count_waiter(self, change: int) -> None:
        """Count a thread that begins (1) or ends (-1) to try."""
        native.spin_lock(self.lock)
        self.waiters += change
        native.spin_unlock(self.lock)
