"""Access: read and write the bytes at an allocator's addresses.

===================  ==============================================================================================
memory               method
===================  ==============================================================================================
of this machine      ctypes
of a GPU             synchronous copies by CUDA's driver
simulated            pages stored here, created at the first write: a heap without memory can be guarded, too
===================  ==============================================================================================
"""

import ctypes
from threading import RLock
from typing import Any, Final, Protocol, runtime_checkable

from bfcviz import _forks
from bfcviz.allocator.interface import Allocator
from bfcviz.allocator.sub_allocators.cuda import CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda_driver import Driver
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest

PAGE: Final = 1 << 16
_PIECE: Final = 1 << 20


@runtime_checkable
class Access(Protocol):
    """Reads and writes memory by address."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes at an address."""

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at an address."""

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern repeatedly; the last repetition is cut to fit."""


class HostAccess:
    """Memory of this process. An invalid address crashes it: use only addresses from an allocator."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes at an address."""
        return ctypes.string_at(address, num_bytes)

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at an address."""
        ctypes.memmove(address, data, len(data))

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern repeatedly."""
        _fill_in_pieces(self, address, num_bytes, pattern)


class DeviceAccess:
    """Memory of a GPU, or pinned memory through the GPU's driver.

    Args:
        driver: CUDA's.
        device: number of the GPU.
    """

    def __init__(self, driver: Driver, device: int = 0) -> None:
        self.driver = driver
        self.device = device

    def read(self, address: int, num_bytes: int) -> bytes:
        """Copy bytes to the host. Waits for earlier work in the default stream."""
        data = ctypes.create_string_buffer(num_bytes)
        with self.driver.on(self.device):
            self.driver.call(
                "cuMemcpyDtoH_v2", ctypes.byref(data), ctypes.c_uint64(address), ctypes.c_size_t(num_bytes)
            )
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the device."""
        with self.driver.on(self.device):
            self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern repeatedly."""
        _fill_in_pieces(self, address, num_bytes, pattern)


class SimulatedAccess:
    """Simulated memory: stores the bytes that were written; all others are 0."""

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}
        # Two chunks may share a page. Reentrant: the finalizer of a tensor that Python collects meanwhile may write.
        self._lock = _forks.keep(RLock())

    def read(self, address: int, num_bytes: int) -> bytes:
        """Read bytes at an address."""
        parts = (self._page(page)[low:high] for page, low, high in _pages_of(address, num_bytes))
        return b"".join(parts)

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at an address."""
        done = 0
        with self._lock:
            for page, low, high in _pages_of(address, len(data)):
                old = self._page(page)
                self._pages[page] = old[:low] + data[done : done + high - low] + old[high:]
                done += high - low

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern repeatedly; whole pages share their bytes."""
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
        return self._pages.get(number, _EMPTY)


_EMPTY: Final = bytes(PAGE)


def access_to(allocator: Allocator) -> Access:
    """The Access for an allocator's memory: that of a wrapper inside it, or one that fits its sub-allocator.

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


def _fill_in_pieces(access: Access, address: int, num_bytes: int, pattern: bytes) -> None:
    length = min(num_bytes, _PIECE - _PIECE % len(pattern))
    piece = _repeated_pattern(pattern, 0, length)
    for at in range(0, num_bytes, max(length, 1)):
        access.write(address + at, piece[: num_bytes - at])


def _pages_of(address: int, num_bytes: int) -> list[tuple[int, int, int]]:
    """The pages of an address range: number of the page, begin and end of the range in it."""
    end = address + num_bytes
    return [
        (page, max(address - page * PAGE, 0), min(end - page * PAGE, PAGE))
        for page in range(address // PAGE, -(-end // PAGE))
    ]
