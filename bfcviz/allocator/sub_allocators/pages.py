"""Pages from the operating system, through Python's mmap; what pages.h is in C."""

import ctypes
import mmap
from pathlib import Path

_mapped: dict[int, mmap.mmap] = {}


def page_size() -> int:
    """Bytes of a page."""
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
    """Give them back; the mapping remembers its own size."""
    _mapped.pop(address).close()


def discard_pages(address: int, num_bytes: int) -> None:
    """These whole pages become zeros, and take no memory until they are touched."""
    begin = max(start for start in _mapped if start <= address)
    pages = _mapped[begin]
    offset = address - ctypes.addressof(ctypes.c_char.from_buffer(pages))
    pages.madvise(mmap.MADV_DONTNEED, offset, num_bytes)


def available_memory() -> int:
    """Bytes that can be allocated without swapping, as the kernel estimates; 2^64 - 1 where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return (1 << 64) - 1
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else (1 << 64) - 1
