"""Structs of chunks and regions, and arrays of them, in plain Python: structs.pxd has the C ones."""
# ruff: noqa: ARG001, D101  structs.pxd has the comments

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    """The chunk struct of a handle, in an array of structs."""
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
