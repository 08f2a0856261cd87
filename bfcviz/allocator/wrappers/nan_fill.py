"""NaNFillAllocator: memory that nobody has written yet, or that was given back, reads as NaN."""

import operator
from typing import Final

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.wrappers.memory_access import Access, access_to
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidFree, InvalidRequest

FRESH: Final = b"\xff\xff"
"""Repeated, it is NaN in floating types of 8 to 64 bits; as an integer -1."""

FREED: Final = b"\xff\x7f"
"""Repeated, it is another NaN in them: 0x7fff of 16 bits, 0x7fff7fff of 32."""


class NaNFillAllocator(AllocatorWrapper):
    """Fills memory on allocate and on free, so that a result computed from it shows.

    TensorFlow's GPUNanResetAllocator writes a float32's NaN, which float64 reads as a large number; these patterns
    are NaN in both, and tell fresh memory from freed. Where a free fails the chunk stays in use, but filled: put
    what may refuse a free, as GuardAllocator does, around this one and not inside it.

    Args:
        wrapped: the allocator inside; it must track sizes.
        access: how memory is written; by default as fits the memory (see `access_to`).

    Raises:
        InvalidRequest: the allocator inside tracks no sizes, or its memory cannot be reached.
    """

    def __init__(self, wrapped: Allocator, *, access: Access | None = None) -> None:
        super().__init__(wrapped)
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so that freed memory cannot be filled: put a TrackingAllocator "
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
        """Memory for `num_bytes`, all NaN."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address:
            try:
                self.access.fill(address, operator.index(num_bytes), FRESH)
            except BaseException:
                self.wrapped.free(address)
                raise
        return address

    def free(self, address: int) -> None:
        """Fill it with the other NaN, and give it back."""
        if address:
            try:
                size = self.wrapped.requested_size(address)
            except InvalidFree:
                size = 0  # a wrong free, or an allocator that is closed: the one inside knows
            self.access.fill(address, size, FREED)
        self.wrapped.free(address)
