"""Tensor: memory of an allocator with a type and a shape, for as long as anything refers to it.

::

    Tensor(allocator, "float32", (64, 256)) ──> TensorBuffer ──> a chunk of the heap
          t[3:8], t.reshape(-1) ─────────────────┘ │
          t.numpy(), np.asarray(t), DLPack ────────┘   all of them keep the chunk
"""

import operator
from math import prod
from typing import Any, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bfcviz.allocator.attributes import AllocationAttributes
from bfcviz.allocator.protocol import Allocator
from bfcviz.devices.memory_log import kernel_now
from bfcviz.devices.tensor_buffer import ALIGNMENT, Reference, TensorBuffer
from bfcviz.devices.tensor_memory import Place, array_interface, cupy_array, load_cupy, numpy_array
from bfcviz.devices.tensor_shape import checked_shape, resolved
from bfcviz.devices.tensor_types import ElementType, element_type
from bfcviz.errors import AllocatorError, InvalidRequest

_CPU = 1  # DLPack's kDLCPU


class Tensor:
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

    __slots__ = ("__weakref__", "_offset", "_reference", "dtype", "shape")

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
        self._become(buffer, element, sizes, 0)

    def _become(self, buffer: TensorBuffer, dtype: ElementType, shape: tuple[int, ...], offset: int) -> None:
        self._reference = Reference(buffer)
        self._offset = offset
        self.dtype = dtype
        self.shape = shape

    def _view(self, dtype: ElementType, shape: tuple[int, ...], offset: int) -> "Tensor":
        made = Tensor.__new__(Tensor)
        made._become(  # noqa: SLF001  it is being made
            self.buffer, dtype, shape, self._offset + offset
        )
        return made

    @classmethod
    def of(
        cls, allocator: Allocator, values: Any, dtype: object = None, *, kernel: str | None = None
    ) -> Self:
        """A tensor with the values of an array, or of whatever makes one; texts make one of strings."""
        array = np.asarray(values)
        texts = array.dtype.kind in "USO"
        made = cls(allocator, dtype or ("string" if texts else array.dtype), array.shape, kernel=kernel)
        made.write(array)
        return made

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def buffer(self) -> TensorBuffer:
        """Its memory; whoever keeps this keeps that."""
        return self._reference.buffer

    @property
    def allocator(self) -> Allocator:
        """Where its memory is from."""
        return self.buffer.allocator

    @property
    def place(self) -> Place:
        """Where its memory is."""
        return self.buffer.place

    @property
    def address(self) -> int:
        """Of its first element; 0 where it has no memory."""
        return self.buffer.address + self._offset if self.buffer.address else 0

    @property
    def size(self) -> int:
        """How many elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.itemsize

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

    # -- values -------------------------------------------------------------------------------------------------

    def array(self) -> Any:
        """NumPy's or CuPy's array of this memory, by where it is. It keeps the memory.

        Raises:
            InvalidRequest: there is no memory behind the addresses, or neither has such elements.
            AllocatorError: its heap was closed.
            MissingExtra: CuPy is needed and not installed.
        """
        if self.dtype.numpy is None:
            raise InvalidRequest(
                f"NumPy has no array of {self.dtype} in foreign memory: use get and put, or tolist"
            )
        if self.place.kind == "nowhere":
            raise InvalidRequest(
                f"{self.allocator.name} gives addresses with no memory behind them: nothing can be computed there. "
                "Give an allocator over HostSubAllocator, or a GPU's"
            )
        self.buffer.expect_memory()
        where = (Reference(self.buffer), self.address, self.shape, self.dtype.numpy)
        return numpy_array(*where) if self.place.kind == "host" else cupy_array(*where, self.place.device)

    def numpy(self) -> NDArray[Any]:
        """NumPy's array of this memory: what is written there is written into the heap.

        Raises:
            InvalidRequest: it is not host memory.
            AllocatorError: its heap was closed.
        """
        if self.place.kind == "cuda":
            raise InvalidRequest(
                f"a NumPy array was asked for, of {self.place}: take array() and copy it with .get()"
            )
        return cast("NDArray[Any]", self.array())

    def get(self, index: int) -> Any:
        """The value of element `index`, counted through all dimensions."""
        return (
            self.buffer.cells.get(self._element(index))
            if self.dtype.cells
            else self.array().reshape(-1)[index]
        )

    def put(self, index: int, value: object) -> None:
        """Give element `index`, counted through all dimensions, a value."""
        if self.dtype.cells:
            self.buffer.cells.set(self._element(index), value)
        else:
            self.array().reshape(-1)[index] = value

    def tolist(self) -> list[Any]:
        """All values, one after the other."""
        if self.dtype.cells:
            return [self.get(index) for index in range(self.size)]
        return cast("list[Any]", self.array().reshape(-1).tolist())

    def write(self, values: Any) -> None:
        """Write values of the same shape, or one that can be broadcast to it."""
        if self.dtype.cells is None:
            with self.place.active():
                self.array()[...] = values if self.place.kind == "host" else load_cupy().asarray(values)
            return
        for index, value in enumerate(np.broadcast_to(np.asarray(values, object), self.shape).flat):
            self.put(index, value)

    def _element(self, index: int) -> int:
        if not -self.size <= index < self.size:
            raise IndexError(f"element {index} was asked for, of {self.size}")
        return self.address + index % self.size * self.dtype.itemsize

    # -- for other libraries ------------------------------------------------------------------------------------

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001
        if self.dtype.cells is not None:
            if copy is False:
                raise ValueError(f"NumPy can only have a copy of elements of type {self.dtype}")
            values = np.empty(self.size, object)
            values[:] = self.tolist()
            return values.reshape(self.shape)
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"NumPy can only have a copy of {self.dtype} as {np.dtype(dtype)}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.place.kind == "nowhere":
            raise AllocatorError(f"{self.allocator.name} gives no real memory: there is nothing to share")
        if self.place.kind == "host":
            return _CPU, 0
        return cast("tuple[int, int]", self.array().__dlpack_device__())

    def __dlpack__(self, **options: Any) -> Any:
        return self.array().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For CuPy, Numba and PyTorch; there is none (AttributeError) where the memory is not a GPU's."""
        if self.place.kind != "cuda" or self.dtype.numpy is None:
            raise AttributeError(f"a tensor of {self.dtype} in {self.place} has no __cuda_array_interface__")
        self.buffer.expect_memory()
        # 1: the legacy default stream, which whoever takes it waits for; the memory may be in use there.
        return {**array_interface(self.address, self.shape, self.dtype.numpy), "stream": 1}
