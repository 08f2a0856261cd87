"""Where a tensor's memory is, and its arrays: NumPy's or CuPy's, in the memory itself."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.devices.pinned_memory import PinnedSubAllocator
from bfcviz.devices.simulated_memory import SimulatedGpuSubAllocator
from bfcviz.errors import MissingExtra


@dataclass(frozen=True)
class Place:
    """Where memory is: the host's, a GPU's, or only pretended (`nowhere`)."""

    kind: Literal["host", "cuda", "nowhere"]
    device: int = 0

    def active(self) -> AbstractContextManager[Any]:
        """Makes the GPU the current one, for as long as something is computed in its memory."""
        return load_cupy().cuda.Device(self.device) if self.kind == "cuda" else nullcontext()

    def __str__(self) -> str:
        return {"host": "host memory", "cuda": f"memory of GPU {self.device}"}.get(
            self.kind, "no real memory"
        )


HOST: Final = Place("host")
NOWHERE: Final = Place("nowhere")


def innermost(allocator: Any) -> Any:
    """The heap inside all wrappers."""
    while (inner := getattr(allocator, "wrapped", None)) is not None:
        allocator = inner
    return allocator


def place_of(allocator: Allocator) -> Place:
    """Where an allocator's memory is, by its sub-allocator; one of yours may say so: `place = "host"`."""
    heap = innermost(allocator)
    source = getattr(heap, "sub_allocator", heap)
    if isinstance(source, HostSubAllocator | PinnedSubAllocator) or getattr(source, "place", None) == "host":
        return HOST
    if isinstance(source, SimulatedGpuSubAllocator):
        return HOST if source.memory.readable else NOWHERE
    return Place("cuda", source.device) if isinstance(source, CudaSubAllocator) else NOWHERE


class _Lent:
    """What NumPy makes an array of, and keeps."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def array_interface(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
    """What NumPy's and CUDA's array interfaces, version 3, have in common."""
    return {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address, False), "strides": None}


def numpy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """NumPy's array at an address of the host; it and its views keep `owner`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.asarray(_Lent(owner, array_interface(address, (nbytes,), np.dtype(np.uint8))))
    return raw.view(dtype).reshape(shape)  # of bytes first: typestr cannot tell all dtypes


def cupy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    """CuPy's array at an address of a GPU; it and its views keep `owner`."""
    cupy = load_cupy()
    if 0 in shape:
        return cupy.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, owner, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def load_cupy() -> Any:
    """CuPy.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("cupy")
    except ImportError as error:
        raise MissingExtra("an array in a GPU's memory", "CuPy", "cuda12") from error
