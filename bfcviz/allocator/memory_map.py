"""The current state of a heap: every chunk, every region, and TensorFlow's memory map of 100 characters."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator import queries
from bfcviz.allocator.heap import Heap

MEMORY_MAP = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested_size", "<u8"),  # of a free chunk: the last request of its handle, as in TensorFlow
        ("bin", "i1"),  # -1: in use
        ("in_use", "?"),
        ("handle", "<u4"),
        ("allocation_id", "<u8"),  # 0: free
        ("freed_at_count", "<u8"),
        ("prev", "<u4"),  # handles of the neighbours in the region; NONE at its ends
        ("next", "<u4"),
        ("region", "<u2"),  # slot
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("born", "<u4"),  # low bits of the number of its ALLOCATE event
        ("binned", "?"),
    ]
)
"""One chunk, sizes in bytes; names as in TensorFlow's MemoryDump where it has them."""

REGION = np.dtype([("address", "<u8"), ("size", "<u8"), ("slot", "<u2")])
"""One region, size in bytes."""

STRIP = 100


class Moment(NamedTuple):
    """The memory map of a heap after event `step - 1`. A reader that missed the events before it can begin here.

    Attributes:
        step: number of events written.
        chunks: every chunk, of MEMORY_MAP.
        regions: every region, of REGION.
        num_allocs: successful requests ever.
        peak_bytes_in_use, largest_alloc_size: as in `Stats`, since `clear_stats`.
        peak_pool_bytes: the largest size of the pool, in bytes.
    """

    step: int
    chunks: NDArray[np.void]
    regions: NDArray[np.void]
    num_allocs: int
    peak_bytes_in_use: int
    largest_alloc_size: int
    peak_pool_bytes: int


def moment(heap: Heap) -> Moment:
    """Read the memory map of the whole heap between two events."""
    chunks, all_regions, (step, *numbers) = queries.read_moment(heap)
    return Moment(step, chunks_of(chunks), table_of(all_regions, REGION), *numbers)


def regions(heap: Heap) -> NDArray[np.void]:
    """Every region, of REGION, in address order."""
    return table_of(queries.read_regions(heap), REGION)


def chunks_of(rows: NDArray[np.uint64]) -> NDArray[np.void]:
    """The chunks of a query, as an array of MEMORY_MAP."""
    chunks = table_of(rows, MEMORY_MAP)
    chunks["bin"][chunks["in_use"]] = -1
    return chunks


def table_of(rows: NDArray[np.uint64], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """The rows of a query, whose columns are the fields of `dtype`."""
    table = np.empty(len(rows), dtype)
    for column, name in enumerate(dtype.names or ()):
        table[name] = rows[:, column]
    return table


def occupancy(chunks: NDArray[np.void], all_regions: NDArray[np.void]) -> str:
    """TensorFlow's memory map: 100 characters over all regions end to end: `*` used, `x` wasted in chunks, `_` free.

    Later chunks overwrite earlier ones, in address order; within a chunk the used part overwrites the waste.
    """
    starts, total = {}, 0  # by slot: what to add to addresses to lay the regions end to end
    for region in all_regions:
        starts[int(region["slot"])] = total - int(region["address"])
        total += int(region["size"])
    if total == 0:
        return "<allocator contains no memory>"
    strip = ["_"] * STRIP
    for chunk in chunks[chunks["in_use"]]:
        offset = int(chunk["address"]) + starts[int(chunk["region"])]
        used, size = int(chunk["requested_size"]), int(chunk["size"])
        for begin, end, character in ((offset + used, offset + size, "x"), (offset, offset + used, "*")):
            if end > begin:
                first, last = begin * STRIP // total, (end - 1) * STRIP // total
                strip[first : last + 1] = character * (last + 1 - first)
    return "".join(strip)
