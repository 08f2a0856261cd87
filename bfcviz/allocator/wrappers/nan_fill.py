"""NaNFillAllocator: uninitialised and freed memory reads as NaN."""

import operator
from typing import Final

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.wrappers.memory_access import Access, access_to
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidFree, InvalidRequest

FRESH: Final = b"\xff\xff"
"""Repeated, it is NaN in floating-point types of 8 to 64 bits, and -1 in integers."""

FREED: Final = b"\xff\x7f"
"""Repeated, it is another NaN in these types: 0x7fff in 16 bits, 0x7fff7fff in 32."""


class NaNFillAllocator(AllocatorWrapper):
    """Fills memory on allocate and on free, so that results computed from it are NaN.

    TensorFlow's GPUNanResetAllocator writes NaN of float32, which float64 reads as a large number; these patterns are
    NaN in both, and differ between fresh and freed memory. If a free fails, the chunk stays in use, but filled: put a
    wrapper that may refuse a free, such as GuardAllocator, around this one and not inside it.

    Args:
        wrapped: the allocator inside; it must track sizes.
        access: writes the memory; by default one that fits the memory (see `access_to`).

    Raises:
        InvalidRequest: the allocator inside does not track sizes, or its memory cannot be accessed.
    """

    def __init__(self, wrapped: Allocator, *, access: Access | None = None) -> None:
        super().__init__(wrapped)
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so freed memory cannot be filled: put a TrackingAllocator "
                "around it first"
            )
        self.access = access_to(wrapped) if access is None else access

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`, all NaN."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address:
            try:
                self.access.fill(address, operator.index(num_bytes), FRESH)
            except BaseException:
                self.wrapped.free(address)
                raise
        return address

    def free(self, address: int) -> None:
        """Fill the memory with the other NaN, and free it."""
        if address:
            try:
                size = self.wrapped.requested_size(address)
            except InvalidFree:
                size = 0  # an invalid free, or a closed allocator: the allocator inside reports it
            self.access.fill(address, size, FREED)
        self.wrapped.free(address)
