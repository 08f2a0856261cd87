"""Types of a tensor's elements: their size, and how an element is constructed and destroyed.

============= === =======================================================================================
type          B   contents in the heap
============= === =======================================================================================
NumPy dtype   any the number itself
string        24  TensorFlow's tstring: up to 22 bytes of text; for longer text a pointer to memory elsewhere
resource      8   a number; a table outside the heap maps it to a Python object
variant       8   the same
============= === =======================================================================================
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from bfcviz.errors import InvalidRequest


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
