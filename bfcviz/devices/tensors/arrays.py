"""Arrays over a tensor's memory: NumPy's and CuPy's, without a copy."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import MissingExtra


class _ArrayOwner:
    """Keeps `owner` alive for NumPy's array."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def array_interface(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
    """The common part of NumPy's and CUDA's array interfaces, version 3."""
    return {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address, False), "strides": None}


def numpy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A NumPy array at a host address; the array and its views keep `owner`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.asarray(_ArrayOwner(owner, array_interface(address, (nbytes,), np.dtype(np.uint8))))
    return raw.view(dtype).reshape(shape)  # bytes first: typestr cannot express all dtypes


def cupy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    """A CuPy array at a GPU address; the array and its views keep `owner`."""
    cupy = load_cupy()
    if 0 in shape:
        return cupy.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, owner, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def load_cupy() -> Any:
    """Import CuPy.

    Raises:
        MissingExtra: CuPy is not installed.
    """
    try:
        return import_module("cupy")
    except ImportError as error:
        raise MissingExtra("an array in a GPU's memory", "CuPy", "cuda12") from error
