"""TensorValues: reads and writes a tensor's values, and shares its memory with NumPy, CuPy and DLPack."""

from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.arrays import array_interface, cupy_array, load_cupy, numpy_array
from bfcviz.devices.tensors.buffer import Reference, TensorBuffer
from bfcviz.devices.tensors.element_types import ElementType
from bfcviz.devices.tensors.memory_place import MemoryPlace
from bfcviz.errors import AllocatorError, InvalidRequest

_CPU = 1  # DLPack's kDLCPU


class TensorValues:
    """Elements of one type and shape at an offset in a buffer; the base of tensors and their views.

    Args:
        buffer: the memory; a reference is kept.
        dtype: type of the elements.
        shape: sizes of the dimensions.
        offset: offset of the first element in the buffer, in bytes.
    """

    __slots__ = ("__weakref__", "_offset", "_reference", "dtype", "shape")

    def __init__(self, buffer: TensorBuffer, dtype: ElementType, shape: tuple[int, ...], offset: int) -> None:
        self._reference = Reference(buffer)
        self._offset = offset
        self.dtype = dtype
        self.shape = shape

    @property
    def buffer(self) -> TensorBuffer:
        """Its memory; the tensor keeps a reference."""
        return self._reference.buffer

    @property
    def allocator(self) -> Allocator:
        """The allocator of its memory."""
        return self.buffer.allocator

    @property
    def place(self) -> MemoryPlace:
        """Where its memory is."""
        return self.buffer.place

    @property
    def address(self) -> int:
        """Address of its first element; 0 without memory."""
        return self.buffer.address + self._offset if self.buffer.address else 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.itemsize

    # -- values -------------------------------------------------------------------------------------------------

    def array(self) -> Any:
        """A NumPy or CuPy array over this memory, by its place. The array keeps the memory.

        Raises:
            InvalidRequest: no memory backs the addresses, or the array library has no such elements.
            AllocatorError: its heap is closed.
            MissingExtra: CuPy is needed and not installed.
        """
        if self.dtype.numpy is None:
            raise InvalidRequest(
                f"NumPy has no array type for {self.dtype} in foreign memory: use get and put, or tolist"
            )
        if self.place.kind == "nowhere":
            raise InvalidRequest(
                f"{self.allocator.name} has addresses without memory, which cannot hold values: use an allocator over "
                "HostSubAllocator or of a GPU"
            )
        self.buffer.expect_memory()
        where = (Reference(self.buffer), self.address, self.shape, self.dtype.numpy)
        return numpy_array(*where) if self.place.kind == "host" else cupy_array(*where, self.place.device)

    def numpy(self) -> NDArray[Any]:
        """A NumPy array over this memory; writes go to the heap.

        Raises:
            InvalidRequest: the memory is not host memory.
            AllocatorError: its heap is closed.
        """
        if self.place.kind == "cuda":
            raise InvalidRequest(f"NumPy cannot use {self.place}: use array() and copy it with .get()")
        return cast("NDArray[Any]", self.array())

    def get(self, index: int) -> Any:
        """The value of element `index` of the flattened tensor."""
        return (
            self.buffer.operations.get(self._element(index))
            if self.dtype.operations
            else self.array().reshape(-1)[index]
        )

    def put(self, index: int, value: object) -> None:
        """Set the value of element `index` of the flattened tensor."""
        if self.dtype.operations:
            self.buffer.operations.set(self._element(index), value)
        else:
            self.array().reshape(-1)[index] = value

    def tolist(self) -> list[Any]:
        """All values of the flattened tensor."""
        if self.dtype.operations:
            return [self.get(index) for index in range(self.size)]
        return cast("list[Any]", self.array().reshape(-1).tolist())

    def write(self, values: Any) -> None:
        """Write values of the same shape, or of a shape that broadcasts to it."""
        if self.dtype.operations is None:
            with self.place.active():
                self.array()[...] = values if self.place.kind == "host" else load_cupy().asarray(values)
            return
        for index, value in enumerate(np.broadcast_to(np.asarray(values, object), self.shape).flat):
            self.put(index, value)

    def _element(self, index: int) -> int:
        if not -self.size <= index < self.size:
            raise IndexError(f"element {index} is out of range for {self.size} elements")
        return self.address + index % self.size * self.dtype.itemsize

    # -- array protocols ----------------------------------------------------------------------------------------

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001
        if self.dtype.operations is not None:
            if copy is False:
                raise ValueError(f"NumPy needs a copy of elements of type {self.dtype}: drop copy=False")
            values = np.empty(self.size, object)
            values[:] = self.tolist()
            return values.reshape(self.shape)
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"NumPy needs a copy of {self.dtype} as {np.dtype(dtype)}: drop copy=False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.place.kind == "nowhere":
            raise AllocatorError(
                f"{self.allocator.name} has addresses without memory: there is nothing to share"
            )
        if self.place.kind == "host":
            return _CPU, 0
        return cast("tuple[int, int]", self.array().__dlpack_device__())

    def __dlpack__(self, **options: Any) -> Any:
        return self.array().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's array interface for CuPy, Numba and PyTorch; AttributeError if the memory is not on a GPU."""
        if self.place.kind != "cuda" or self.dtype.numpy is None:
            raise AttributeError(f"a tensor of {self.dtype} in {self.place} has no __cuda_array_interface__")
        self.buffer.expect_memory()
        # 1 = the legacy default stream: the consumer waits for it, because it may still use the memory.
        return {**array_interface(self.address, self.shape, self.dtype.numpy), "stream": 1}
