"""Freed chunks that wait for a frontier: who may get them, and when they merge."""

import pytest
from heaps import KIB, new_heap

from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.errors import InvalidRequest


@pytest.mark.parametrize("count", [-1, 1 << 64])
def test_frontiers_hold_64_bits(count):
    with pytest.raises(InvalidRequest):
        new_heap(timestamps=True).set_safe_frontier(count)


def test_the_frontier_is_asked_anew_for_each_request():
    counts = iter([3, 8])
    attributes = AllocationAttributes(freed_by=lambda: next(counts))
    assert [attributes.freed_before(), attributes.freed_before()] == [3, 8]


def test_a_request_gets_only_what_was_freed_by_its_frontier():
    heap = new_heap(2 * KIB, timestamps=True)
    first, second = heap.allocate(KIB), heap.allocate(KIB)
    heap.free(first)  # count 1
    heap.free(second)  # count 2
    asks = []
    attributes = AllocationAttributes(freed_by=lambda: asks.append(None) or 1)
    assert heap.allocate(KIB, attributes=attributes) == first
    assert heap.try_allocate(KIB, attributes=attributes) is None  # the second was freed later
    assert len(asks) == 2
    assert heap.allocate(KIB) == second
