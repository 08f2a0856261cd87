"""HostSubAllocator: its capacity, and the memory that it leaves available on the machine."""

import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.errors import InvalidRequest


@pytest.mark.parametrize("capacity", [-1, 1 << 64])
def test_host_memory_that_cannot_be(capacity):
    with pytest.raises(InvalidRequest):
        HostSubAllocator(capacity)


def test_regions_go_back_where_the_machine_is_short_of_memory():
    source = HostSubAllocator()
    with new_heap(1 << 40, source, allow_growth=True, garbage_collection=True) as heap:
        heap.free(heap.allocate(MIB))
        held = heap.allocate(3 * MIB)
        assert source.used == 6 * MIB
        source.keep_available = 1 << 61  # more than any machine has
        assert heap.try_allocate(64 * MIB) is None
        assert source.used == heap.stats().pool_bytes == 4 * MIB
        heap.free(held)
        assert heap.allocate(MIB)  # in the remaining region
        heap.check_invariants()


@pytest.mark.parametrize("keep", [-1, 1 << 62])
def test_what_must_stay_available_is_a_number_of_bytes(keep):
    with pytest.raises(InvalidRequest, match=str(keep)):
        HostSubAllocator(keep_available=keep)
