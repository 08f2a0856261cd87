"""Tensor: memory of an allocator with a type and a shape, freed with the last reference.

::

    Tensor(allocator, "float32", (64, 256)) ──> TensorBuffer ──> a chunk of the heap
          t[3:8], t.reshape(-1) ─────────────────┘ │
          t.numpy(), np.asarray(t), DLPack ────────┘   all of them keep the chunk
"""

import operator
from collections.abc import Iterable
from math import prod
from typing import Any, Final, Self

import numpy as np
from numpy.typing import DTypeLike

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.buffer import ALIGNMENT, TensorBuffer
from bfcviz.devices.tensors.element_types import ElementType, element_type
from bfcviz.devices.tensors.memory_log import current_kernel
from bfcviz.devices.tensors.tensor_values import TensorValues
from bfcviz.errors import InvalidRequest

MAX_BYTES: Final = 1 << 62
"""Largest tensor in bytes: the largest request to a heap."""

MAX_DIMENSIONS: Final = 32
"""Most dimensions; every NumPy version supports as many."""


def checked_shape(shape: Any, itemsize: int = 1) -> tuple[int, ...]:
    """Check a shape and return it as a tuple.

    Args:
        shape: sizes of the dimensions, or one size; () is a single element.
        itemsize: bytes of an element.

    Raises:
        InvalidRequest: a size is negative or not a whole number, or the bytes exceed MAX_BYTES. Dimensions of size 0 do
            not count in that product.
    """
    if isinstance(shape, str | bytes | dict | set):
        raise InvalidRequest(f"{shape!r} is not a shape: give whole numbers, such as (64, 256)")
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if len(given) > MAX_DIMENSIONS:
        raise InvalidRequest(
            f"a shape of {len(given)} dimensions is not supported: give at most {MAX_DIMENSIONS}"
        )
    sizes = tuple(_size(size, given) for size in given)
    whole = prod((size for size in sizes if size), start=itemsize)
    if whole > MAX_BYTES:
        raise InvalidRequest(
            f"shape {list(sizes)} with {itemsize} bytes per element needs {whole} bytes: give one of at most 2^62 bytes"
        )
    return sizes


def _size(size: Any, shape: tuple[Any, ...]) -> int:
    try:
        number = operator.index(size)
    except TypeError as error:
        raise InvalidRequest(f"{size!r} in the shape {shape!r} is not a size: give whole numbers") from error
    if number < 0:
        raise InvalidRequest(f"{number} in the shape {shape!r} is not a size: give 0 or more")
    return number


def resolve_shape(shape: Any, count: int) -> tuple[int, ...]:
    """Check a shape for `count` elements; one size may be -1 and is computed.

    Raises:
        InvalidRequest: the shape has another number of elements.
    """
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if given.count(-1) == 1:
        others = prod(checked_shape([size for size in given if size != -1]))
        given = tuple((count // others if others else 0) if size == -1 else size for size in given)
    sizes = checked_shape(given)
    if prod(sizes) != count:
        raise InvalidRequest(
            f"{count} elements do not fit the shape {shape!r}, which has {prod(sizes)}: give a shape of {count}"
        )
    return sizes


class Tensor(TensorValues):
    """Allocates its memory when created, and frees it with the last reference: tensor, view or array.

    Numbers are not initialised; constructed types start empty.

    Args:
        allocator: allocates the memory.
        dtype: a NumPy dtype, `string`, `resource`, `variant`, or an `ElementType`.
        shape: sizes of its dimensions; () is a single element.
        kernel: name of the kernel that creates it; None = this thread's `bfcviz.label`.
        attributes: attributes of the request.

    Raises:
        InvalidRequest: an unknown dtype or an impossible shape; the heap stays unchanged.
        OutOfMemory: the allocator has no memory for it.

    Attributes:
        dtype: type of its elements.
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
            allocator, element, sizes, current_kernel() if kernel is None else kernel, attributes
        )
        super().__init__(buffer, element, sizes, 0)

    def _view(self, dtype: ElementType, shape: tuple[int, ...], offset: int) -> "Tensor":
        made = Tensor.__new__(Tensor)
        TensorValues.__init__(made, self.buffer, dtype, shape, self._offset + offset)
        return made

    @classmethod
    def of(
        cls, allocator: Allocator, values: Any, dtype: object = None, *, kernel: str | None = None
    ) -> Self:
        """Create a tensor with the values of an array or array-like; text becomes strings."""
        array = np.asarray(values)
        texts = array.dtype.kind in "USO"
        wish = ("string" if texts else array.dtype) if dtype is None else dtype
        made = cls(allocator, wish, array.shape, kernel=kernel)
        made.write(array)
        return made

    # -- properties ---------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def allocation_id(self) -> int:
        """Id of its allocation; 0 without memory.

        Raises:
            AllocatorError: its heap is closed.
        """
        self.buffer.expect_memory()
        return self.allocator.allocation_id(self.buffer.address) if self.buffer.address else 0

    @property
    def has_single_reference(self) -> bool:
        """Whether no view or array shares its memory; then a kernel may reuse it for its result."""
        return self.buffer.references == 1

    def shares_buffer_with(self, other: "Tensor") -> bool:
        """Whether both use the same memory."""
        return self.buffer is other.buffer and self.buffer.address != 0

    def is_aligned(self) -> bool:
        """Whether its address is a multiple of 64 bytes; a slice may be unaligned."""
        return self.address % ALIGNMENT == 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        where = f"at {self.address:#x} of {self.allocator.name}" if self.address else "without memory"
        return f"<Tensor {self.dtype} {list(self.shape)} {where}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a tensor cannot be copied or pickled: create one and write the values into it")

    # -- views --------------------------------------------------------------------------------------------------

    def __getitem__(self, index: int | slice) -> "Tensor":
        """A view of part of the first dimension: `t[3]`, `t[3:8]`. Arrays support more."""
        if not self.shape:
            raise IndexError("a tensor without dimensions cannot be indexed")
        row = prod(self.shape[1:]) * self.dtype.itemsize
        if isinstance(index, slice):
            first, last, stride = index.indices(self.shape[0])
            if stride != 1:
                raise InvalidRequest(f"a slice with step {stride} is not contiguous: use array()")
            return self._view(self.dtype, (max(last - first, 0), *self.shape[1:]), first * row)
        place = operator.index(index)
        if not -self.shape[0] <= place < self.shape[0]:
            raise IndexError(f"index {place} is out of range for size {self.shape[0]}")
        return self._view(self.dtype, self.shape[1:], place % self.shape[0] * row)

    def reshape(self, *shape: Any) -> "Tensor":
        """A view in another shape; one size may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return self._view(self.dtype, resolve_shape(given, self.size), 0)

    def view(self, dtype: DTypeLike) -> "Tensor":
        """A view of the same bytes as another dtype; its size must divide the rows of the last dimension."""
        element = element_type(dtype)
        if element.operations is not None or self.dtype.operations is not None:
            raise InvalidRequest(
                f"elements of type {self.dtype} cannot be viewed as {element}: one of them has constructors"
            )
        last = (self.shape[-1] if self.shape else 1) * self.dtype.itemsize
        if last % element.itemsize or (not self.shape and element.itemsize != last):
            raise InvalidRequest(
                f"rows of {last} bytes cannot be viewed as {element}, of {element.itemsize} bytes: give a dtype whose "
                "size divides them"
            )
        return self._view(element, (*self.shape[:-1], last // element.itemsize) if self.shape else (), 0)
