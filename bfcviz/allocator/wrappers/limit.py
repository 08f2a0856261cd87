"""LimitAllocator: a share of a heap, so that one user cannot take all of it."""

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
    """Refuses what would take more than a limit through it; several may share one heap.

    What counts is requests rounded up to 256 bytes, not what a chunk may be larger than that.

    Args:
        wrapped: the allocator inside; it must track sizes.
        limit: in bytes, 1 or more, or as text such as `512MiB`.

    Raises:
        InvalidRequest: a limit below 1, or an allocator that tracks no sizes.
        ValueError: a text that is no size.

    Attributes:
        limit: bytes that can be in use at one time.
        used: bytes that are.
    """

    def __init__(self, wrapped: Allocator, limit: int | str) -> None:
        super().__init__(wrapped)
        self.limit = parse_bytes(limit, "limit")
        if self.limit < 1:
            raise InvalidRequest(f"a limit of {limit} bytes was asked for; give 1 or more")
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so that what is given back cannot be counted: put a "
                "TrackingAllocator around it first"
            )
        self.used = 0
        self._lock = _forks.keep(
            RLock()
        )  # Python may collect garbage inside it, and a tensor among that frees

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Memory for `num_bytes`, if the limit allows it.

        Raises:
            OutOfMemory: it does not (its numbers are the limit's), or the allocator inside has none.
        """
        need = _rounded(num_bytes)
        if not 0 <= need <= MAX_REQUEST:  # refused in the words of the allocator inside
            return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        self._take(need, num_bytes)
        address = 0
        try:
            address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        finally:
            if address == 0:
                self._give(need)
        return address

    def free(self, address: int) -> None:
        """Give it back; it counts no longer."""
        size = 0
        if address:
            try:
                size = _rounded(self.wrapped.requested_size(address))
            except InvalidFree:
                size = 0  # a wrong free, or an allocator that is closed: the one inside knows
        self.wrapped.free(address)
        self._give(size)

    def stats(self) -> Stats:
        """Totals of the allocator inside; the limit is the lower one."""
        stats = self.wrapped.stats()
        return replace(stats, bytes_limit=min(stats.bytes_limit, self.limit))

    def check_invariants(self) -> None:
        """The books of the allocator inside, and that no more is in use than allowed."""
        super().check_invariants()
        if not 0 <= self.used <= self.limit:
            raise BrokenInvariant(f"{self.used} bytes are in use under a limit of {self.limit}")

    def _take(self, need: int, num_bytes: int) -> None:
        with self._lock:
            left = self.limit - self.used
            if need <= left:
                self.used += need
                return
        totals = PoolTotals(self.limit, self.limit - left, left, self.limit)
        raise OutOfMemory.of(operator.index(num_bytes), totals)

    def _give(self, num_bytes: int) -> None:
        with self._lock:
            self.used -= num_bytes


def _rounded(num_bytes: int) -> int:
    return (operator.index(num_bytes) + 255) // 256 * 256
