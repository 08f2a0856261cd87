"""Read a heap's chunks, regions, bins and totals, and check them. Each query locks the heap once.

A query creates no Python object while it holds the lock. A new object may start a garbage collection, whose finalizers
may free memory of the same heap, and would wait for the lock for ever.
"""

from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator import heap_memory
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.interface import Internals, Stats
from bfcviz.errors import BrokenInvariant

# ------------------------------------------------------------------------------
# Tables of chunks and regions, and a moment of the whole heap.


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


# ------------------------------------------------------------------------------
# Queries: a lock, then numbers copied into arrays.


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
            c = heap_memory.chunk_at(heap.space.table.chunks, h)
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


def read_regions(heap: Heap) -> NDArray[np.void]:
    """Every region, of REGION, in address order."""
    rows = np.empty((0, REGION_COLUMNS), np.uint64)
    count = fill_regions(heap, rows)
    while count > len(rows):
        rows = np.empty((count, REGION_COLUMNS), np.uint64)
        count = fill_regions(heap, rows)  # there may be more by now
    return table_of(rows[:count], REGION)


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
            r = heap_memory.region_at(heap.space.regions.regions, i)
            rows[i, 0] = r.address
            rows[i, 1] = r.size
            rows[i, 2] = r.slot
    return n


def read_moment(heap: Heap) -> Moment:
    """Read the memory map of the whole heap between two events."""
    numbers = np.zeros(MOMENT_NUMBERS, np.uint64)
    while True:  # there may be more chunks since they were counted
        chunks = np.empty((int(numbers[5]), CHUNK_COLUMNS), np.uint64)
        regions = np.empty((int(numbers[6]), REGION_COLUMNS), np.uint64)
        fill_moment(heap, chunks, regions, numbers)
        if numbers[5] <= len(chunks) and numbers[6] <= len(regions):
            return Moment(
                int(numbers[0]),
                chunks_of(chunks[: int(numbers[5])]),
                table_of(regions[: int(numbers[6])], REGION),
                *numbers[1:5].tolist(),
            )


def fill_moment(heap: Heap, chunks: Any, regions: Any, numbers: Any) -> None:
    """Copy chunks, regions and numbers under one lock.

    The numbers: events written; successful requests ever; peak of bytes in use, largest allocation, peak of pool bytes;
    how many chunks and regions there are.
    """
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
        Chunks and regions, a row of numbers each; size, address and handle of every chunk in the bins,
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
            c = heap_memory.chunk_at(heap.space.table.chunks, h)
            found[n] = heap.space.table.find(c.address)
            n += 1
            h = c.next


def copy_bins(heap: Heap, rows: Any) -> int:
    """As `copy_chunks`. A bug may make the walk endless, so it stops after one chunk more than there can be."""
    n = 0
    room = len(rows)
    h = heap.space.bins.at_least(0, 0)
    while h != native.NONE and n <= heap.space.table.count:
        k = heap_memory.key_at(heap.space.bins.keys, h)
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
        c = heap_memory.chunk_at(heap.space.table.chunks, h)
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
        requested = heap_memory.chunk_at(heap.space.table.chunks, h).requested
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


# ------------------------------------------------------------------------------
# What the tables tell: TensorFlow's memory map of 100 characters, and whether they agree.


STRIP = 100


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


def check(heap: Heap, *, held: bool) -> None:
    """Compare chunks, regions, bins, address table and totals.

    Args:
        heap: the heap.
        held: freed chunks may wait for their time stamp, so that neighbours may both be free.

    Raises:
        BrokenInvariant: names the first inconsistency.
    """
    chunk_rows, region_rows, binned, found_handles, totals = read_tables(heap)
    chunks, regions = chunks_of(chunk_rows), table_of(region_rows, REGION)
    _check_region_invariant(regions)
    for region in regions:
        _check_tiling_invariant(region, chunks[chunks["region"] == region["slot"]])
    _require(np.isin(chunks["region"], regions["slot"]).all(), "a chunk names a region that does not exist")
    _check_neighbour_invariant(chunks, held=held)
    _check_bin_invariant([tuple(row) for row in binned.tolist()], chunks)
    _check_totals_invariant(stats_of(heap, totals), chunks, regions)
    for chunk, found in zip(chunks, found_handles.tolist(), strict=True):
        expected = int(chunk["handle"]) if chunk["in_use"] else native.NONE
        _require(found == expected, f"looking up {int(chunk['address']):#x} gives {found}, not {expected}")


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise BrokenInvariant(otherwise)


def _check_region_invariant(regions: Any) -> None:
    ends = regions["address"] + regions["size"]
    _require((ends[:-1] <= regions["address"][1:]).all(), "two regions overlap, or are out of order")
    _require(len(np.unique(regions["slot"])) == len(regions), "two regions share a slot")


def _check_tiling_invariant(region: Any, chunks: Any) -> None:
    """Chunks cover the region without gaps and are linked both ways in address order."""
    where = f"region {int(region['slot'])} at {int(region['address']):#x}"
    _require(len(chunks), f"{where} has no chunk")
    _require(chunks["address"][0] == region["address"], f"{where} does not begin with a chunk")
    ends = chunks["address"] + chunks["size"]
    _require((ends[:-1] == chunks["address"][1:]).all(), f"{where}: chunks overlap or leave a gap")
    _require(ends[-1] == region["address"] + region["size"], f"{where} does not end with a chunk")
    _require((chunks["size"] > 0).all(), f"{where} has an empty chunk")
    _require((chunks["next"] == [*chunks["handle"][1:], native.NONE]).all(), f"{where}: a `next` is wrong")
    _require((chunks["prev"] == [native.NONE, *chunks["handle"][:-1]]).all(), f"{where}: a `prev` is wrong")


def _check_neighbour_invariant(chunks: Any, *, held: bool) -> None:
    """No two free neighbours, unless one is held; a chunk is in use exactly when it has an allocation id."""
    _require(((chunks["allocation_id"] != 0) == chunks["in_use"]).all(), "an id does not match its state")
    mergeable = ~chunks["in_use"] & (chunks["freed_at_count"] == 0)
    _require((chunks["in_use"] | mergeable).all() or held, "a chunk is held without timestamps")
    _require(
        (chunks["requested_size"] <= chunks["size"])[chunks["in_use"]].all(),
        "a chunk is too small for its request",
    )
    joined = chunks["region"][:-1] == chunks["region"][1:]
    unmerged = mergeable[:-1] & mergeable[1:] & joined
    _require(held or not unmerged.any(), "two free neighbours were not merged")


def _check_bin_invariant(rows: list[tuple[int, ...]], chunks: Any) -> None:
    """The bins hold exactly the free chunks, in order of size and address."""
    _require(rows == sorted(rows), "the bins are out of order")
    free = chunks[~chunks["in_use"]]
    columns = (free[name].tolist() for name in ("size", "address", "handle"))
    expected = sorted(zip(*columns, strict=True))
    _require(rows == expected, f"the bins hold {len(rows)} chunks, {len(free)} are free, or they differ")
    _require((chunks["binned"] == ~chunks["in_use"]).all(), "a chunk's `binned` is wrong")


def _check_totals_invariant(stats: Stats, chunks: Any, regions: Any) -> None:
    used = chunks[chunks["in_use"]]
    free = chunks[~chunks["in_use"]]
    expected = {
        "bytes_in_use": int(used["size"].sum()),
        "requested_bytes_in_use": int(used["requested_size"].sum()),
        "pool_bytes": int(regions["size"].sum()),
        "free_bytes": int(free["size"].sum()),
        "largest_free_chunk": int(free["size"].max(initial=0)),
        "regions": len(regions),
        "chunks_in_use": len(used),
    }
    for name, value in expected.items():
        _require(getattr(stats, name) == value, f"{name} is {getattr(stats, name)}, the chunks say {value}")
    _require(stats.bytes_in_use <= stats.peak_bytes_in_use, "the peak is less than the bytes in use")
    _require(len(np.unique(used["allocation_id"])) == len(used), "two chunks share an allocation id")
    _require(len(np.unique(chunks["handle"])) == len(chunks), "two chunks share a handle")
