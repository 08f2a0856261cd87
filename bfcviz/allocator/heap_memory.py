"""The memory of a heap in plain Python: arrays of structs, pages of the system. heap_memory.pxd is the same in C."""

# ruff: noqa: ARG001, D101  heap_memory.pxd has the comments

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Chunk:
    address: int = 0
    size: int = 0
    requested: int = 0
    allocation_id: int = 0
    freed_at: int = 0
    born: int = 0
    prev: int = 0
    next: int = 0
    label: int = 0
    region: int = 0
    thread: int = 0
    stream: int = 0
    binned: int = 0


@dataclass(slots=True)
class Key:
    size: int = 0
    address: int = 0


@dataclass(slots=True)
class Region:
    address: int = 0
    size: int = 0
    first: int = 0
    slot: int = 0


def chunk_at(chunks: list[Any], handle: int) -> Any:
    """The chunk struct of a handle, in an array of heap_memory."""
    return chunks[handle]


key_at = chunk_at
region_at = chunk_at


def _grown(new: Callable[[], Any], old: list[Any], count: int) -> list[Any]:
    """An array, grown to `count` structs or numbers, which are 0."""
    return old + [new() for _ in range(count - len(old))]


grow_chunks, grow_keys, grow_regions, grow_u32 = (partial(_grown, new) for new in (Chunk, Key, Region, int))

no_chunks: Callable[[], list[Chunk]] = list
no_keys: Callable[[], list[Key]] = list
no_regions: Callable[[], list[Region]] = list
no_u32: Callable[[], list[int]] = list
no_u8 = new_u8 = bytearray


def is_null(array: object) -> bool:
    """Whether an array of structs got no memory: never, because Python raises MemoryError itself."""
    return False


def release(array: object) -> None:
    """Free an array of structs: nothing to do, because Python frees it."""


def open_gap(regions: list[Region], index: int, count: int) -> None:
    """Move the structs `index` to `count` of an array of regions up by one."""
    regions[index + 1 : count + 1] = regions[index:count]
    regions[index] = Region()


def close_gap(regions: list[Region], index: int, count: int) -> None:
    """Move the structs above `index` in an array of regions down by one."""
    regions[index : count + 1] = [*regions[index + 1 : count + 1], Region()]


# ------------------------------------------------------------------------------
# Pages from the operating system, through Python's mmap; pages.h is the same in C.


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


def unmap_pages(address: int, num_bytes: int) -> None:
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
