"""The current state of a heap: every chunk, every region, and TensorFlow's memory map of 100 characters."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator import queries
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.interface import Stats
from bfcviz.native import NONE as NONE

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
    return Moment(step, _memory_map_chunks(chunks), _memory_map_regions(all_regions), *numbers)


class HeapTables(NamedTuple):
    """The memory map of a heap, and all its other tables, at one moment.

    Attributes:
        chunks, regions: as in `Moment`.
        binned: size, address and handle of every chunk in the bins, in search order.
        found: for each of `chunks`, the handle that a lookup of its address finds, or NONE.
        totals: of the same moment.
    """

    chunks: NDArray[np.void]
    regions: NDArray[np.void]
    binned: list[tuple[int, int, int]]
    found: list[int]
    totals: Stats


def heap_tables(heap: Heap) -> HeapTables:
    """Read the memory map and all other tables under one lock, because other threads may change the heap."""
    chunks, all_regions, binned, found, totals = queries.read_tables(heap)
    rows = [(size, address, handle) for size, address, handle in binned.tolist()]
    return HeapTables(
        _memory_map_chunks(chunks),
        _memory_map_regions(all_regions),
        rows,
        found.tolist(),
        queries.stats_of(heap, totals),
    )


def memory_map(heap: Heap) -> NDArray[np.void]:
    """Every chunk in address order, region by region."""
    return _memory_map_chunks(queries.read_chunks(heap))


def regions(heap: Heap) -> NDArray[np.void]:
    """The regions of the memory map, in address order."""
    return _memory_map_regions(queries.read_regions(heap))


def _memory_map_chunks(rows: NDArray[np.uint64]) -> NDArray[np.void]:
    chunks = np.empty(len(rows), MEMORY_MAP)
    for column, name in enumerate(MEMORY_MAP.names or ()):
        chunks[name] = rows[:, column]
    chunks["bin"][chunks["in_use"]] = -1
    return chunks


def _memory_map_regions(rows: NDArray[np.uint64]) -> NDArray[np.void]:
    table = np.empty(len(rows), REGION)
    for column, name in enumerate(REGION.names or ()):
        table[name] = rows[:, column]
    return table


def occupancy(chunks: NDArray[np.void], all_regions: NDArray[np.void]) -> str:
    """TensorFlow's memory map: 100 characters over all regions end to end: `*` used, `x` wasted in chunks, `_` free.

    Later chunks overwrite earlier ones, in address order; within a chunk the used part overwrites the waste.
    """
    total = int(all_regions["size"].sum())
    if total == 0:
        return "<allocator contains no memory>"
    starts = dict(zip(all_regions["slot"].tolist(), _memory_map_offsets(all_regions), strict=True))
    strip = ["_"] * STRIP
    for chunk in chunks[chunks["in_use"]]:
        offset = int(chunk["address"]) + starts[int(chunk["region"])]
        used, size = int(chunk["requested_size"]), int(chunk["size"])
        for begin, end, character in ((offset + used, offset + size, "x"), (offset, offset + used, "*")):
            if end > begin:
                first, last = begin * STRIP // total, (end - 1) * STRIP // total
                strip[first : last + 1] = character * (last + 1 - first)
    return "".join(strip)


def _memory_map_offsets(all_regions: NDArray[np.void]) -> list[int]:
    """For each region, the number to add to its addresses when the regions are laid end to end."""
    sizes = [int(size) for size in all_regions["size"]]
    return [sum(sizes[:i]) - int(region["address"]) for i, region in enumerate(all_regions)]
