"""Wrappers that limit, wait and warn: LimitAllocator, RetryAllocator and AlertAllocator."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock, RLock, local
from typing import Final, NamedTuple

from bfcviz import _forks
from bfcviz.allocator.free_signal import FreeSignal
from bfcviz.allocator.interface import AllocationAttributes, Allocator, Stats
from bfcviz.devices.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import BrokenInvariant, InvalidFree, InvalidRequest, OutOfMemory, PoolTotals
from bfcviz.formats.tensorflow import round_up
from bfcviz.native import MAX_REQUEST
from bfcviz.thresholds import Hysteresis, Threshold
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# LimitAllocator: limits the bytes in use through it, so that one user cannot take a whole heap.


class LimitAllocator(AllocatorWrapper):
    """Refuses requests that would exceed its limit; several can share one heap.

    It counts requests rounded up to 256 bytes; a chunk may be larger.

    Args:
        wrapped: the allocator inside; it must track sizes.
        limit: in bytes, 1 or more, or as text such as `512MiB`.

    Raises:
        InvalidRequest: the limit is below 1, or the allocator inside does not track sizes.
        ValueError: the text is not a size.

    Attributes:
        limit: the most bytes in use at one time.
        used: bytes in use now.
    """

    def __init__(self, wrapped: Allocator, limit: int | str) -> None:
        super().__init__(wrapped)
        self.limit = parse_bytes(limit, "limit")
        if self.limit < 1:
            raise InvalidRequest(f"the limit is {limit} bytes; give 1 or more")
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so freed bytes cannot be counted: put a TrackingAllocator "
                "around it first"
            )
        self.used = 0
        self._lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes` if the limit allows it.

        Raises:
            OutOfMemory: the limit is exceeded (the numbers are the limit's), or the allocator inside has no memory.
        """
        need = round_up(operator.index(num_bytes))
        if not 0 <= need <= MAX_REQUEST:  # the allocator inside refuses it with its own error
            return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        self._reserve(need, num_bytes)
        address = 0
        try:
            address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        finally:
            if address == 0:
                self._release(need)
        return address

    def free(self, address: int) -> None:
        """Free it, and subtract its size."""
        size = 0
        if address:
            try:
                size = round_up(self.wrapped.requested_size(address))
            except InvalidFree:
                size = 0  # an invalid free, or a closed allocator: the allocator inside reports it
        self.wrapped.free(address)
        self._release(size)

    def stats(self) -> Stats:
        """Totals of the allocator inside, with the lower one of both limits."""
        stats = self.wrapped.stats()
        return replace(stats, bytes_limit=min(stats.bytes_limit, self.limit))

    def check_invariants(self) -> None:
        """Check the tables of the allocator inside, and that the bytes in use do not exceed the limit."""
        super().check_invariants()
        if not 0 <= self.used <= self.limit:
            raise BrokenInvariant(f"{self.used} bytes are in use, the limit is {self.limit}")

    def _reserve(self, need: int, num_bytes: int) -> None:
        with self._lock:
            left = self.limit - self.used
            if need <= left:
                self.used += need
                return
        totals = PoolTotals(self.limit, self.limit - left, left, self.limit)
        raise OutOfMemory.of(operator.index(num_bytes), totals)

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self.used -= num_bytes


# ------------------------------------------------------------------------------
# RetryAllocator: a request without memory waits for a free, up to a time limit.


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


# ------------------------------------------------------------------------------
# AlertAllocator: calls a function at once, in the same thread, when a total crosses a threshold.

MEASURES: Final[dict[str, Callable[[Stats], float]]] = {
    "bytes_in_use": lambda s: s.bytes_in_use,
    "pool_bytes": lambda s: s.pool_bytes,
    "free_bytes": lambda s: s.free_bytes,
    "largest_free_chunk": lambda s: s.largest_free_chunk,
    "chunks_in_use": lambda s: s.chunks_in_use,
    "share_of_limit": lambda s: s.bytes_in_use / s.bytes_limit,
    "external_fragmentation": lambda s: 1 - s.largest_free_chunk / s.free_bytes if s.free_bytes else 0.0,
    "internal_fragmentation": lambda s: (
        1 - s.requested_bytes_in_use / s.bytes_in_use if s.bytes_in_use else 0.0
    ),
}
"""Functions that compute each measure of a `Threshold`."""


class Crossing(NamedTuple):
    """A crossed threshold, the value, and the operation that crossed it."""

    threshold: Threshold
    value: float
    heap: str
    doing: str

    def __str__(self) -> str:
        return f"{self.heap}: {self.threshold}: {self.threshold.told(self.value)}, after {self.doing}"


class AlertAllocator(AllocatorWrapper):
    """Checks the totals after every allocate and free, and calls a function when a threshold is crossed.

    It is called once per crossing: again only after the value was back on the good side. Requests that the function
    itself makes raise no alerts. An exception of the function is stored as `error`, because the request has succeeded.

    Args:
        wrapped: the allocator inside.
        thresholds: the thresholds to check.
        call: called with each `Crossing`.
    """

    def __init__(
        self, wrapped: Allocator, thresholds: Sequence[Threshold], call: Callable[[Crossing], object]
    ) -> None:
        super().__init__(wrapped)
        self.thresholds = tuple(thresholds)
        self.error: Exception | None = None
        self._call = call
        self._states = [Hysteresis() for _ in self.thresholds]
        self._lock = _forks.keep(Lock())
        self._here = local()

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`, then check the totals."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address:
            self._check_totals(f"{num_bytes} bytes for {self.label_text(label) or 'no label'}")
        return address

    def free(self, address: int) -> None:
        """Free it, then check the totals."""
        self.wrapped.free(address)
        if address:
            self._check_totals(f"the free of {address:#x}")

    def _check_totals(self, doing: str) -> None:
        if getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            crossings = self._crossed(doing)
            for crossing in crossings:
                self._call(crossing)
            if crossings:
                self._reset_recovered()
        except Exception as error:  # noqa: BLE001  the request has succeeded, even if the user's function fails
            self.error = error
        finally:
            self._here.busy = False

    def _crossed(self, doing: str) -> list[Crossing]:
        """Thresholds that are crossed now and were not before."""
        with self._lock:
            values = self._values()
            new = [
                (each, value)
                for each, state, value in zip(self.thresholds, self._states, values, strict=True)
                if state.take(is_past=each.is_past(value))
            ]
        return [Crossing(each, value, self.name, doing) for each, value in new]

    def _reset_recovered(self) -> None:
        """Allow new alerts for thresholds that are no longer crossed after the call."""
        with self._lock:
            for each, state, value in zip(self.thresholds, self._states, self._values(), strict=True):
                if not each.is_past(value):
                    state.take(is_past=False)

    def _values(self) -> list[float]:
        stats = self.wrapped.stats()
        return [MEASURES[each.measure](stats) for each in self.thresholds]
