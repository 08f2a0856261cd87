"""RetryAllocator: a request that finds no memory waits until something is freed, or the time is up."""

from functools import partial

from bfcviz.allocator.free_signal import FreeSignal
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidRequest, OutOfMemory


class RetryAllocator(AllocatorWrapper):
    """Tries again after each free through it, of whatever thread, and once more at the end, as TensorFlow does.

    A request with `no_retry_on_failure` does not wait. A free past this wrapper wakes no thread.

    Args:
        wrapped: the allocator inside.
        retry_s: how long a request may wait, in seconds; TensorFlow's 10 by default.

    Raises:
        InvalidRequest: a time below 0, or without end.
    """

    def __init__(self, wrapped: Allocator, retry_s: float = 10.0) -> None:
        super().__init__(wrapped)
        if not 0 <= retry_s < float("inf"):
            raise InvalidRequest(f"a wait of {retry_s} seconds was asked for; give a finite number from 0 up")
        self.retry_s = retry_s
        self._frees = FreeSignal()

    @property
    def waiting(self) -> int:
        """Threads that wait now."""
        return self._frees.waiters

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
        try:
            return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        except OutOfMemory:
            if self.retry_s == 0 or (attributes and attributes.no_retry_on_failure):
                raise
        attempt = partial(self.wrapped.try_allocate, num_bytes, alignment, label, attributes=attributes)
        address: int | None = self._frees.try_after_frees(attempt, self.retry_s)
        if address is not None:
            return address
        return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)

    def free(self, address: int) -> None:
        """Give it back, and wake the threads that wait."""
        self.wrapped.free(address)
        if self._frees.waiters:
            self._frees.wake_waiters()

    def close(self) -> None:
        """Give all memory back; a thread that waits finds the allocator closed."""
        super().close()
        self._frees.wake_waiters()
