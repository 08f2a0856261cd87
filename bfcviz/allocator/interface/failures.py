"""From the heap's numbers for what went wrong (native.FAILED_..., native.FREE_...) to errors that say it."""

import operator

from bfcviz import native
from bfcviz.errors import (
    AllocatorError,
    DoubleFree,
    ForeignPointer,
    InteriorPointer,
    InvalidFree,
    InvalidRequest,
    SubAllocatorError,
)

NO_BOOKS = "this machine has no memory left for the heap's own tables; the heap is unchanged"


def failure(reason: int, num_bytes: int, alignment: int) -> Exception:
    """Why `Heap.allocate` gave no address, where memory did not just run out."""
    if reason == native.FAILED_BOOKS:
        return MemoryError(NO_BOOKS)
    if reason == native.FAILED_GRANT:
        return SubAllocatorError(
            "the sub-allocator granted a region that overlaps another, is smaller than asked for, or does not "
            "begin at a multiple of 256 bytes; the heap did not take it"
        )
    if reason == native.FAILED_CLOSED:
        return AllocatorError(f"{num_bytes} bytes were asked for, of an allocator that is closed")
    if reason == native.FAILED_FORKED:
        return AllocatorError(
            f"{num_bytes} bytes were requested, and the heap cannot grow in this process: it was forked while another "
            "thread was in the sub-allocator. Use what is free, or make a new heap here"
        )
    if reason == native.FAILED_ALIGNMENT:
        return InvalidRequest(f"an alignment of {alignment} was asked for; give a power of two")
    return InvalidRequest(f"{num_bytes} bytes were asked for; give a size from 0 to 2^62")


def whole(number: int, what: str, bits: int = 64) -> int:
    """The number, if it fits so many bits unsigned."""
    if not 0 <= operator.index(number) < 1 << bits:
        raise InvalidRequest(f"{number} was given as {what}; give a number from 0 to 2^{bits} - 1")
    return operator.index(number)


def invalid_free(reason: int, address: int) -> Exception:
    """Why `Heap.free` did nothing."""
    kind: type[InvalidFree]
    if reason == native.FREE_BOOKS:
        return MemoryError(NO_BOOKS)
    if reason == native.FREE_DOUBLE:
        kind, text = DoubleFree, "lies in a chunk that is free: it was freed already, or never handed out"
    elif reason == native.FREE_INTERIOR:
        kind, text = InteriorPointer, "lies inside a chunk in use: give the address that allocate returned"
    else:
        kind, text = ForeignPointer, "lies in no region of this heap: it came from another allocator"
    return kind(address, f"{address:#x} {text}")
