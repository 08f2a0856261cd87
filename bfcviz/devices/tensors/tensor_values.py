"""BufferPart: a part of a tensor's memory, its values, and the arrays of other libraries that it can be taken for."""

from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.buffer import Reference, TensorBuffer
from bfcviz.devices.tensors.element_types import ElementType
from bfcviz.devices.tensors.memory_place import Place, array_interface, cupy_array, load_cupy, numpy_array
from bfcviz.errors import AllocatorError, InvalidRequest

_CPU = 1  # DLPack's kDLCPU


class BufferPart:
    """Elements of a type, in a shape, somewhere in a buffer; what tensors have in common with their views.

    Args:
        buffer: the memory, which is kept.
        dtype: of the elements.
        shape: sizes of the dimensions.
        offset: of the first element, in bytes.
    """

    __slots__ = ("__weakref__", "_offset", "_reference", "dtype", "shape")

    def __init__(self, buffer: TensorBuffer, dtype: ElementType, shape: tuple[int, ...], offset: int) -> None:
        self._reference = Reference(buffer)
        self._offset = offset
        self.dtype = dtype
        self.shape = shape

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
