"""Pages from the operating system, through Python's mmap; pages.h is the same in C."""

import ctypes
import mmap
from pathlib import Path

_mapped: dict[int, mmap.mmap] = {}


def page_size() -> int:
    """Size of a page in bytes."""
    return mmap.PAGESIZE


def map_pages(num_bytes: int, alignment: int) -> int:
    """Address of zeroed memory at a multiple of `alignment`; 0 = refused."""
    extra = alignment if alignment > mmap.PAGESIZE else 0
    try:
        pages = mmap.mmap(-1, num_bytes + extra)
    except (OSError, OverflowError, ValueError):
        return 0
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    address = begin + (-begin % alignment if extra else 0)
    _mapped[address] = pages
    return address


def unmap_pages(address: int, num_bytes: int) -> None:  # noqa: ARG001  C needs the size
    """Return the pages to the operating system; the mapping knows its own size."""
    _mapped.pop(address).close()


def discard_pages(address: int, num_bytes: int) -> None:
    """Discard whole pages: they read as zeros, and use no memory until they are accessed."""
    begin = max(start for start in _mapped if start <= address)
    pages = _mapped[begin]
    offset = address - ctypes.addressof(ctypes.c_char.from_buffer(pages))
    pages.madvise(mmap.MADV_DONTNEED, offset, num_bytes)


def available_memory() -> int:
    """Bytes that can be allocated without swapping, by the kernel's estimate; 2^64 - 1 if there is none."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return (1 << 64) - 1
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else (1 << 64) - 1
