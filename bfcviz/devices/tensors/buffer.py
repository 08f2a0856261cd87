"""TensorBuffer: the memory behind a tensor and all its views, given back when nothing refers to it any more."""

import sys
from math import prod
from typing import Final

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors import memory_log
from bfcviz.devices.tensors.element_types import Cells, ElementType
from bfcviz.devices.tensors.memory_place import HOST, Place, place_of
from bfcviz.errors import AllocatorError, InvalidFree, InvalidRequest

ALIGNMENT: Final = 64
"""What TensorFlow asks of its allocators for a tensor, in bytes (kAllocatorAlignment)."""


class TensorBuffer:
    """One allocation, and the elements constructed in it.

    Python's own counting of references ends it, in whatever thread the last of them goes.

    Args:
        allocator: gives the memory, and gets it back.
        element: type of the elements.
        shape: as asked for.
        kernel: what makes it.
        attributes: how the request wants to be treated.

    Attributes:
        address: of its first byte; 0 where it has none, as empty ones (unless the allocator gives those one too).
        place: where the memory is.

    Raises:
        OutOfMemory: there is no memory for it.
        InvalidRequest: elements with constructors were to lie elsewhere than in host memory.
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
        self.place: Place = place_of(allocator)
        self.holders: set[int] = set()
        self._cells: Cells | None = None
        if element.cells is not None and self.place != HOST:
            raise InvalidRequest(
                f"elements of type {element} are constructed, in host memory, but {allocator.name} gives "
                f"{self.place}: give an allocator of host memory"
            )
        if self.count == 0 and not allocator.should_allocate_empty():
            return
        label = memory_log.label_of(allocator, kernel, element.name, shape)
        self.address = allocator.allocate(self.nbytes, ALIGNMENT, label, attributes=attributes)
        if element.cells is not None:
            self._construct(element.cells())
        if attributes is None or not attributes.allocation_will_be_logged:
            memory_log.allocated(self, kernel, shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, as asked for."""
        return self.count * self.element.itemsize

    @property
    def references(self) -> int:
        """How many tensors and arrays share it."""
        return len(self.holders)

    @property
    def cells(self) -> Cells:
        """What its elements are constructed by."""
        if self._cells is None:
            raise InvalidRequest(f"elements of type {self.element} are plain bytes: take them as an array")
        self.expect_memory()
        return self._cells

    def has_memory(self) -> bool:
        """Whether the heap still has it: one that was closed meanwhile has not."""
        if self.address == 0 or not self.allocator.tracks_allocation_sizes():
            return self.address != 0
        try:
            self.allocator.requested_size(self.address)
        except (InvalidFree, AllocatorError):
            return False
        return True

    def expect_memory(self) -> None:
        """Raises AllocatorError where its heap has been closed."""
        if self.count and not self.has_memory():
            raise AllocatorError(
                f"the memory of a tensor at {self.address:#x} was to be used, but {self.allocator.name} has been "
                "closed or has taken it back: keep the heap open for as long as its tensors"
            )

    def _construct(self, cells: Cells) -> None:
        """Run all constructors; where one fails, end those that did not, and give the memory back."""
        done = 0
        try:
            for place in self._elements():
                cells.construct(place)
                done += 1
        except BaseException:
            for place in self._elements()[:done]:
                cells.destroy(place)
            self.allocator.free(self.address)
            self.address = 0
            raise
        self._cells = cells

    def _elements(self) -> range:
        size = self.element.itemsize
        return range(self.address, self.address + self.count * size, size)

    def __del__(self) -> None:
        if self.address == 0 or sys.is_finalizing():
            return
        if self._cells is not None and self.has_memory():
            for place in self._elements():
                self._cells.destroy(place)
        memory_log.freed(self)
        self.allocator.free(self.address)


class Reference:
    """One holder of a buffer, which is counted."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: TensorBuffer) -> None:
        self.buffer = buffer
        buffer.holders.add(id(self))

    def __del__(self) -> None:
        self.buffer.holders.discard(id(self))
