"""Access: read and write the bytes at an allocator's addresses; arrays over them, and where the memory is."""

import ctypes
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bfcviz import _forks
from bfcviz.allocator.cuda import CudaSubAllocator, PinnedSubAllocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.interface import Allocator
from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator
from bfcviz.devices.physical_devices import SimulatedGpuSubAllocator
from bfcviz.errors import InvalidRequest
from bfcviz.extras import needed

PAGE: Final = 1 << 16
_PIECE: Final = 1 << 20


@runtime_checkable
class Access(Protocol):
    """Access to memory by address: reads and writes it."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes of memory at an address."""

    def write(self, address: int, data: bytes) -> None:
        """Write bytes of memory at an address."""

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern to memory repeatedly; the last repetition is cut to fit."""
        length = min(num_bytes, _PIECE - _PIECE % len(pattern))
        piece = _repeated_pattern(pattern, 0, length)
        for at in range(0, num_bytes, max(length, 1)):
            self.write(address + at, piece[: num_bytes - at])


class HostAccess(Access):
    """Access to memory of this process, by ctypes. An invalid address crashes it: use those of an allocator only."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes of this process's memory at an address."""
        return ctypes.string_at(address, num_bytes)

    def write(self, address: int, data: bytes) -> None:
        """Write bytes of this process's memory at an address."""
        ctypes.memmove(address, data, len(data))


class DeviceAccess(Access):
    """Access to memory of a GPU, or pinned memory, by synchronous copies of the GPU's driver."""

    def __init__(self, driver: Driver, device: int = 0) -> None:
        self.driver = driver
        self.device = device

    def read(self, address: int, num_bytes: int) -> bytes:
        """Copy bytes at an address of a GPU to the host. Waits for earlier work in the default stream."""
        data = ctypes.create_string_buffer(num_bytes)
        with self.driver.on(self.device):
            self.driver.call(
                "cuMemcpyDtoH_v2", ctypes.byref(data), ctypes.c_uint64(address), ctypes.c_size_t(num_bytes)
            )
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to an address of a GPU."""
        with self.driver.on(self.device):
            self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))


class SimulatedAccess:
    """Access to simulated memory: stores pages that were written; all other bytes are 0. So it can be guarded, too."""

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}
        # Two chunks may share a page. Reentrant: the finalizer of a tensor that Python collects meanwhile may write.
        self._lock = _forks.keep(RLock())

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes of simulated memory at an address."""
        parts = (self._page(page)[low:high] for page, low, high in _pages_of(address, num_bytes))
        return b"".join(parts)

    def write(self, address: int, data: bytes) -> None:
        """Write bytes of simulated memory at an address."""
        done = 0
        with self._lock:
            for page, low, high in _pages_of(address, len(data)):
                old = self._page(page)
                self._pages[page] = old[:low] + data[done : done + high - low] + old[high:]
                done += high - low

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern to simulated memory repeatedly; whole pages share their bytes."""
        filled: dict[int, bytes] = {}
        done = 0
        for page, low, high in _pages_of(address, num_bytes):
            phase = done % len(pattern)
            if high - low < PAGE:
                self.write(page * PAGE + low, _repeated_pattern(pattern, phase, high - low))
            else:
                if phase not in filled:
                    filled[phase] = _repeated_pattern(pattern, phase, PAGE)
                self._pages[page] = filled[phase]
            done += high - low

    def _page(self, number: int) -> bytes:
        """The page of simulated memory with this number."""
        return self._pages.get(number, _EMPTY)


_EMPTY: Final = bytes(PAGE)


def access_to(allocator: Allocator) -> Access:
    """The access to an allocator's memory: that of a wrapper inside it, or one that fits its sub-allocator.

    A sub-allocator of your own sets an attribute: `place = "host"`.

    Raises:
        InvalidRequest: the kind of memory is unknown; a wrong guess would crash the process.
    """
    while True:
        given = getattr(allocator, "access", None)
        if isinstance(given, Access):
            return given
        inner = getattr(allocator, "wrapped", None)
        if inner is None:
            break
        allocator = inner
    source: Any = getattr(allocator, "sub_allocator", None)
    if isinstance(source, CudaSubAllocator):
        return DeviceAccess(source.driver, source.device)
    place = getattr(source, "place", None)
    if isinstance(source, HostSubAllocator) or place == "host":
        return HostAccess()
    if isinstance(source, SimulatedSubAllocator) or place == "nowhere":
        return SimulatedAccess()
    raise InvalidRequest(
        f"the kind of memory of {allocator.name} is unknown: give access=HostAccess() if it is memory of this machine, "
        "or an Access of your own"
    )


def _repeated_pattern(pattern: bytes, phase: int, num_bytes: int) -> bytes:
    rotated = pattern[phase:] + pattern[:phase]
    return (rotated * (num_bytes // len(pattern) + 1))[:num_bytes]


def _pages_of(address: int, num_bytes: int) -> list[tuple[int, int, int]]:
    """The pages of simulated memory in an address range: number of the page, begin and end of the range in it."""
    first, end = address // PAGE, address + num_bytes
    pages = [(page, 0, PAGE) for page in range(first, -(-end // PAGE))]
    if pages:
        pages[0] = (first, address - first * PAGE, PAGE)
        last, low, _ = pages[-1]
        pages[-1] = (last, low, end - last * PAGE)
    return pages


class _ArrayOwner:
    """Keeps the owner of memory alive for the NumPy array that accesses it."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def array_interface(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
    """How arrays access memory at an address: the common part of NumPy's and CUDA's interfaces, version 3."""
    return {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address, False), "strides": None}


def numpy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Access host memory as a NumPy array, by its address; the array and its views keep `owner`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.asarray(_ArrayOwner(owner, array_interface(address, (nbytes,), np.dtype(np.uint8))))
    return raw.view(dtype).reshape(shape)  # bytes first: typestr cannot express all dtypes


def cupy_array(owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    """Access a GPU's memory as a CuPy array, by its address; the array and its views keep `owner`."""
    cupy = load_cupy()
    if 0 in shape:
        return cupy.empty(shape, dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, owner, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def load_cupy() -> Any:
    """Import CuPy, to access a GPU's memory.

    Raises:
        MissingExtra: CuPy is not installed.
    """
    with needed("an array in a GPU's memory", "CuPy", "cuda12"):
        return import_module("cupy")


@dataclass(frozen=True)
class MemoryPlace:
    """Where memory is: on the host, on a GPU, or addresses without memory (`nowhere`)."""

    kind: Literal["host", "cuda", "nowhere"]
    device: int = 0

    def active(self) -> AbstractContextManager[Any]:
        """Make the GPU the current device while a `with` computes in its memory."""
        return load_cupy().cuda.Device(self.device) if self.kind == "cuda" else nullcontext()

    def __str__(self) -> str:
        return {"host": "host memory", "cuda": f"memory of GPU {self.device}"}.get(
            self.kind, "no real memory"
        )


HOST: Final = MemoryPlace("host")

NOWHERE: Final = MemoryPlace("nowhere")


def innermost(allocator: Any) -> Any:
    """The allocator inside all wrappers, whose memory is accessed."""
    while (inner := getattr(allocator, "wrapped", None)) is not None:
        allocator = inner
    return allocator


def place_of(allocator: Allocator) -> MemoryPlace:
    """Where an allocator's memory is, from its sub-allocator; your own may declare `place = "host"`."""
    heap = innermost(allocator)
    source = getattr(heap, "sub_allocator", heap)
    if isinstance(source, HostSubAllocator | PinnedSubAllocator) or getattr(source, "place", None) == "host":
        return HOST
    if isinstance(source, SimulatedGpuSubAllocator):
        return HOST if source.memory.readable else NOWHERE
    return MemoryPlace("cuda", source.device) if isinstance(source, CudaSubAllocator) else NOWHERE
