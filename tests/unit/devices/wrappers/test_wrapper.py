"""AllocatorWrapper: forwards every call to the allocator inside, at any depth."""

import pytest
from heaps import MIB, new_heap

from bfcviz.devices.wrappers import AllocatorWrapper, TrackingAllocator


def test_layers_are_told_from_the_outside_in():
    heap = new_heap()
    inner = TrackingAllocator(heap)
    outer = AllocatorWrapper(inner)
    assert outer.layers == (outer, inner, heap)
    assert outer.base is heap
    assert repr(outer).startswith("AllocatorWrapper(TrackingAllocator(<")


def test_the_heap_is_asked_for_everything():
    heap = new_heap(MIB, timestamps=True)
    outer = AllocatorWrapper(AllocatorWrapper(heap))
    assert outer.name == heap.name
    addresses = [outer.allocate(1000), outer.allocate_elements("f8", 3)]
    assert heap.stats() == outer.stats()
    for ask in ("requested_size", "allocated_size", "allocation_id"):
        assert [getattr(outer, ask)(a) for a in addresses] == [getattr(heap, ask)(a) for a in addresses]
    for address in addresses:
        outer.free(address)
    assert heap.internals().held_chunks == 2
    outer.set_safe_frontier(3)
    outer.allocate(1)  # merges what is safe
    assert heap.internals().held_chunks == 0
    outer.clear_stats()
    assert heap.stats().num_allocs == 0


def test_the_end_of_a_with_closes_the_heap():
    with AllocatorWrapper(new_heap()) as outer:
        outer.allocate(1)
    assert outer.base.stats().pool_bytes == 0


@pytest.mark.parametrize("inner", [None, 5, object(), TrackingAllocator])
def test_only_allocators_are_wrapped(inner):
    with pytest.raises(TypeError, match="not an allocator"):
        AllocatorWrapper(inner)
