"""TensorBuffer: the memory of a tensor and its views, freed with the last reference."""

import sys
from math import prod
from typing import Final

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors import memory_log
from bfcviz.devices.tensors.element_types import ElementOperations, ElementType
from bfcviz.devices.tensors.memory_place import HOST, MemoryPlace, place_of
from bfcviz.errors import AllocatorError, InvalidFree, InvalidRequest

ALIGNMENT: Final = 64
"""Alignment of tensors in TensorFlow, in bytes (kAllocatorAlignment)."""


class TensorBuffer:
    """One allocation, and the elements constructed in it.

    Python's reference counting frees it, in the thread that drops the last reference.

    Args:
        allocator: allocates and frees the memory.
        element: type of the elements.
        shape: the requested shape.
        kernel: name of the kernel that creates it.
        attributes: attributes of the request.

    Attributes:
        address: address of its first byte; 0 = no memory, as for empty tensors unless the allocator allocates those.
        place: where the memory is.

    Raises:
        OutOfMemory: the allocator has no memory for it.
        InvalidRequest: elements with constructors need host memory, and the allocator has other memory.
    """

    address = 0

    def __init__(
        self,
        allocator: Allocator,
        element: ElementType,
        shape: tuple[int, ...],
        kernel: str,
        attributes: AllocationAttributes | None = None,
    ) -> None:
        self.allocator = allocator
        self.element = element
        self.count = prod(shape)
        self.place: MemoryPlace = place_of(allocator)
        self.holders: set[int] = set()
        self._operations: ElementOperations | None = None
        if element.operations is not None and self.place != HOST:
            raise InvalidRequest(
                f"elements of type {element} need host memory, {allocator.name} has {self.place}: give an allocator of "
                "host memory"
            )
        if self.count == 0 and not allocator.should_allocate_empty():
            return
        label = memory_log.label_of(allocator, kernel, element.name, shape)
        self.address = allocator.allocate(self.nbytes, ALIGNMENT, label, attributes=attributes)
        if element.operations is not None:
            self._construct(element.operations())
        if attributes is None or not attributes.allocation_will_be_logged:
            memory_log.log_allocation(self, kernel, shape)

    @property
    def nbytes(self) -> int:
        """Requested bytes of its elements."""
        return self.count * self.element.itemsize

    @property
    def references(self) -> int:
        """How many tensors and arrays share it."""
        return len(self.holders)

    @property
    def operations(self) -> ElementOperations:
        """The operations on its elements; raises InvalidRequest if they are plain bytes."""
        if self._operations is None:
            raise InvalidRequest(f"elements of type {self.element} are plain bytes: use array()")
        self.expect_memory()
        return self._operations

    def has_memory(self) -> bool:
        """Whether the memory is still allocated; a closed heap has freed it."""
        if self.address == 0 or not self.allocator.tracks_allocation_sizes():
            return self.address != 0
        try:
            self.allocator.requested_size(self.address)
        except (InvalidFree, AllocatorError):
            return False
        return True

    def expect_memory(self) -> None:
        """Raise AllocatorError if its heap is closed."""
        if self.count and not self.has_memory():
            raise AllocatorError(
                f"a tensor at {self.address:#x} has no memory: {self.allocator.name} was closed or has freed it; keep "
                "the heap open while its tensors are in use"
            )

    def _construct(self, operations: ElementOperations) -> None:
        """Run all constructors. If one fails, destroy the constructed elements and free the memory."""
        done = 0
        try:
            for place in self._elements():
                operations.construct(place)
                done += 1
        except BaseException:
            for place in self._elements()[:done]:
                operations.destroy(place)
            self.allocator.free(self.address)
            self.address = 0
            raise
        self._operations = operations

    def _elements(self) -> range:
        size = self.element.itemsize
        return range(self.address, self.address + self.count * size, size)

    def __del__(self) -> None:
        if self.address == 0 or sys.is_finalizing():
            return
        if self._operations is not None and self.has_memory():
            for place in self._elements():
                self._operations.destroy(place)
        memory_log.log_free(self)
        self.allocator.free(self.address)


class Reference:
    """One counted reference to a buffer."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: TensorBuffer) -> None:
        self.buffer = buffer
        buffer.holders.add(id(self))

    def __del__(self) -> None:
        self.buffer.holders.discard(id(self))
