"""Tensors in the memory of an allocator: buffers, element types, values, shapes and views; the log of their memory."""

import ctypes
import operator
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import prod
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bfcviz.allocator.interface import AllocationAttributes, Allocator
from bfcviz.devices.memory_access import (
    HOST,
    MemoryPlace,
    array_interface,
    cupy_array,
    innermost,
    load_cupy,
    numpy_array,
    place_of,
)
from bfcviz.errors import AllocatorError, InvalidFree, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.live.labels_and_marks import number_in
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Types of a tensor's elements: their size, and how an element is constructed and destroyed.
#
# ============= === =======================================================================================
# type          B   contents in the heap
# ============= === =======================================================================================
# NumPy dtype   any the number itself
# string        24  TensorFlow's tstring: up to 22 bytes of text; for longer text a pointer to memory elsewhere
# resource      8   a number; a table outside the heap maps it to a Python object
# variant       8   the same
# ============= === =======================================================================================


class ElementOperations(Protocol):
    """Operations on a tensor's elements that are more than plain bytes. An address is that of one element."""

    def construct(self, address: int) -> None:
        """Construct an element in raw memory."""

    def destroy(self, address: int) -> None:
        """Destroy an element; its memory is freed afterwards."""

    def get(self, address: int) -> object:
        """The value of an element."""

    def set(self, address: int, value: object) -> None:
        """Set the value of an element; raises InvalidRequest for a value of the wrong type."""


@dataclass(frozen=True)
class ElementType:
    """The type of a tensor's elements."""

    name: str  # such as `float32` or `string`
    itemsize: int  # bytes of an element
    numpy: np.dtype[Any] | None = None  # NumPy's dtype; None = NumPy has none
    # creates the operations for the elements of one buffer; None = plain bytes
    operations: Callable[[], ElementOperations] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


class Strings:
    """Strings in the layout of TensorFlow's tstring; long ones are stored here, outside the heap."""

    ITEM: Final = 24
    INLINE: Final = 22
    _LARGE: Final = 1  # in the two low bits of the size; 0 = inline

    def __init__(self) -> None:
        self._long: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def construct(self, address: int) -> None:
        """Construct the empty string as an element."""
        ctypes.memset(address, 0, self.ITEM)

    def destroy(self, address: int) -> None:
        """Drop a long string and zero the element, so that no stale text can be read."""
        self._long.pop(address, None)
        ctypes.memset(address, 0, self.ITEM)

    def get(self, address: int) -> bytes:
        """The string of an element as bytes."""
        head = ctypes.c_uint8.from_address(address).value
        if head & 3 != self._LARGE:
            return ctypes.string_at(address + 1, head >> 2)
        size, _, pointer = (ctypes.c_uint64 * 3).from_address(address)
        return ctypes.string_at(pointer, size >> 2)

    def set(self, address: int, value: object) -> None:
        """Set the element to text or bytes."""
        if not isinstance(value, str | bytes):
            raise InvalidRequest(f"{value!r} cannot be an element of type string: give text or bytes")
        data = value.encode() if isinstance(value, str) else value
        self.destroy(address)
        if len(data) <= self.INLINE:
            ctypes.c_uint8.from_address(address).value = len(data) << 2
            ctypes.memmove(address + 1, data, len(data))
            return
        kept = self._long[address] = ctypes.create_string_buffer(data)
        slot = (ctypes.c_uint64 * 3).from_address(address)
        slot[0], slot[1], slot[2] = len(data) << 2 | self._LARGE, len(data), ctypes.addressof(kept)


class Handles:
    """Tensor elements that are Python objects, as numbers; 0 means None. An object lives as long as its element."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._last = 0

    def construct(self, address: int) -> None:
        """Construct an element with the value None."""
        ctypes.c_uint64.from_address(address).value = 0

    def destroy(self, address: int) -> None:
        """Drop the object of an element."""
        slot = ctypes.c_uint64.from_address(address)
        self._objects.pop(slot.value, None)
        slot.value = 0

    def get(self, address: int) -> object:
        """The Python object of an element."""
        return self._objects.get(ctypes.c_uint64.from_address(address).value)

    def set(self, address: int, value: object) -> None:
        """Store any object as an element."""
        self.destroy(address)
        if value is not None:
            self._last += 1
            self._objects[self._last] = value
            ctypes.c_uint64.from_address(address).value = self._last


SPECIAL: Final = MappingProxyType(
    {
        "string": ElementType("string", Strings.ITEM, operations=Strings),
        "resource": ElementType("resource", 8, operations=Handles),
        "variant": ElementType("variant", 8, operations=Handles),
    }
)
"""Types with constructors, by name."""


def element_type(dtype: object) -> ElementType:
    """Find an element type: from a NumPy dtype, its name, a name in `SPECIAL`, or an `ElementType`.

    Raises:
        InvalidRequest: the type is unknown or has no fixed size.
    """
    if isinstance(dtype, ElementType):
        return dtype
    if isinstance(dtype, str) and dtype in SPECIAL:
        return SPECIAL[dtype]
    if dtype is None:  # NumPy would use float64
        raise InvalidRequest("dtype is None: give one such as 'float32' or 'string'")
    try:
        known: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise InvalidRequest(
            f"{dtype!r} is not a dtype: give one of NumPy's, such as 'float32', or {', '.join(map(repr, SPECIAL))}"
        ) from error
    if known.hasobject:
        raise InvalidRequest(f"dtype {known} holds Python objects: use 'variant', which frees them")
    if known.itemsize == 0 or known.subdtype is not None:
        raise InvalidRequest(
            f"dtype {known!r} is not one element of a fixed size: give one such as 'float32'"
        )
    return ElementType(known.name, known.itemsize, known)


# ------------------------------------------------------------------------------
# TensorBuffer: the memory of a tensor and its views, freed with the last reference.

ALIGNMENT: Final = 64  # alignment of tensors in TensorFlow, in bytes (kAllocatorAlignment)


class TensorBuffer:
    """The allocation of a tensor, and the elements constructed in it.

    Python's reference counting frees it, in the thread that drops the last reference.

    Args:
        allocator: allocates and frees the memory.
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
        label = label_of(allocator, kernel, element.name, shape)
        self.address = allocator.allocate(self.nbytes, ALIGNMENT, label, attributes=attributes)
        if element.operations is not None:
            self._construct(element.operations())
        if attributes is None or not attributes.allocation_will_be_logged:
            log_allocation(self, kernel, shape)

    @property
    def nbytes(self) -> int:
        """Requested bytes of the elements of a tensor."""
        return self.count * self.element.itemsize

    @property
    def references(self) -> int:
        """How many tensors and arrays share the buffer."""
        return len(self.holders)

    @property
    def operations(self) -> ElementOperations:
        """The operations on the elements of a tensor; raises InvalidRequest if they are plain bytes."""
        if self._operations is None:
            raise InvalidRequest(f"elements of type {self.element} are plain bytes: use array()")
        self.expect_memory()
        return self._operations

    def has_memory(self) -> bool:
        """Whether the memory of the tensor is still allocated; a closed heap has freed it."""
        if self.address == 0 or not self.allocator.tracks_allocation_sizes():
            return self.address != 0
        try:
            self.allocator.requested_size(self.address)
        except (InvalidFree, AllocatorError):
            return False
        return True

    def expect_memory(self) -> None:
        """Raise AllocatorError if the heap of the tensor is closed."""
        if self.count and not self.has_memory():
            raise AllocatorError(
                f"a tensor at {self.address:#x} has no memory: {self.allocator.name} was closed or has freed it; keep "
                "the heap open while its tensors are in use"
            )

    def _construct(self, operations: ElementOperations) -> None:
        """Run all constructors of a tensor's elements. If one fails, destroy the elements made and free the memory."""
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
        log_free(self)
        self.allocator.free(self.address)


class Reference:
    """One counted reference to a tensor's buffer."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: TensorBuffer) -> None:
        self.buffer = buffer
        buffer.holders.add(id(self))

    def __del__(self) -> None:
        self.buffer.holders.discard(id(self))


# ------------------------------------------------------------------------------
# TensorValues: reads and writes a tensor's values, and shares its memory with NumPy, CuPy and DLPack.

_CPU = 1  # DLPack's kDLCPU


class TensorValues:
    """Elements of one type and shape at an offset in a buffer; the base of tensors and their views.

    Args:
        buffer: the memory; a reference is kept.
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
        """The memory of a tensor; the tensor keeps a reference."""
        return self._reference.buffer

    @property
    def allocator(self) -> Allocator:
        """The allocator of the memory of a tensor."""
        return self.buffer.allocator

    @property
    def place(self) -> MemoryPlace:
        """Where the memory of a tensor is."""
        return self.buffer.place

    @property
    def address(self) -> int:
        """Address of the first element of a tensor; 0 without memory."""
        return self.buffer.address + self._offset if self.buffer.address else 0

    @property
    def size(self) -> int:
        """Number of elements of a tensor."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of a tensor."""
        return self.size * self.dtype.itemsize

    # -- values -------------------------------------------------------------------------------------------------

    def array(self) -> Any:
        """A NumPy or CuPy array over the memory of a tensor, by its place. The array keeps the memory.

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
        """A NumPy array over the memory of a tensor; writes go to the heap.

        Raises:
            InvalidRequest: the memory is not host memory.
            AllocatorError: its heap is closed.
        """
        if self.place.kind == "cuda":
            raise InvalidRequest(f"NumPy cannot use {self.place}: use array() and copy it with .get()")
        return cast("NDArray[Any]", self.array())

    def get(self, index: int) -> Any:
        """The value of element `index` of the flattened tensor."""
        if self.dtype.operations:
            return self.buffer.operations.get(self._element(index))
        return self.array().reshape(-1)[index]

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
        """Write values to a tensor, of the same shape, or of a shape that broadcasts to it."""
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


# ------------------------------------------------------------------------------
# Tensor: memory of an allocator with a type and a shape, freed with the last reference.
#
# ::
#
#     Tensor(allocator, "float32", (64, 256)) ──> TensorBuffer ──> a chunk of the heap
#           t[3:8], t.reshape(-1) ─────────────────┘ │
#           t.numpy(), np.asarray(t), DLPack ────────┘   all of them keep the chunk

MAX_BYTES: Final = 1 << 62
"""Largest tensor in bytes: the largest request to a heap."""

MAX_DIMENSIONS: Final = 32  # most dimensions; every NumPy version supports as many


def checked_shape(shape: Any, itemsize: int = 1) -> tuple[int, ...]:
    """Check the shape of a tensor and return it as a tuple.

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
    sizes = tuple(_checked_shape_dimension(size, given) for size in given)
    whole = prod((size for size in sizes if size), start=itemsize)
    if whole > MAX_BYTES:
        raise InvalidRequest(
            f"shape {list(sizes)} with {itemsize} bytes per element needs {whole} bytes: give one of at most 2^62 bytes"
        )
    return sizes


def _checked_shape_dimension(size: Any, shape: tuple[Any, ...]) -> int:
    try:
        number = operator.index(size)
    except TypeError as error:
        raise InvalidRequest(f"{size!r} in the shape {shape!r} is not a size: give whole numbers") from error
    if number < 0:
        raise InvalidRequest(f"{number} in the shape {shape!r} is not a size: give 0 or more")
    return number


def resolve_shape(shape: Any, count: int) -> tuple[int, ...]:
    """Check a shape of a tensor for `count` elements; one size may be -1 and is computed.

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
    """A tensor: allocates its memory when created, and frees it with the last reference: tensor, view or array.

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
        """Number of dimensions of a tensor."""
        return len(self.shape)

    @property
    def allocation_id(self) -> int:
        """Id of the allocation of a tensor; 0 without memory.

        Raises:
            AllocatorError: its heap is closed.
        """
        self.buffer.expect_memory()
        return self.allocator.allocation_id(self.buffer.address) if self.buffer.address else 0

    @property
    def has_single_reference(self) -> bool:
        """Whether no view or array shares the memory of a tensor; then a kernel may reuse it for its result."""
        return self.buffer.references == 1

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
        """A view of a tensor in another shape; one size may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return self._view(self.dtype, resolve_shape(given, self.size), 0)

    def view(self, dtype: DTypeLike) -> "Tensor":
        """A view of a tensor's bytes as another dtype; its size must divide the rows of the last dimension."""
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


# ------------------------------------------------------------------------------
# MemoryLog: a line for each tensor allocated and freed, with step, kernel, shape and type.
#
# The heap's trace has the same facts: kernel, shape and dtype are name and details of the allocation's label, the
# allocation id is the event's, and the step is the last mark named `step` before it.

UNKNOWN_STEP: Final = -6  # TensorFlow's UNKNOWN_STEP_ID: the step of tensors created outside any step

STEP: Final = "step"  # label of the mark at the start of a step; its value is the step's number

UNKNOWN_KERNEL: Final = "Unknown"  # TensorFlow's kernel name for tensors without one

_phases = count(1 << 32)  # above the numbers of `bfcviz.phase`, which may be in the same trace
_KEEP: Final = 1 << 16
_names = Labels()  # labels of threads, for heaps without a label table


class Record(NamedTuple):
    """One line of the log of the memory of tensors; sizes in bytes. A `step` line has only its number.

    `allocation_id` is None if the allocator does not track it.
    """

    kind: Literal["step", "allocate", "free"]
    step_id: int
    kernel: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    requested: int = 0
    allocated: int = 0
    allocation_id: int | None = None
    allocator: str = ""
    address: int = 0

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.step_id} begins"
        when = "outside any step" if self.step_id == UNKNOWN_STEP else f"step {self.step_id}"
        which = f"allocation {self.allocation_id} of {self.allocator}"
        if self.kind == "free":
            return f"{when}: {which} is freed, {self.dtype} {list(self.shape)} of {self.kernel}"
        return (
            f"{when}: {self.kernel} allocates {self.dtype} {list(self.shape)}, {format_bytes(self.requested)} "
            f"in {format_bytes(self.allocated)}, {which}"
        )


class _CurrentStep(threading.local):
    """The step that each thread creates tensors in."""

    step = UNKNOWN_STEP


_current = _CurrentStep()


class MemoryLog:
    """Records every tensor allocated and freed, in all threads, while its `with` is open.

    Args:
        keep: most lines to keep; older ones are dropped.
    """

    _active: ClassVar[tuple["MemoryLog", ...]] = ()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, keep: int = _KEEP) -> None:
        self.records: deque[Record] = deque(maxlen=keep)
        self._alive: dict[tuple[str, int], Record] = {}

    @property
    def alive(self) -> list[Record]:
        """Tensors allocated since the start and not freed; at the end of a job, the leaks."""
        return list(self._alive.copy().values())

    def add(self, record: Record) -> None:
        """Add a line to the log of tensors; a `free` line gets the kernel, shape and id of its allocation."""
        key = (record.allocator, record.address)
        if record.kind == "allocate":
            self._alive[key] = record
        elif record.kind == "free" and (made := self._alive.pop(key, None)) is not None:
            record = made._replace(kind="free", step_id=record.step_id)
        self.records.append(record)

    def __enter__(self) -> Self:
        with MemoryLog._lock:
            MemoryLog._active = (*MemoryLog._active, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with MemoryLog._lock:
            MemoryLog._active = tuple(log for log in MemoryLog._active if log is not self)


@contextmanager
def step(number: int, *allocators: Allocator) -> Iterator[None]:
    """Make this thread's tensors part of step `number`; add a mark to the traces of these heaps."""
    before, _current.step = _current.step, number
    for allocator in allocators:
        mark(allocator, STEP, number)
    for log in MemoryLog._active:  # noqa: SLF001
        log.add(Record("step", number))
    try:
        yield
    finally:
        _current.step = before


def mark(allocator: Allocator, name: str, value: int = 0) -> None:
    """Add a mark to the trace of the heap that tensors come from, if it has one."""
    heap = innermost(allocator)
    if hasattr(heap, "mark"):
        heap.mark(name, value)


@contextmanager
def phase(allocator: Allocator, name: str) -> Iterator[None]:
    """Mark begin and end of a phase in the trace of the tensors' heap, as `bfcviz.phase` does."""
    heap = innermost(allocator)
    if not (hasattr(heap, "mark") and hasattr(heap, "labels")):
        yield
        return
    number = next(_phases)
    heap.mark(heap.labels.intern(f"{name} begins", begins=name), number)
    try:
        yield
    finally:
        heap.mark(heap.labels.intern(f"{name} ends", ends=name), number)


def current_kernel() -> str:
    """The kernel that tensors created now belong to: the name of this thread's innermost `bfcviz.label`."""
    return _names.name(number_in(_names)) or UNKNOWN_KERNEL


def label_of(allocator: Allocator, kernel: str, dtype: str, shape: tuple[int, ...]) -> str | int:
    """The label of a tensor's allocation; with details if the heap has a label table."""
    labels: Labels | None = getattr(innermost(allocator), "labels", None)
    if labels is None:
        return kernel
    return labels.intern(kernel, data_type=dtype, shape=f"[{','.join(map(str, shape))}]")


def log_allocation(buffer: TensorBuffer, kernel: str, shape: tuple[int, ...]) -> None:
    """Record a tensor's allocation in all active logs."""
    if MemoryLog._active:  # noqa: SLF001
        heap = buffer.allocator
        tracked = heap.tracks_allocation_sizes() and buffer.address != 0
        _add_to_memory_logs(
            Record(
                "allocate",
                _current.step,
                kernel,
                buffer.element.name,
                shape,
                buffer.nbytes,
                heap.allocated_size(buffer.address) if tracked else buffer.nbytes,
                heap.allocation_id(buffer.address) if tracked else None,
                heap.name,
                buffer.address,
            )
        )


def log_free(buffer: TensorBuffer) -> None:
    """Record a tensor's free in all active logs."""
    if MemoryLog._active:  # noqa: SLF001
        name, element = buffer.allocator.name, buffer.element.name
        _add_to_memory_logs(
            Record("free", _current.step, dtype=element, allocator=name, address=buffer.address)
        )


def _add_to_memory_logs(record: Record) -> None:
    """Add a line on a tensor to all active logs."""
    for log in MemoryLog._active:  # noqa: SLF001
        log.add(record)
