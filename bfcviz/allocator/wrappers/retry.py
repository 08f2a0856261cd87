"""RetryAllocator: a request that finds no memory waits until something is freed, or the time is up."""

import time
from threading import Condition

from bfcviz import _forks
from bfcviz.allocator.attributes import AllocationAttributes
from bfcviz.allocator.protocol import Allocator
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidRequest, OutOfMemory


class RetryAllocator(AllocatorWrapper):
    """Tries again after each free through it, of whatever thread, and once more at the end, as TensorFlow does.

    A request with `no_retry_on_failure` does not wait. A free past this wrapper wakes nobody.

    Args:
        wrapped: the allocator inside.
        seconds: how long a request may wait; TensorFlow's 10 by default.

    Raises:
        InvalidRequest: a time below 0, or without end.
    """

    def __init__(self, wrapped: Allocator, seconds: float = 10.0) -> None:
        super().__init__(wrapped)
        if not 0 <= seconds < float("inf"):
            raise InvalidRequest(f"a wait of {seconds} seconds was asked for; give a finite number from 0 up")
        self.seconds = seconds
        self.waiting = 0
        """Threads that wait now."""
        self._frees = 0
        self._freed = _forks.keep(Condition())

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Memory for `num_bytes`, as soon as there is some.

        Raises:
            OutOfMemory: there was none until the time was up; of the last try.
        """
        patient = self.seconds > 0 and not (attributes and attributes.no_retry_on_failure)
        deadline = time.monotonic() + self.seconds
        in_time = True
        while True:
            seen = self._frees  # before the try: a free between it and the wait is not slept through
            try:
                return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
            except OutOfMemory:
                if not (patient and in_time):
                    raise
            in_time = self._wait(seen, deadline)

    def free(self, address: int) -> None:
        """Give it back, and wake whoever waits."""
        self.wrapped.free(address)
        with self._freed:
            self._frees += 1
            self._freed.notify_all()

    def close(self) -> None:
        """Give all memory back; who waits finds the allocator closed."""
        super().close()
        with self._freed:
            self._frees += 1
            self._freed.notify_all()

    def _wait(self, seen: int, deadline: float) -> bool:
        """Sleep until something was freed since `seen`; False where the time is up."""
        with self._freed:
            self.waiting += 1
            try:
                left = deadline - time.monotonic()
                return self._freed.wait_for(lambda: self._frees != seen, max(left, 0))
            finally:
                self.waiting -= 1
