import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from naive_heap import NaiveHeap
from unit.figures.synthetic import MiB, PlainHeap, trace_of

from bfcviz.events.schema import EVENT
from bfcviz.model.address_layout import NEVER, Layout


@given(seeded_operations())
def test_every_chunk_that_ever_was_keeps_its_place(steps):
    heap = run(steps)
    layout = Layout.of(heap.trace(), 1)
    for state in heap.states:
        for address, size, *_ in state[1]["chunks"]:
            low, high = layout.position(np.array([address, address + size - 1], np.uint64))
            assert 0 <= low <= high < layout.total
            assert high - low == size - 1
            assert layout.address(low) == address
            assert layout.address(high) == address + size - 1


def test_gaps_between_regions_are_closed_and_edges_mark_them():
    heap = PlainHeap(MiB, regions=3, gap=5 * MiB)
    for _ in range(3):
        heap.allocate(MiB)
    layout = Layout.of(heap.trace())
    assert layout.total == 3 * MiB
    assert layout.edges.tolist() == [0, MiB, 2 * MiB, 3 * MiB]
    assert layout.address(MiB) == heap.room[1][0]
    assert layout.address(-1) is layout.address(3 * MiB) is None


def test_old_addresses_that_are_granted_again_are_laid_out_once():
    heap = NaiveHeap()
    heap.extend(0, 1 << 20, 4096, 0)
    heap.release(0, 0)
    heap.extend(0, (1 << 20) + 2048, 4096, 0)
    layout = Layout.of(heap.trace())
    assert layout.total == 6144
    assert layout.edges.tolist() == [0, 2048, 6144]
    assert layout.grants["died"].tolist() == [1, int(NEVER)]


def test_a_region_that_grew_is_one():
    heap = NaiveHeap()
    heap.extend(0, 1 << 20, 4096, 0)
    heap.grow(0, 0, 4096)
    layout = Layout.of(heap.trace())
    assert layout.edges.tolist() == [0, 8192]
    assert layout.grants["grew"].tolist() == [False, True]


def test_nothing_is_laid_out_where_there_is_nothing():
    layout = Layout.of(trace_of(np.zeros(0, EVENT)))
    assert layout.total == 0
    assert layout.address(0) is None
    assert layout.edges.tolist() == [pytest.approx(0)]
