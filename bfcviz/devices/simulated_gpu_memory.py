"""The memory of a simulated GPU: addresses, backed by memory of this machine or by nothing, and regions of them."""

import ctypes
import mmap
import sys
from threading import Lock
from typing import Final

from bfcviz.allocator.sub_allocators import BASE, PythonSubAllocator
from bfcviz.errors import DeviceError
from bfcviz.units import format_bytes

LARGEST: Final = 1 << 43
"""The largest simulated GPU in bytes; the address range of each is twice that long."""

_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class SimulatedMemory:
    """The memory of a simulated GPU: addresses, backed by memory of this machine or by nothing; grants regions.

    ::

        |region of GPU:0|........|region of GPU:1 |region of GPU:0|................|
        ^ start                                      GPU:0 and GPU:1 are logical devices of one GPU

    Only written pages take memory, so a laptop can simulate a GPU of 80 GiB.

    Args:
        capacity: most bytes granted at one time; unified memory may exceed it.
        reserve: length of the address range in bytes.
        ordinal: index of the GPU; it makes the addresses unique.
        readable: whether memory of this machine backs the addresses.
    """

    def __init__(self, capacity: int, reserve: int, ordinal: int = 0, *, readable: bool = True) -> None:
        if reserve > 2 * LARGEST:
            raise DeviceError(
                f"a simulated GPU of {format_bytes(reserve // 2)} is too large: give at most {format_bytes(LARGEST)}"
            )
        self.capacity = capacity
        self.readable = readable
        self.used = 0
        self._reserve = -(-reserve // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start = 0 if readable else BASE + ordinal * 2 * LARGEST
        self._pages: mmap.mmap | None = None
        self._granted: dict[int, int] = {}  # bytes by address
        self._lock = Lock()

    @property
    def spilled(self) -> int:
        """Bytes of a simulated GPU beyond its capacity; on a real GPU, unified memory keeps them on the host."""
        return max(0, self.used - self.capacity)

    def take(self, num_bytes: int, alignment: int, *, unified: bool) -> int:
        """Grant a region of a simulated GPU: its address, or 0 if there is no room."""
        with self._lock:
            if not unified and num_bytes > self.capacity - self.used:
                return 0
            where = self._gap(num_bytes, max(alignment, mmap.PAGESIZE))
            if where:
                self._granted[where] = num_bytes
                self.used += num_bytes
            return where

    def give_back(self, where: int) -> None:
        """Take a region of a simulated GPU back; its contents are dropped and its pages take no memory."""
        with self._lock:
            num_bytes = self._granted.pop(where)
            self.used -= num_bytes
            if self._pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
                self._pages.madvise(mmap.MADV_DONTNEED, where - self._start, pages)

    def _gap(self, num_bytes: int, alignment: int) -> int:
        """The lowest address of a simulated GPU with that many free bytes after it; 0 = none."""
        start = self._begin()
        at = start
        for begin in sorted(self._granted):
            at = -(-at // alignment) * alignment
            if begin - at >= num_bytes:
                return at
            at = begin + self._granted[begin]
        at = -(-at // alignment) * alignment
        return at if start + self._reserve - at >= num_bytes else 0

    def _begin(self) -> int:
        """Start of the address range of a simulated GPU; the first call reserves it."""
        if self._start == 0:
            self._pages = _reserve_simulated_memory(self._reserve)
            self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        return self._start


def _reserve_simulated_memory(num_bytes: int) -> mmap.mmap:
    """Map zeroed pages for a simulated GPU, which take memory of this machine on the first write."""
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        return mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError, ValueError) as error:
        raise DeviceError(
            f"this machine cannot reserve {format_bytes(num_bytes)} of addresses for a simulated GPU: simulate a "
            "smaller one, or pass memory='addresses' to simulate_gpus"
        ) from error


class SimulatedGpuSubAllocator(PythonSubAllocator):
    """Grants regions of a simulated GPU to one of its logical devices.

    Args:
        unified: may take more than the GPU's capacity.
    """

    def __init__(self, memory: SimulatedMemory, *, unified: bool = False) -> None:
        super().__init__()
        self.memory = memory
        self.unified = unified

    @property
    def place(self) -> str:
        """Where the bytes of a simulated GPU are: `host` or `nowhere`."""
        return "host" if self.memory.readable else "nowhere"

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region of a simulated GPU; None if it is full."""
        where = self.memory.take(num_bytes, alignment, unified=self.unified)
        return (where, num_bytes) if where else None

    def free(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  the memory knows the size
        """Take a region of a simulated GPU back."""
        self.memory.give_back(address)
