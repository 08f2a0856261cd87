"""Looking into a heap: its chunks, regions, bins and totals. Each look locks the heap once.

While it holds the lock no Python object is made: that may start a garbage collection, whose finalizers may free
memory of this very heap, and would wait for the lock for ever.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator import memory
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.stats import Internals, Stats

CHUNK_COLUMNS = 16
REGION_COLUMNS = 3
MOMENT_NUMBERS = 7


def chunk_table(heap: Heap) -> NDArray[np.uint64]:
    """Every chunk, region by region, in address order: a row of the fields of `memory_map.MEMORY_MAP`."""
    rows = np.empty((0, CHUNK_COLUMNS), np.uint64)
    count = fill_chunks(heap, rows)
    while count > len(rows):
        rows = np.empty((count, CHUNK_COLUMNS), np.uint64)
        count = fill_chunks(heap, rows)  # more may have come meanwhile
    return rows[:count]


def fill_chunks(heap: Heap, rows: Any) -> int:
    """Write as many chunks as there are rows; returns how many chunks there are."""
    native.spin_lock(heap.lock)
    n = copy_chunks(heap, rows)
    native.spin_unlock(heap.lock)
    return n


def copy_chunks(heap: Heap, rows: Any) -> int:
    """As `fill_chunks`, by whoever holds the lock."""
    n = 0
    room = len(rows)
    for i in range(heap.space.regions.count):
        h = heap.space.regions.regions[i].first
        while h != native.NONE:
            c = memory.chunk_at(heap.space.table.chunks, h)
            if n < room:
                rows[n, 0] = c.address
                rows[n, 1] = c.size
                rows[n, 2] = c.requested
                rows[n, 3] = native.bin_of(c.size)
                rows[n, 4] = c.allocation_id != 0
                rows[n, 5] = h
                rows[n, 6] = c.allocation_id
                rows[n, 7] = c.freed_at
                rows[n, 8] = c.prev
                rows[n, 9] = c.next
                rows[n, 10] = c.region
                rows[n, 11] = c.label
                rows[n, 12] = c.thread
                rows[n, 13] = c.stream
                rows[n, 14] = c.born
                rows[n, 15] = c.binned
            n += 1
            h = c.next
    return n


def region_table(heap: Heap) -> NDArray[np.uint64]:
    """Every region: address, size, slot."""
    rows = np.empty((0, REGION_COLUMNS), np.uint64)
    count = fill_regions(heap, rows)
    while count > len(rows):
        rows = np.empty((count, REGION_COLUMNS), np.uint64)
        count = fill_regions(heap, rows)
    return rows[:count]


def fill_regions(heap: Heap, rows: Any) -> int:
    """As `fill_chunks`."""
    native.spin_lock(heap.lock)
    n = copy_regions(heap, rows)
    native.spin_unlock(heap.lock)
    return n


def copy_regions(heap: Heap, rows: Any) -> int:
    """As `copy_chunks`."""
    room = len(rows)
    n = heap.space.regions.count
    for i in range(n):
        if i < room:
            r = memory.region_at(heap.space.regions.regions, i)
            rows[i, 0] = r.address
            rows[i, 1] = r.size
            rows[i, 2] = r.slot
    return n


def read_moment(heap: Heap) -> tuple[NDArray[np.uint64], NDArray[np.uint64], list[int]]:
    """Chunks, regions and numbers, all after the same event: how many events there were is the first number.

    The others: successful requests ever; peak of bytes in use, largest allocation, peak of pool bytes.
    """
    numbers = np.zeros(MOMENT_NUMBERS, np.uint64)
    while True:  # more chunks may have come since they were counted
        chunks = np.empty((int(numbers[5]), CHUNK_COLUMNS), np.uint64)
        regions = np.empty((int(numbers[6]), REGION_COLUMNS), np.uint64)
        fill_moment(heap, chunks, regions, numbers)
        if numbers[5] <= len(chunks) and numbers[6] <= len(regions):
            return chunks[: int(numbers[5])], regions[: int(numbers[6])], numbers[:5].tolist()


def fill_moment(heap: Heap, chunks: Any, regions: Any, numbers: Any) -> None:
    """As `fill_chunks` and `fill_regions` under one lock; the last two numbers are what they return."""
    s = heap.space
    native.spin_lock(heap.lock)
    numbers[0] = s.log.written
    numbers[1] = s.next_id - 1
    numbers[2] = s.peak_in_use
    numbers[3] = s.largest_alloc
    numbers[4] = s.peak_pool
    numbers[5] = copy_chunks(heap, chunks)
    numbers[6] = copy_regions(heap, regions)
    native.spin_unlock(heap.lock)


def binned_rows(heap: Heap) -> list[tuple[int, int, int]]:
    """Every chunk in the bins, as a search meets them: size, address, handle. For tests: the heap must be idle."""
    rows = []
    h = heap.space.bins.at_least(0, 0)
    while h != native.NONE:
        k = memory.key_at(heap.space.bins.keys, h)
        rows.append((k.size, k.address, h))
        h = heap.space.bins.at_least(k.size, k.address + 1)
    return rows


def handle_of(heap: Heap, address: int) -> int | None:
    """Handle of the chunk in use that begins at an address."""
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    native.spin_unlock(heap.lock)
    return None if h == native.NONE else h


def chunk_facts(heap: Heap, address: int) -> tuple[int, int, int, int]:
    """Of the chunk in use at an address: 0, requested, size, allocation id; or why there is none, 0, 0, 0."""
    reason = requested = size = allocation_id = 0
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    if h == native.NONE:
        reason = heap.diagnose(address)
    else:
        c = memory.chunk_at(heap.space.table.chunks, h)
        requested = c.requested
        size = c.size
        allocation_id = c.allocation_id
    native.spin_unlock(heap.lock)
    return reason, requested, size, allocation_id


def requested_at(heap: Heap, address: int) -> int:
    """Bytes asked for by whoever holds the chunk at an address; 0 where none in use begins there."""
    requested = 0
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    if h != native.NONE:
        requested = memory.chunk_at(heap.space.table.chunks, h).requested
    native.spin_unlock(heap.lock)
    return requested


def read_totals(heap: Heap) -> Stats:
    """The totals of this moment."""
    s = heap.space
    native.spin_lock(heap.lock)
    allocs = s.num_allocs
    in_use = s.bytes_in_use
    requested = s.requested_in_use
    peak = s.peak_in_use
    largest_alloc = s.largest_alloc
    pool = s.pool_bytes
    peak_pool = s.peak_pool
    largest_free = s.largest_free()
    regions = s.regions.count
    used = s.chunks_in_use
    native.spin_unlock(heap.lock)
    return Stats(
        allocs, in_use, requested, peak, largest_alloc, heap.limit, pool, peak_pool, pool - in_use, largest_free,
        regions, used,
    )  # fmt: skip


def read_internals(heap: Heap) -> Internals:
    """The algorithm's own numbers of this moment."""
    native.spin_lock(heap.lock)
    next_region = heap.next_region
    handles = heap.space.table.count
    next_id = heap.space.next_id
    held = heap.held.count
    frees = heap.timing_count
    native.spin_unlock(heap.lock)
    return Internals(next_region, handles, next_id, held, frees)
