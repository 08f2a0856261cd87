"""LimitAllocator: limits the bytes in use through it, so that one user cannot take a whole heap."""

import operator
from dataclasses import replace
from threading import RLock

from bfcviz import _forks
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.interface.stats import Stats
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import BrokenInvariant, InvalidFree, InvalidRequest, OutOfMemory, PoolTotals
from bfcviz.native import MAX_REQUEST
from bfcviz.units import parse_bytes


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
        need = _rounded(num_bytes)
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
                size = _rounded(self.wrapped.requested_size(address))
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


def _rounded(num_bytes: int) -> int:
    return (operator.index(num_bytes) + 255) // 256 * 256
