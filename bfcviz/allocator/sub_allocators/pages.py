"""Pages from the operating system, through Python's mmap; what pages.pxd is in C."""

import ctypes
import mmap

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
