"""C functions of the uncompiled heap, through ctypes; c_api.pxd has the compiled ones."""

import ctypes
from typing import TYPE_CHECKING, Any

from bfcviz import native

if TYPE_CHECKING:
    from bfcviz.allocator.heap import Heap

_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_kept: dict[int, Any] = {}


def functions(heap: "Heap") -> tuple[int, int, int]:
    """Context, allocate, free; the callbacks live as long as the process, because C code may keep them."""

    def allocate(_context: int, alignment: int, num_bytes: int) -> int | None:
        address = heap.allocate(num_bytes, alignment or 1, 0, 0, 0)
        return address if address >= native.MIN_CHUNK else None

    def free(_context: int, pointer: int | None) -> None:
        if pointer is not None and heap.free(pointer) != 0:
            count_rejected_free(heap)

    if id(heap) not in _kept:
        _kept[id(heap)] = (heap, _ALLOCATE(allocate), _FREE(free))
    _, c_allocate, c_free = _kept[id(heap)]
    return (
        id(heap),
        ctypes.cast(c_allocate, ctypes.c_void_p).value or 0,
        ctypes.cast(c_free, ctypes.c_void_p).value or 0,
    )


def count_rejected_free(heap: "Heap") -> None:
    """Count a failed free; a C callback cannot raise."""
    native.spin_lock(heap.lock)
    heap.rejected_frees += 1
    native.spin_unlock(heap.lock)


def heap_functions(_heap: "Heap") -> object:
    """None: uncompiled there are no C functions, so serving a framework is refused."""
    return None
