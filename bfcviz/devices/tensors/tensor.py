"""Tensor: memory of an allocator with a type and a shape, for as long as anything refers to it.

::

    Tensor(allocator, "float32", (64, 256)) ──> TensorBuffer ──> a chunk of the heap
          t[3:8], t.reshape(-1) ─────────────────┘ │
          t.numpy(), np.asarray(t), DLPack ────────┘   all of them keep the chunk
"""

import operator
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.buffer import ALIGNMENT, TensorBuffer
from bfcviz.devices.tensors.tensor_values import BufferPart
from bfcviz.devices.tensors.element_types import ElementType, element_type
from bfcviz.devices.tensors.memory_log import kernel_now
from bfcviz.devices.tensors.shape import checked_shape, resolved
from bfcviz.errors import InvalidRequest


class Tensor(BufferPart):
    """Takes its memory when it is made, and gives it back with the last reference: of itself, a view or an array.

    What its elements are at first is not said: constructed types begin empty, numbers are what lay there.

    Args:
        allocator: gives the memory.
        dtype: a NumPy dtype, `string`, `resource`, `variant`, or an `ElementType`.
        shape: sizes of its dimensions; () is a single element.
        kernel: what makes it; by default what `bfcviz.label` says of this thread.
        attributes: how the request wants to be treated.

    Raises:
        InvalidRequest: an unknown dtype, or a shape that cannot be; the heap is untouched.
        OutOfMemory: the allocator has no memory for it.

    Attributes:
        dtype: what it is made of.
        shape: sizes of its dimensions.
    """

    __slots__ = ()

    def __init__(
        self,
        allocator: Allocator,
        dtype: object,
        shape: Any,
        *,
        kernel: str | None = None,
        attributes: AllocationAttributes | None = None,
    ) -> None:
        element = element_type(dtype)
        sizes = checked_shape(shape, element.itemsize)
        buffer = TensorBuffer(
            allocator, element, sizes, kernel_now() if kernel is None else kernel, attributes
        )
        super().__init__(buffer, element, sizes, 0)

    def _view(self, dtype: ElementType, shape: tuple[int, ...], offset: int) -> "Tensor":
        made = Tensor.__new__(Tensor)
        BufferPart.__init__(made, self.buffer, dtype, shape, self._offset + offset)
        return made

    @classmethod
    def of(
        cls, allocator: Allocator, values: Any, dtype: object = None, *, kernel: str | None = None
    ) -> Self:
        """A tensor with the values of an array, or of whatever makes one; texts make one of strings."""
        array = np.asarray(values)
        texts = array.dtype.kind in "USO"
        wish = ("string" if texts else array.dtype) if dtype is None else dtype
        made = cls(allocator, wish, array.shape, kernel=kernel)
        made.write(array)
        return made

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self.shape)

    @property
    def allocation_id(self) -> int:
        """Number of the request its memory came by; 0 where it has none.

        Raises:
            AllocatorError: its heap was closed.
        """
        self.buffer.expect_memory()
        return self.allocator.allocation_id(self.buffer.address) if self.buffer.address else 0

    @property
    def has_single_reference(self) -> bool:
        """Whether no view and no array shares its memory: a kernel may then write its result there."""
        return self.buffer.references == 1

    def shares_buffer_with(self, other: "Tensor") -> bool:
        """Whether both have the same memory."""
        return self.buffer is other.buffer and self.buffer.address != 0

    def is_aligned(self) -> bool:
        """Whether it begins at a multiple of 64 bytes; a slice may not."""
        return self.address % ALIGNMENT == 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        where = f"at {self.address:#x} of {self.allocator.name}" if self.address else "without memory"
        return f"<Tensor {self.dtype} {list(self.shape)} {where}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a tensor cannot be copied or pickled: make one, and write the values into it")

    # -- views --------------------------------------------------------------------------------------------------

    def __getitem__(self, index: int | slice) -> "Tensor":
        """A part along the first dimension, in the same memory: `t[3]`, `t[3:8]`. More can be done with arrays."""
        if not self.shape:
            raise IndexError("a tensor of no dimensions has no parts")
        row = prod(self.shape[1:]) * self.dtype.itemsize
        if isinstance(index, slice):
            first, last, stride = index.indices(self.shape[0])
            if stride != 1:
                raise InvalidRequest(
                    f"a slice with step {stride} was asked for; parts are contiguous: take an array"
                )
            return self._view(self.dtype, (max(last - first, 0), *self.shape[1:]), first * row)
        place = operator.index(index)
        if not -self.shape[0] <= place < self.shape[0]:
            raise IndexError(f"part {place} was asked for, of {self.shape[0]}")
        return self._view(self.dtype, self.shape[1:], place % self.shape[0] * row)

    def reshape(self, *shape: Any) -> "Tensor":
        """The same elements in another shape, and the same memory; one size may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return self._view(self.dtype, resolved(given, self.size), 0)

    def view(self, dtype: DTypeLike) -> "Tensor":
        """The same bytes as elements of another dtype, of one that divides the last dimension."""
        element = element_type(dtype)
        if element.cells is not None or self.dtype.cells is not None:
            raise InvalidRequest(
                f"elements of type {self.dtype} cannot be taken for {element}: one is constructed"
            )
        last = (self.shape[-1] if self.shape else 1) * self.dtype.itemsize
        if last % element.itemsize or (not self.shape and element.itemsize != last):
            raise InvalidRequest(
                f"rows of {last} bytes were to be taken for {element}, of {element.itemsize} bytes: give a dtype "
                "whose size divides them"
            )
        return self._view(element, (*self.shape[:-1], last // element.itemsize) if self.shape else (), 0)
