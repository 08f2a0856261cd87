"""Looking into a heap: its chunks, regions, bins and totals as plain Python rows. Each look locks the heap once."""

from typing import Any

from bfcviz import native
from bfcviz.allocator import memory
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.stats import Internals, Stats


def chunk_rows(heap: Heap) -> list[tuple[Any, ...]]:
    """Every chunk, region by region, in address order: the fields of `memory_map.MEMORY_MAP`."""
    rows = []
    native.spin_lock(heap.lock)
    for i in range(heap.space.regions.count):
        h = heap.space.regions.regions[i].first
        while h != native.NONE:
            c = memory.chunk_at(heap.space.table.chunks, h)
            in_use = c.allocation_id != 0
            rows.append(
                (
                    c.address, c.size, c.requested, -1 if in_use else native.bin_of(c.size), in_use, h,
                    c.allocation_id, c.freed_at, c.prev, c.next, c.region, c.label, c.thread, c.stream, c.born,
                    c.binned,
                )
            )  # fmt: skip
            h = c.next
    native.spin_unlock(heap.lock)
    return rows


def region_rows(heap: Heap) -> list[tuple[int, int, int]]:
    """Every region: address, size, slot."""
    rows = []
    native.spin_lock(heap.lock)
    for i in range(heap.space.regions.count):
        r = memory.region_at(heap.space.regions.regions, i)
        rows.append((r.address, r.size, r.slot))
    native.spin_unlock(heap.lock)
    return rows


def binned_rows(heap: Heap) -> list[tuple[int, int, int]]:
    """Every chunk in the bins, as a search meets them: size, address, handle."""
    rows = []
    native.spin_lock(heap.lock)
    h = heap.space.bins.at_least(0, 0)
    while h != native.NONE:
        k = memory.key_at(heap.space.bins.keys, h)
        rows.append((k.size, k.address, h))
        h = heap.space.bins.at_least(k.size, k.address + 1)
    native.spin_unlock(heap.lock)
    return rows


def handle_of(heap: Heap, address: int) -> int | None:
    """Handle of the chunk in use that begins at an address."""
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    native.spin_unlock(heap.lock)
    return None if h == native.NONE else h


def chunk_facts(heap: Heap, address: int) -> tuple[int, int, int, int]:
    """Of the chunk in use at an address: 0, requested, size, allocation id; or why there is none, 0, 0, 0."""
    native.spin_lock(heap.lock)
    h = heap.space.table.find(address)
    if h == native.NONE:
        facts = (heap.diagnose(address), 0, 0, 0)
    else:
        c = memory.chunk_at(heap.space.table.chunks, h)
        facts = (0, c.requested, c.size, c.allocation_id)
    native.spin_unlock(heap.lock)
    return facts


def read_totals(heap: Heap) -> Stats:
    """The heap's totals, all of one moment."""
    native.spin_lock(heap.lock)
    s = heap.space
    numbers = (
        s.num_allocs, s.bytes_in_use, s.requested_in_use, s.peak_in_use, s.largest_alloc, heap.limit, s.pool_bytes,
        s.peak_pool, s.pool_bytes - s.bytes_in_use, s.largest_free(), s.regions.count, s.chunks_in_use,
    )  # fmt: skip
    native.spin_unlock(heap.lock)
    return Stats(*numbers)


def read_internals(heap: Heap) -> Internals:
    """The algorithm's own numbers, all of one moment."""
    native.spin_lock(heap.lock)
    numbers = (
        heap.next_region, heap.space.table.count, heap.space.next_id, heap.held.count, heap.timing_count,
    )  # fmt: skip
    native.spin_unlock(heap.lock)
    return Internals(*numbers)
