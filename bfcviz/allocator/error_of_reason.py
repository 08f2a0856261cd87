"""Convert the heap's failure numbers (native.FAILED_..., native.FREE_...) into errors with a message."""

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

NO_TABLE_MEMORY = "the machine has no memory for the heap's own tables; the heap is unchanged"


def failure(reason: int, num_bytes: int, alignment: int) -> Exception:
    """The error for a failure of `Heap.allocate` other than out of memory."""
    if reason == native.FAILED_TABLES:
        return MemoryError(NO_TABLE_MEMORY)
    if reason == native.FAILED_GRANT:
        return SubAllocatorError(
            "the sub-allocator granted a region that overlaps another, is smaller than requested, or does not "
            "begin at a multiple of 256 bytes; the heap did not use it"
        )
    if reason == native.FAILED_CLOSED:
        return AllocatorError(f"{num_bytes} bytes were requested, but the allocator is closed")
    if reason == native.FAILED_FORKED:
        return AllocatorError(
            f"{num_bytes} bytes were requested, but the heap cannot grow in this process: it was forked while another "
            "thread was in the sub-allocator. Use the free memory, or create a new heap in this process"
        )
    if reason == native.FAILED_ALIGNMENT:
        return InvalidRequest(f"the alignment is {alignment}; give a power of two")
    return InvalidRequest(f"{num_bytes} bytes were requested; give a size from 0 to 2^62")


def whole(number: int, what: str, bits: int = 64) -> int:
    """The number as an int; raises InvalidRequest if it does not fit `bits` unsigned bits."""
    if not 0 <= operator.index(number) < 1 << bits:
        raise InvalidRequest(f"{number} is out of range for {what}; give a number from 0 to 2^{bits} - 1")
    return operator.index(number)


def invalid_free(reason: int, address: int) -> Exception:
    """The error for a failure of `Heap.free`."""
    kind: type[InvalidFree]
    if reason == native.FREE_TABLES:
        return MemoryError(NO_TABLE_MEMORY)
    if reason == native.FREE_DOUBLE:
        kind, text = DoubleFree, "is in a free chunk: it was freed already, or never allocated"
    elif reason == native.FREE_INTERIOR:
        kind, text = InteriorPointer, "is inside a chunk in use: give the address that allocate returned"
    else:
        kind, text = ForeignPointer, "is in no region of this heap: it belongs to another allocator"
    return kind(address, f"{address:#x} {text}")
