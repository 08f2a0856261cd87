"""Structs of chunks and regions, and arrays of them, in plain Python: structs.pxd has the C ones."""
# ruff: noqa: ARG001, D101  structs.pxd has the comments

from typing import Any


class Chunk:
    __slots__ = (
        "address",
        "allocation_id",
        "binned",
        "born",
        "freed_at",
        "label",
        "next",
        "prev",
        "region",
        "requested",
        "size",
        "stream",
        "thread",
    )  # fmt: skip
    address: int
    size: int
    requested: int
    allocation_id: int
    freed_at: int
    born: int
    prev: int
    next: int
    label: int
    region: int
    thread: int
    stream: int
    binned: int

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)


class Key:
    __slots__ = ("address", "size")

    def __init__(self) -> None:
        self.size = 0
        self.address = 0


class Region:
    __slots__ = ("address", "first", "size", "slot")

    def __init__(self) -> None:
        self.address = 0
        self.size = 0
        self.first = 0
        self.slot = 0


def chunk_at(chunks: list[Any], handle: int) -> Any:
    """The chunk struct of a handle, in an array of structs."""
    return chunks[handle]


key_at = chunk_at
region_at = chunk_at


def grow_chunks(old: list[Chunk], count: int) -> list[Chunk]:
    """An array of chunk structs, grown to `count`."""
    return old + [Chunk() for _ in range(count - len(old))]


def grow_keys(old: list[Key], count: int) -> list[Key]:
    """An array of key structs, which sort the bins, grown to `count`."""
    return old + [Key() for _ in range(count - len(old))]


def grow_regions(old: list[Region], count: int) -> list[Region]:
    """An array of region structs, grown to `count`."""
    return old + [Region() for _ in range(count - len(old))]


def grow_u32(old: list[int], count: int) -> list[int]:
    """An array of numbers of 32 bits, beside those of structs, grown to `count`."""
    return old + [0] * (count - len(old))


def new_u8(count: int) -> bytearray:
    """An array of `count` zero bytes, beside those of structs."""
    return bytearray(count)


def is_null(array: object) -> bool:
    """Whether an array of structs got no memory: never, because Python raises MemoryError itself."""
    return False


def release(array: object) -> None:
    """Free an array of structs: nothing to do, because Python frees it."""


def no_chunks() -> list[Chunk]:
    """An empty array of chunk structs."""
    return []


def no_keys() -> list[Key]:
    """An empty array of key structs, which sort the bins."""
    return []


def no_regions() -> list[Region]:
    """An empty array of region structs."""
    return []


def no_u8() -> bytearray:
    """An empty array of bytes, beside those of structs."""
    return bytearray()


def no_u32() -> list[int]:
    """An empty array of numbers of 32 bits, beside those of structs."""
    return []


def open_gap(regions: list[Region], index: int, count: int) -> None:
    """Move the structs `index` to `count` of an array of regions up by one."""
    regions[index + 1 : count + 1] = regions[index:count]
    regions[index] = Region()


def close_gap(regions: list[Region], index: int, count: int) -> None:
    """Move the structs above `index` in an array of regions down by one."""
    regions[index : count + 1] = [*regions[index + 1 : count + 1], Region()]
