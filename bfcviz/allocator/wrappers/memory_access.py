"""Access: how the bytes at an allocator's addresses are read and written.

===================  ==============================================================================================
memory               by
===================  ==============================================================================================
of this machine      ctypes
of a GPU             copies, which CUDA's driver makes before they return
simulated            pages kept here, made when they are first written: a heap without memory can be guarded, too
===================  ==============================================================================================
"""

import ctypes
from threading import RLock
from typing import Any, Final, Protocol, runtime_checkable

from bfcviz import _forks
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest

PAGE: Final = 1 << 16
_PIECE: Final = 1 << 20


@runtime_checkable
class Access(Protocol):
    """Reads and writes memory by address."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """The bytes there."""

    def write(self, address: int, data: bytes) -> None:
        """Put bytes there."""

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern over and over; the last time only as much of it as fits."""


class HostAccess:
    """Memory of this process. A wrong address crashes it: give only what an allocator handed out."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """The bytes there."""
        return ctypes.string_at(address, num_bytes)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes there."""
        ctypes.memmove(address, data, len(data))

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern over and over."""
        _fill_in_pieces(self, address, num_bytes, pattern)


class DeviceAccess:
    """Memory of a GPU, or pinned memory reached by way of it.

    Args:
        driver: CUDA's.
        device: number of the GPU.
    """

    def __init__(self, driver: Driver, device: int = 0) -> None:
        self.driver = driver
        self.device = device

    def read(self, address: int, num_bytes: int) -> bytes:
        """Copy the bytes here. Waits for what the default stream was given before."""
        data = ctypes.create_string_buffer(num_bytes)
        with self.driver.on(self.device):
            self.driver.call(
                "cuMemcpyDtoH_v2", ctypes.byref(data), ctypes.c_uint64(address), ctypes.c_size_t(num_bytes)
            )
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes there."""
        with self.driver.on(self.device):
            self.driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern over and over."""
        _fill_in_pieces(self, address, num_bytes, pattern)


class SimulatedAccess:
    """Memory that is only pretended: what was written is remembered, the rest is 0."""

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}
        # A page may hold the ends of two chunks; and of garbage that Python collects inside it, a tensor may write.
        self._lock = _forks.keep(RLock())

    def read(self, address: int, num_bytes: int) -> bytes:
        """The bytes there."""
        parts = (self._page(page)[low:high] for page, low, high in _pages_of(address, num_bytes))
        return b"".join(parts)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes there."""
        done = 0
        with self._lock:
            for page, low, high in _pages_of(address, len(data)):
                old = self._page(page)
                self._pages[page] = old[:low] + data[done : done + high - low] + old[high:]
                done += high - low

    def fill(self, address: int, num_bytes: int, pattern: bytes) -> None:
        """Write a pattern over and over; whole pages share their bytes."""
        filled: dict[int, bytes] = {}
        done = 0
        for page, low, high in _pages_of(address, num_bytes):
            phase = done % len(pattern)
            if high - low < PAGE:
                self.write(page * PAGE + low, _repeated(pattern, phase, high - low))
            else:
                if phase not in filled:
                    filled[phase] = _repeated(pattern, phase, PAGE)
                self._pages[page] = filled[phase]
            done += high - low

    def _page(self, number: int) -> bytes:
        return self._pages.get(number, _EMPTY)


_EMPTY: Final = bytes(PAGE)


def access_to(allocator: Allocator) -> Access:
    """How an allocator's memory is reached: as a wrapper inside it does, or by where its regions come from.

    A sub-allocator of yours says so by an attribute: `place = "host"`.

    Raises:
        InvalidRequest: that cannot be told; a wrong guess would crash the process.
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
        f"where the memory of {allocator.name} lies is not known: give access=HostAccess() if it is this machine's, "
        "or an Access of your own"
    )


def _repeated(pattern: bytes, phase: int, num_bytes: int) -> bytes:
    turned = pattern[phase:] + pattern[:phase]
    return (turned * (num_bytes // len(pattern) + 1))[:num_bytes]


def _fill_in_pieces(access: Access, address: int, num_bytes: int, pattern: bytes) -> None:
    length = min(num_bytes, _PIECE - _PIECE % len(pattern))
    piece = _repeated(pattern, 0, length)
    for at in range(0, num_bytes, max(length, 1)):
        access.write(address + at, piece[: num_bytes - at])


def _pages_of(address: int, num_bytes: int) -> list[tuple[int, int, int]]:
    """The pages a stretch lies in: number, and where in it the stretch begins and ends."""
    end = address + num_bytes
    return [
        (page, max(address - page * PAGE, 0), min(end - page * PAGE, PAGE))
        for page in range(address // PAGE, -(-end // PAGE))
    ]
