"""RetryAllocator: a request without memory waits for a free, up to a time limit."""

from functools import partial

from bfcviz.allocator.free_signal import FreeSignal
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidRequest, OutOfMemory


class RetryAllocator(AllocatorWrapper):
    """Tries again after each free through it, from any thread, and once more when the time is up, as TensorFlow does.

    A request with `no_retry_on_failure` does not wait. A free that bypasses this wrapper wakes no thread.

    Args:
        wrapped: the allocator inside.
        retry_s: how long a request may wait, in seconds; TensorFlow's 10 by default.

    Raises:
        InvalidRequest: `retry_s` is negative or not finite.
    """

    def __init__(self, wrapped: Allocator, retry_s: float = 10.0) -> None:
        super().__init__(wrapped)
        if not 0 <= retry_s < float("inf"):
            raise InvalidRequest(f"retry_s is {retry_s}; give a finite number from 0 up")
        self.retry_s = retry_s
        self._frees = FreeSignal()

    @property
    def waiting(self) -> int:
        """Number of threads that wait now."""
        return self._frees.waiters

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes` as soon as memory is free.

        Raises:
            OutOfMemory: the time is up; the numbers are those of the last try.
        """
        seen = self._frees.wakes  # read before the first try: a free after it ends the wait
        try:
            return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        except OutOfMemory:
            if self.retry_s == 0 or (attributes and attributes.no_retry_on_failure):
                raise
        attempt = partial(self.wrapped.try_allocate, num_bytes, alignment, label, attributes=attributes)
        address: int | None = self._frees.try_after_frees(attempt, self.retry_s, seen)
        if address is not None:
            return address
        return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)

    def free(self, address: int) -> None:
        """Free it, and wake the waiting threads."""
        self.wrapped.free(address)
        self._frees.wake_waiters()

    def close(self) -> None:
        """Release all memory. Waiting threads find the allocator closed."""
        super().close()
        self._frees.wake_waiters()
