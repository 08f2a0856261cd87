"""Read a heap's chunks, regions, bins and totals. Each query locks the heap once.

A query creates no Python object while it holds the lock. A new object may start a garbage collection, whose finalizers
may free memory of the same heap, and would wait for the lock for ever.
"""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator import structs
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.interface import Internals, Stats

CHUNK_COLUMNS = 16
REGION_COLUMNS = 3
BIN_COLUMNS = 3
MOMENT_NUMBERS = 7
TABLE_COUNTS = 3
TOTALS = 10


def copy_chunks(heap: Heap, rows: Any) -> int:
    """Copy as many chunks as there are rows, region by region, in address order; returns the number of all chunks.

    The caller holds the heap's lock, as of all functions named `copy_`.
    """
    n = 0
    room = len(rows)
    for i in range(heap.space.regions.count):
        h = heap.space.regions.regions[i].first
        while h != native.NONE:
            c = structs.chunk_at(heap.space.table.chunks, h)
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


def read_regions(heap: Heap) -> NDArray[np.uint64]:
    """Every region: address, size, slot."""
    rows = np.empty((0, REGION_COLUMNS), np.uint64)
    count = fill_regions(heap, rows)
    while count > len(rows):
        rows = np.empty((count, REGION_COLUMNS), np.uint64)
        count = fill_regions(heap, rows)  # there may be more by now
    return rows[:count]


def fill_regions(heap: Heap, rows: Any) -> int:
    """Copy as many regions as there are rows; returns the number of all regions. Locks the heap."""
    native.spin_lock(heap.lock)
    n = copy_regions(heap, rows)
    native.spin_unlock(heap.lock)
    return n


def copy_regions(heap: Heap, rows: Any) -> int:
    """As `copy_chunks`: address, size and slot of each region."""
    room = len(rows)
    n = heap.space.regions.count
    for i in range(n):
        if i < room:
            r = structs.region_at(heap.space.regions.regions, i)
            rows[i, 0] = r.address
            rows[i, 1] = r.size
            rows[i, 2] = r.slot
    return n


def read_moment(heap: Heap) -> tuple[NDArray[np.uint64], NDArray[np.uint64], list[int]]:
    """Query chunks, regions and numbers of the heap under one lock, so that all are after the same event.

    The numbers: events written; successful requests ever; peak of bytes in use, largest allocation, peak of pool bytes.
    """
    numbers = np.zeros(MOMENT_NUMBERS, np.uint64)
    while True:  # there may be more chunks since they were counted
        chunks = np.empty((int(numbers[5]), CHUNK_COLUMNS), np.uint64)
        regions = np.empty((int(numbers[6]), REGION_COLUMNS), np.uint64)
        fill_moment(heap, chunks, regions, numbers)
        if numbers[5] <= len(chunks) and numbers[6] <= len(regions):
            return chunks[: int(numbers[5])], regions[: int(numbers[6])], numbers[:5].tolist()


def fill_moment(heap: Heap, chunks: Any, regions: Any, numbers: Any) -> None:
    """Copy chunks, regions and numbers under one lock; the last two numbers count the chunks and regions there are."""
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


def read_tables(heap: Heap) -> tuple[Any, ...]:
    """All tables of one moment, so that they can be compared.

    Returns:
        Chunks and regions as in `read_moment`; size, address and handle of every chunk in the bins,
        in search order; for each row of chunks the handle that a lookup of its address finds, or NONE; totals, for
        `stats_of`.
    """
    counts = np.zeros(TABLE_COUNTS, np.uint64)
    totals = new_totals()
    while True:  # there may be more since they were counted
        rows, others, free = counts.tolist()
        chunks = np.empty((rows, CHUNK_COLUMNS), np.uint64)
        regions = np.empty((others, REGION_COLUMNS), np.uint64)
        binned = np.empty((free, BIN_COLUMNS), np.uint64)
        found = np.empty(rows, np.uint64)
        fill_tables(heap, chunks, regions, binned, found, totals, counts)
        now, others_now, free_now = counts.tolist()
        if now <= rows and others_now <= others and free_now <= free:
            return chunks[:now], regions[:others_now], binned[:free_now], found[:now], totals


def fill_tables(
    heap: Heap, chunks: Any, regions: Any, binned: Any, found: Any, totals: Any, counts: Any
) -> None:
    """Copy all tables under one lock; `counts` receives the numbers of chunks, regions and chunks in the bins."""
    native.spin_lock(heap.lock)
    counts[0] = copy_chunks(heap, chunks)
    counts[1] = copy_regions(heap, regions)
    counts[2] = copy_bins(heap, binned)
    copy_totals(heap, totals)
    copy_found(heap, found)
    native.spin_unlock(heap.lock)


def copy_found(heap: Heap, found: Any) -> None:
    """As `copy_chunks`: for each chunk the handle that a lookup of its address finds."""
    n = 0
    room = len(found)
    for i in range(heap.space.regions.count):
        h = heap.space.regions.regions[i].first
        while h != native.NONE and n < room:
            c = structs.chunk_at(heap.space.table.chunks, h)
            found[n] = heap.space.table.find(c.address)
            n += 1
            h = c.next


def copy_bins(heap: Heap, rows: Any) -> int:
    """As `copy_chunks`. A bug may make the walk endless, so it stops after one chunk more than there can be."""
    n = 0
    room = len(rows)
    h = heap.space.bins.at_least(0, 0)
    while h != native.NONE and n <= heap.space.table.count:
        k = structs.key_at(heap.space.bins.keys, h)
        if n < room:
            rows[n, 0] = k.size
            rows[n, 1] = k.address
            rows[n, 2] = h
        n += 1
        h = heap.space.bins.at_least(k.size, k.address + 1)
    return n


def chunk_facts(heap: Heap, address: int) -> tuple[int, int, int, int]:
    """The chunk in use at an address: 0, requested, size, allocation id. Without one: the reason, 0, 0, 0."""
    reason = requested = size = allocation_id = 0
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    if h == native.NONE:
        reason = heap.space.diagnose(address)
    else:
        c = structs.chunk_at(heap.space.table.chunks, h)
        requested = c.requested
        size = c.size
        allocation_id = c.allocation_id
    native.spin_unlock(heap.lock)
    return reason, requested, size, allocation_id


def requested_at(heap: Heap, address: int) -> int:
    """Bytes requested for the chunk in use at an address; 0 where none begins there."""
    requested = 0
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    if h != native.NONE:
        requested = structs.chunk_at(heap.space.table.chunks, h).requested
    native.spin_unlock(heap.lock)
    return requested


def read_totals(heap: Heap) -> Stats:
    """The current totals."""
    totals = new_totals()
    fill_totals(heap, totals)
    return stats_of(heap, totals)


def new_totals() -> Any:
    """An array for totals. Not a NumPy array: this heap may serve NumPy, and a query must not change it."""
    return array("Q", bytes(8 * TOTALS))


def fill_totals(heap: Heap, totals: Any) -> None:
    """Copy the numbers for `stats_of`. Locks the heap."""
    native.spin_lock(heap.lock)
    copy_totals(heap, totals)
    native.spin_unlock(heap.lock)


def copy_totals(heap: Heap, totals: Any) -> None:
    """Copy the numbers for `stats_of`."""
    s = heap.space
    totals[0] = s.num_allocs
    totals[1] = s.bytes_in_use
    totals[2] = s.requested_in_use
    totals[3] = s.peak_in_use
    totals[4] = s.largest_alloc
    totals[5] = s.pool_bytes
    totals[6] = s.peak_pool
    totals[7] = s.largest_free()
    totals[8] = s.regions.count
    totals[9] = s.chunks_in_use


def stats_of(heap: Heap, totals: Any) -> Stats:
    """The numbers of `fill_totals` by name."""
    allocs, in_use, requested, peak, largest_alloc, pool, peak_pool, largest_free, regions, used = (
        totals.tolist()
    )
    return Stats(
        allocs, in_use, requested, peak, largest_alloc, heap.limit, pool, peak_pool, pool - in_use, largest_free,
        regions, used,
    )  # fmt: skip


def read_internals(heap: Heap) -> Internals:
    """The current internal numbers of the algorithm."""
    native.spin_lock(heap.lock)
    next_region = heap.next_region
    handles = heap.space.table.count
    next_id = heap.space.next_id
    held = heap.held.count
    frees = heap.timing_count
    native.spin_unlock(heap.lock)
    return Internals(next_region, handles, next_id, held, frees)
