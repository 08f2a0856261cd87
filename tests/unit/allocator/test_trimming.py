"""`trim`: wholly free regions are released on demand."""

import pytest
from heaps import MIB, Scripted, assert_model_agrees, new_heap

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator


def test_wholly_free_regions_go_back_and_others_stay():
    source = SimulatedSubAllocator("gapped")
    heap = new_heap(64 * MIB, source, allow_growth=True)
    held = [heap.allocate(size * MIB) for size in (1, 3, 7)]
    pool = heap.stats().pool_bytes
    heap.free(held[1])
    assert heap.trim() == 4 * MIB
    assert heap.trim() == 0
    assert heap.stats().pool_bytes == source.used == pool - 4 * MIB
    heap.check_invariants()
    assert_model_agrees(heap)


def test_a_closed_heap_has_nothing_to_trim():
    heap = new_heap(64 * MIB, allow_growth=True)
    heap.free(heap.allocate(MIB))
    heap.close()
    assert heap.trim() == 0


def test_what_the_sub_allocator_raises_is_raised():
    def refuse(_address, _size):
        raise OSError("not now")

    heap = new_heap(64 * MIB, Scripted(lambda _alignment, size: (1 << 40, size), refuse), allow_growth=True)
    heap.free(heap.allocate(MIB))
    with pytest.raises(OSError, match="not now"):
        heap.trim()


def test_a_sub_allocator_cannot_trim_the_heap_that_calls_it():
    trimmed = []

    def grant(_alignment, size):
        trimmed.append(heap.trim())
        return 1 << 40, size

    heap = new_heap(64 * MIB, Scripted(grant), allow_growth=True)
    assert heap.allocate(MIB)
    assert trimmed == [0]


def test_a_heap_that_is_empty_after_a_trim_grows_from_its_first_size_again():
    heap = new_heap(64 * MIB, allow_growth=True)
    first = heap.internals().next_region_bytes
    for _ in range(4):
        heap.free(heap.allocate(8 * MIB))
        assert heap.internals().next_region_bytes > first
        heap.trim()
        assert heap.internals().next_region_bytes == first


def test_a_trim_that_leaves_a_region_does_not_reset_the_growth():
    heap = new_heap(64 * MIB, SimulatedSubAllocator("gapped"), allow_growth=True)
    kept = heap.allocate(MIB)
    heap.free(heap.allocate(8 * MIB))
    grown = heap.internals().next_region_bytes
    assert heap.trim() == 8 * MIB
    assert heap.internals().next_region_bytes == grown
    heap.free(kept)
