"""Element types: how many bytes an element takes, and what has to be done when it comes and goes.

===========  ====  ==============================================================================================
type         B     what lies in the heap
===========  ====  ==============================================================================================
a NumPy one  any   the number itself
string       24    as TensorFlow's tstring: up to 22 bytes of text in place, longer ones elsewhere, pointed to
resource     8     a number; the Python object it stands for is kept beside it
variant      8     likewise
===========  ====  ==============================================================================================
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from bfcviz.errors import InvalidRequest


class Cells(Protocol):
    """The elements of one buffer, where they are more than bytes. Addresses are of single elements."""

    def construct(self, address: int) -> None:
        """Turn raw memory into an element."""

    def destroy(self, address: int) -> None:
        """End an element: its memory goes back after this."""

    def get(self, address: int) -> object:
        """Its value."""

    def set(self, address: int, value: object) -> None:
        """Give it a value; raises InvalidRequest for one it cannot have."""


@dataclass(frozen=True)
class ElementType:
    """What a tensor is made of.

    Attributes:
        name: such as `float32` or `string`.
        itemsize: bytes of an element.
        numpy: the same for NumPy; None where it has none.
        cells: makes what constructs and destroys the elements of one buffer; None where they are plain bytes.
    """

    name: str
    itemsize: int
    numpy: np.dtype[Any] | None = None
    cells: Callable[[], Cells] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


class Strings:
    """Texts as bytes, laid out as TensorFlow's tstring; the long ones are kept here, outside the heap."""

    ITEM: Final = 24
    INLINE: Final = 22
    _LARGE: Final = 1  # in the two low bits of the size; 0: in place

    def __init__(self) -> None:
        self._long: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def construct(self, address: int) -> None:
        """The empty text."""
        ctypes.memset(address, 0, self.ITEM)

    def destroy(self, address: int) -> None:
        """Let go of a long text; nothing that could be read stays behind."""
        self._long.pop(address, None)
        ctypes.memset(address, 0, self.ITEM)

    def get(self, address: int) -> bytes:
        """The text."""
        head = ctypes.c_uint8.from_address(address).value
        if head & 3 != self._LARGE:
            return ctypes.string_at(address + 1, head >> 2)
        size, _, pointer = (ctypes.c_uint64 * 3).from_address(address)
        return ctypes.string_at(pointer, size >> 2)

    def set(self, address: int, value: object) -> None:
        """Text or bytes."""
        if not isinstance(value, str | bytes):
            raise InvalidRequest(f"{value!r} was to be an element of type string: give text or bytes")
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
    """Numbers that stand for Python objects; 0 stands for None. An object lives as long as its element."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._last = 0

    def construct(self, address: int) -> None:
        """None."""
        ctypes.c_uint64.from_address(address).value = 0

    def destroy(self, address: int) -> None:
        """Let go of the object."""
        slot = ctypes.c_uint64.from_address(address)
        self._objects.pop(slot.value, None)
        slot.value = 0

    def get(self, address: int) -> object:
        """The object."""
        return self._objects.get(ctypes.c_uint64.from_address(address).value)

    def set(self, address: int, value: object) -> None:
        """Any object."""
        self.destroy(address)
        if value is not None:
            self._last += 1
            self._objects[self._last] = value
            ctypes.c_uint64.from_address(address).value = self._last


SPECIAL: Final = MappingProxyType(
    {
        "string": ElementType("string", Strings.ITEM, cells=Strings),
        "resource": ElementType("resource", 8, cells=Handles),
        "variant": ElementType("variant", 8, cells=Handles),
    }
)
"""The types with constructors, by name."""


def element_type(dtype: object) -> ElementType:
    """The type called so: a NumPy dtype, its name, one of `SPECIAL`, or an `ElementType` of one's own.

    Raises:
        InvalidRequest: there is none, or it has no fixed size.
    """
    if isinstance(dtype, ElementType):
        return dtype
    if isinstance(dtype, str) and dtype in SPECIAL:
        return SPECIAL[dtype]
    if dtype is None:  # NumPy would take it for float64
        raise InvalidRequest("no dtype was given: give one such as 'float32' or 'string'")
    try:
        known: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise InvalidRequest(
            f"{dtype!r} is no dtype: give one of NumPy's, such as 'float32', or {', '.join(map(repr, SPECIAL))}"
        ) from error
    if known.hasobject:
        raise InvalidRequest(f"dtype {known} holds Python objects: 'variant' does, and lets go of them")
    if known.itemsize == 0 or known.subdtype is not None:
        raise InvalidRequest(
            f"dtype {known!r} is no single element of a fixed size: give one such as 'float32'"
        )
    return ElementType(known.name, known.itemsize, known)
