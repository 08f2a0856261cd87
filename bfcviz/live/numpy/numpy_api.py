"""NumPy's C functions for memory handlers (NEP 49), called through its exported table: needs no headers."""

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

# Indices in the table, fixed by NumPy's ABI since 1.22: numpy/core/code_generators/numpy_api.py
_SET_HANDLER, _GET_HANDLER, _DEFAULT_HANDLER = 304, 305, 306


@cache
def _table() -> Any:
    try:
        umath = import_module("numpy._core._multiarray_umath")
    except ImportError:
        umath = import_module("numpy.core._multiarray_umath")
    pointer = _pointer(umath._ARRAY_API, None)  # noqa: SLF001  what C extensions read
    return ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))


def _pointer(capsule: object, name: bytes | None) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, name))


def set_handler(capsule: object) -> object:
    """Set the handler of this context's new arrays; returns the capsule of the previous one."""
    function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table()[_SET_HANDLER])
    return function(capsule)


def get_handler() -> object:
    """The capsule of this context's handler."""
    return ctypes.PYFUNCTYPE(ctypes.py_object)(_table()[_GET_HANDLER])()


def default_handler() -> object:
    """The capsule of NumPy's initial handler, which lives as long as the process."""
    return ctypes.cast(_table()[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object)).contents.value


def address_of(capsule: object) -> int:
    """The address of a handler's C struct."""
    return _pointer(capsule, b"mem_handler")
