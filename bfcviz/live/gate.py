"""The functions NumPy calls for its memory, through ctypes: slow, for where nothing is compiled. In C: gate.pxd.

The names are gate.pxd's, where more is told. A gate made here, and its heap, stay for as long as the process.

Arrays are freed in the midst of errors too, where no Python code may run: it would lose the error. So `free` is C
here as well: a function of Python's own that puts addresses into a hash table, which the next request empties.
Frees are thus recorded a little late.
"""
# ruff: noqa: D102, D103, SLF001  the comments stand in gate.pxd; the hash table is CPython's private one

import atexit
import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

from bfcviz import _forks, native
from bfcviz.errors import AllocatorError, InvalidFree

if TYPE_CHECKING:
    from bfcviz.allocator.bfc import BFCAllocator
    from bfcviz.live.walker import Walker

_SIZE, _POINTER = ctypes.c_size_t, ctypes.c_void_p
_MALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE)
_CALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)
_REALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)
_FREE = ctypes.PYFUNCTYPE(None, _POINTER, _POINTER, _SIZE)
_VISIT = ctypes.PYFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _SIZE, _POINTER)


class _Functions(ctypes.Structure):
    _fields_ = (
        ("context", _POINTER),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("functions", _Functions))


class _Thread(threading.local):
    inside = False
    label = 0


_thread = _Thread()


class _Freed:
    """A table of CPython's (pycore_hashtable.h): sizes by address."""

    def __init__(self) -> None:
        api = ctypes.pythonapi
        api._Py_hashtable_new.restype = _POINTER
        self.pointer = api._Py_hashtable_new(api._Py_hashtable_hash_ptr, api._Py_hashtable_compare_direct)

    def take(self) -> list[tuple[int, int]]:
        """What is in it, which must not grow meanwhile; it is empty then."""
        found: list[tuple[int, int]] = []
        table = _POINTER(self.pointer)

        def note(_table: int, address: int | None, size: int | None, _: int) -> int:
            if address is not None:  # NumPy frees NULL too
                found.append((address, size or 0))
            return 0

        ctypes.pythonapi._Py_hashtable_foreach(table, _VISIT(note), None)
        ctypes.pythonapi._Py_hashtable_clear(table)
        return found


class Gate:
    """What the C struct of the same name is."""

    def __init__(
        self, allocator: "BFCAllocator", plain: int, small: int, labels: int, walker: "Walker | None"
    ) -> None:
        self.allocator = allocator
        self.walker = walker
        self.plain = _Handler.from_address(plain).functions
        self.small = small
        self.labels = labels
        self.process = os.getpid()
        self.is_open = False
        self.passed = 0
        self.failures = 0
        self.failure = (0, 0, 0, 0)
        self.freed, self.emptied = _Freed(), _Freed()
        self.emptying = _forks.keep(threading.Lock())
        free = ctypes.cast(ctypes.pythonapi._Py_hashtable_set, _FREE)
        functions = _Functions(
            self.freed.pointer, _MALLOC(self.malloc), _CALLOC(self.calloc), _REALLOC(self.realloc), free
        )
        self.handler = _Handler(b"bfcviz", 1, functions)

    def is_served(self, size: int) -> bool:
        if not self.is_open:
            return False
        if size >= self.small and not _thread.inside and self.process == os.getpid():
            return True
        self.passed += 1
        return False

    def serve(self, size: int) -> int | None:
        self.settle()
        label = _thread.label & native.LOW_32 if _thread.label >> 32 == self.labels else 0
        _thread.inside = True
        try:
            if self.walker is not None:
                label = self.walker.number(label)
            return self.allocator.allocate(size or 1, 1, label)
        except (MemoryError, AllocatorError):
            totals = self.allocator.stats()
            self.failure = (size, totals.pool_bytes, totals.bytes_in_use, totals.largest_free_chunk)
            self.failures += 1
            return None
        finally:
            _thread.inside = False

    def malloc(self, _context: int, size: int) -> int | None:
        if self.is_served(size):
            return self.serve(size)
        address: int | None = self.plain.malloc(self.plain.context, size)
        return address

    def calloc(self, _context: int, count: int, item: int) -> int | None:
        if not self.is_served(count * item):
            address: int | None = self.plain.calloc(self.plain.context, count, item)
            return address
        address = self.serve(count * item)
        if address is not None:
            ctypes.memset(address, 0, count * item)
        return address

    def realloc(self, context: int, old: int | None, size: int) -> int | None:
        if old is None:
            return self.malloc(context, size)
        if _thread.inside:
            return None
        had = self.requested(old)
        if had == 0:
            plain: int | None = self.plain.realloc(self.plain.context, old, size)
            return plain
        address = self.malloc(context, size)
        if address is not None:
            ctypes.memmove(address, old, min(had, size))
            self.give_back(old, had)
        return address

    def requested(self, address: int) -> int:
        try:
            return self.allocator.requested_size(address)
        except InvalidFree:
            return 0

    def give_back(self, address: int, size: int) -> None:
        if self.requested(address) == 0:
            self.plain.free(self.plain.context, address, size)
        elif self.process == os.getpid():  # in a forked one the books are the parent's, and its chunks stay
            self.allocator.free(address)

    def settle(self) -> None:
        """Carry out the frees that came."""
        if _thread.inside:
            return
        _thread.inside = True
        try:
            with self.emptying:
                self.freed, self.emptied = self.emptied, self.freed
                self.handler.functions.context = self.freed.pointer  # frees go there from here on
                for address, size in self.emptied.take():
                    self.give_back(address, size)
        finally:
            _thread.inside = False

    def outlive_python(self) -> None:
        """Serve nothing from here on, and let what is freed lie: there may be no Python left to run."""
        functions = self.handler.functions
        functions.malloc, functions.calloc = self.plain.malloc, self.plain.calloc
        functions.realloc = ctypes.cast(ctypes.pythonapi.PyErr_Occurred, _REALLOC)  # NULL: cannot


_new_reference = ctypes.pythonapi.Py_IncRef
_new_reference.argtypes = [ctypes.py_object]
_new_reference.restype = None


def new(allocator: "BFCAllocator", plain: int, small: int, labels: int, walker: "Walker | None") -> Gate:
    gate = Gate(allocator, plain, small, labels, walker)
    for owner in (gate, allocator):
        _new_reference(owner)  # never given back: arrays may be freed after this module is gone
    atexit.register(gate.outlive_python)
    return gate


def delete(gate: Gate) -> None:
    """It stays."""


def capsule(gate: Gate, _keeper: object) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]
    made: object = make(ctypes.addressof(gate.handler), b"mem_handler", None)
    return made


def settle(gate: Gate) -> None:
    gate.settle()


def failure(gate: Gate) -> tuple[Any, ...]:
    return gate.failures, *gate.failure


def label() -> int:
    return _thread.label


def set_label(value: int) -> None:
    _thread.label = value
