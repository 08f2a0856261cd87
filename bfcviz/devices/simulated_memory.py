"""The memory of a simulated GPU: a stretch of addresses of its own, with real memory of this machine behind it or none.

::

    |region of GPU:0|........|region of GPU:1 |region of GPU:0|................|
    ^ start                                      both are logical devices of one GPU

Untouched pages cost nothing, so that a GPU of 80 GiB can be simulated on a laptop; only what is written takes memory.
"""

import ctypes
import mmap
import sys
from threading import Lock
from typing import Final

from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.allocator.sub_allocators.simulated import BASE
from bfcviz.errors import DeviceError
from bfcviz.units import format_bytes

LARGEST: Final = 1 << 43
"""Bytes of the largest GPU that can be simulated; each has a stretch of addresses twice that long."""

_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class SimulatedMemory:
    """What all logical devices of one simulated GPU take their regions from.

    Args:
        capacity: bytes that can be granted at one time, except to unified memory.
        reserve: bytes of addresses.
        ordinal: number of the GPU, for addresses that no other one has.
        readable: whether memory of this machine lies behind the addresses.

    Attributes:
        used: bytes granted now.
    """

    def __init__(self, capacity: int, reserve: int, ordinal: int = 0, *, readable: bool = True) -> None:
        if reserve > 2 * LARGEST:
            raise DeviceError(
                f"{format_bytes(reserve // 2)} were to be had of one simulated GPU; the most is {format_bytes(LARGEST)}"
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
        """Bytes beyond what the GPU has: on a real one, unified memory would keep them with the host."""
        return max(0, self.used - self.capacity)

    def take(self, num_bytes: int, alignment: int, *, unified: bool) -> int:
        """Address of a new region; 0 where there is no room."""
        with self._lock:
            if not unified and num_bytes > self.capacity - self.used:
                return 0
            where = self._gap(num_bytes, max(alignment, mmap.PAGESIZE))
            if where:
                self._granted[where] = num_bytes
                self.used += num_bytes
            return where

    def give_back(self, where: int) -> None:
        """A region is free again; what was written there is gone, and costs no memory any more."""
        with self._lock:
            num_bytes = self._granted.pop(where)
            self.used -= num_bytes
            if self._pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
                self._pages.madvise(mmap.MADV_DONTNEED, where - self._start, pages)

    def _gap(self, num_bytes: int, alignment: int) -> int:
        """The lowest free address with so many free bytes behind it; 0 = there is none."""
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
        """Where the stretch begins; the first call reserves it."""
        if self._start == 0:
            self._pages = _reserve(self._reserve)
            self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        return self._start


def _reserve(num_bytes: int) -> mmap.mmap:
    """Zeroed pages that take memory only once they are written."""
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        return mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError, ValueError) as error:
        raise DeviceError(
            f"{format_bytes(num_bytes)} of addresses were to be reserved for a simulated GPU, and this machine gives "
            "none: simulate a smaller one, or give simulate_gpus memory='addresses'"
        ) from error


class SimulatedGpuSubAllocator(PythonSubAllocator):
    """Regions of a simulated GPU, for one of its logical devices.

    Args:
        memory: of the GPU.
        unified: may take more than the GPU has.
    """

    def __init__(self, memory: SimulatedMemory, *, unified: bool = False) -> None:
        super().__init__()
        self.memory = memory
        self.unified = unified

    @property
    def place(self) -> str:
        """Where its bytes are, for whoever reads or writes them: `host`, or `nowhere`."""
        return "host" if self.memory.readable else "nowhere"

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:
        """Grant a region; refuses where the GPU is full."""
        where = self.memory.take(num_bytes, alignment, unified=self.unified)
        return (where, num_bytes) if where else None

    def free(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  the memory knows the size
        """Take a region back."""
        self.memory.give_back(address)
