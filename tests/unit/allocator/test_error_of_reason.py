"""Frees: valid ones, and the errors of invalid ones."""

import numpy as np
import pytest
from heaps import BASE, KIB, MIB, assert_model_agrees, new_heap, snapshot

from bfcviz.errors import DoubleFree, ForeignPointer, InteriorPointer, InvalidFree


def test_neighbours_merge():
    heap = new_heap()
    a, b, c, d = (heap.allocate(KIB) for _ in range(4))
    for address, chunks in ((a, 5), (c, 5), (b, 3), (d, 1)):
        heap.free(address)
        heap.check_invariants()
        assert len(heap.memory_map()) == chunks
    assert heap.stats().bytes_in_use == heap.stats().requested_bytes_in_use == 0
    assert_model_agrees(heap)


def wrong_frees(heap):
    """Addresses that cannot be freed, and the error of each."""
    kept, freed = heap.allocate(4 * KIB), heap.allocate(KIB)
    heap.allocate(KIB)
    heap.free(freed)
    region = int(heap.regions()["address"][0])
    end = region + int(heap.regions()["size"][0])
    return [
        (freed, DoubleFree),
        (freed + 256, DoubleFree),
        (end - 256, DoubleFree),  # never allocated
        (kept + 1, InteriorPointer),
        (kept + 255, InteriorPointer),
        (kept + 256, InteriorPointer),
        (region - 1, ForeignPointer),
        (end, ForeignPointer),
        (1, ForeignPointer),
        ((1 << 64) - 1, ForeignPointer),
        (1 << 64, ForeignPointer),
        (-1, ForeignPointer),
        (np.uint64(kept + 8), InteriorPointer),
    ]


@pytest.mark.parametrize("options", [{}, {"timestamps": True}, {"allow_growth": True}])
def test_a_wrong_free_says_what_it_is_and_changes_nothing(options):
    heap = new_heap(64 * KIB, **options)
    for address, kind in wrong_frees(heap):
        before = snapshot(heap)
        with pytest.raises(kind) as caught:
            heap.free(address)
        assert type(caught.value) is kind
        assert isinstance(caught.value, InvalidFree)
        assert isinstance(caught.value, ValueError)
        assert caught.value.address == address
        assert f"{address:#x}" in str(caught.value)
        assert snapshot(heap) == before
        for ask in (heap.requested_size, heap.allocated_size, heap.allocation_id):
            with pytest.raises(kind):
                ask(address)
    heap.check_invariants()


def test_another_heaps_memory_is_foreign():
    heap, other = new_heap(), new_heap(MIB)
    heap.allocate(1)
    other.allocate(MIB // 2)
    address = other.allocate(MIB // 4)
    with pytest.raises(InvalidFree):
        heap.free(address)


def test_freeing_twice_is_a_double_free_until_it_is_handed_out_again():
    heap = new_heap()
    address = heap.allocate(100)
    heap.free(address)
    with pytest.raises(DoubleFree):
        heap.free(address)
    assert heap.allocate(100) == address
    heap.free(address)


def test_numpy_addresses_are_addresses():
    heap = new_heap()
    address = heap.allocate(100)
    assert heap.requested_size(np.uint64(address)) == 100
    heap.free(np.int64(address))
    assert heap.stats().bytes_in_use == 0


def test_numbers_count_successes_from_1():
    heap = new_heap(KIB)
    a = heap.allocate(512)
    assert heap.try_allocate(KIB) is None
    b = heap.allocate(512)
    assert [heap.allocation_id(a), heap.allocation_id(b)] == [1, 2]
    heap.free(a)
    heap.clear_stats()
    assert heap.allocation_id(heap.allocate(1)) == 3
    assert heap.stats().num_allocs == 1
    assert heap.tracks_allocation_sizes() is True
    assert a == BASE
