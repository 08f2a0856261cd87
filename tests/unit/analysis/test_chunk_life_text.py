"""The life of a chunk in sentences: numbers, names and verdicts."""

import pytest
from heaps import Scripted, new_heap
from unit.analysis.facts import has_facts
from unit.analysis.test_search import trace_of_heap
from unit.figures.synthetic import BASE, KiB, MiB, PlainHeap

from bfcviz.analysis.chunk_life import life_of, life_words
from bfcviz.events.schema import Kind
from bfcviz.figures.view_options import Selected
from bfcviz.model import Model


def at(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


def words(trace, step, address, born=None):
    return life_words(life_of(at(trace, step), Selected(address, born)))


@pytest.fixture
def heap():
    """Three chunks of 1 KiB, the middle one freed, then the first, then the last."""
    heap = PlainHeap(MiB)
    first, second, third = (heap.allocate(1000, f"op{number}") for number in range(3))
    for address in (second, first, third):
        heap.free(address)
    return heap


def test_a_chunk_in_use(heap):
    place, allocated, source, used, freed = words(heap.trace(), 5, BASE, 2)
    assert has_facts(place, f"{BASE:#x}", "1.0 KiB", "region 0", "bin 2")
    assert has_facts(allocated, "op0 allocated 1000 B", "step 3", "thread 0", "id 2", "24 B wasted")
    assert has_facts(source, "free chunk of 1.0 MiB", "grew by 1.0 MiB")
    assert has_facts(used, "2 steps", "2.0 µs")
    assert has_facts(freed, "step 9", "6 steps", "6.0 µs", "merged", "after it", "1.0 KiB", "bin 3")


def test_an_allocation_before_and_after_it_is_in_use(heap):
    trace = heap.trace()
    assert "Not allocated yet" in words(trace, 1, BASE, 2)[3]
    assert "Freed at step 9," in words(trace, len(trace), BASE, 2)[3]


def test_the_neighbours_that_a_freed_chunk_merged_with(heap):
    third = words(heap.trace(), 7, BASE + 2 * KiB, 6)[-1]
    assert has_facts(third, "step 11", "4 steps", "4.0 µs", "after it", "1021.0 KiB", "before it", "bin 12")
    assert "did not merge" in words(heap.trace(), 7, BASE + KiB, 4)[-1]


def test_why_a_chunk_is_free_and_what_changes_it_next(heap):
    trace = heap.trace()
    _, why, following = words(trace, 2, BASE + KiB)
    assert has_facts(why, "since step 2", "split")
    assert has_facts(following, "Split at step 4", "op1")
    _, why, following = words(trace, 8, BASE + KiB)
    assert has_facts(why, "since step 8", "op1 freed it")
    assert has_facts(following, "step 10", "before it")
    place, why, following = words(trace, 1, BASE)
    assert has_facts(place, f"{BASE:#x}", "1.0 MiB", "region 0", "bin 12")
    assert has_facts(why, "since step 1", "sub-allocator")
    assert has_facts(following, "Split at step 2", "op0")
    _, why, following = words(trace, len(trace), BASE)
    assert has_facts(why, f"since step {len(trace)}", "merged", "after it", "1022.0 KiB")
    assert has_facts(following, "Not", "end of the trace")


def test_a_free_chunk_that_is_allocated_whole_or_merges():
    heap = PlainHeap(MiB)
    first, second = heap.allocate(1024, "a"), heap.allocate(1024, "b")
    heap.free(first)
    free = len(heap.events)
    again = heap.allocate(1024, "c")
    heap.free(again)
    heap.free(second)
    trace = heap.trace()
    assert has_facts(words(trace, free, BASE)[2], "Allocated whole", "c", f"step {free + 1}")
    assert has_facts(words(trace, free + 2, BASE)[2], f"step {len(trace)}", "after it", "1023.0 KiB")
    _, allocated, source, *_ = words(trace, free + 1, BASE, free)
    assert has_facts(allocated, "c allocated 1.0 KiB", f"step {free + 1}", "thread 0", f"id {free}")
    assert "wasted" not in allocated
    assert "whole free chunk" in source


def test_padding_deferred_merges_and_released_regions_of_a_real_heap():
    heap = new_heap(8 * MiB, timestamps=True, allow_growth=True, garbage_collection=True)
    heap.allocate(256)
    aligned = heap.allocate(256, alignment=4096)
    heap.free(aligned)
    trace = trace_of_heap(heap)
    (born,) = [
        int(e["seq"])
        for e in trace.read(0, len(trace))
        if e["kind"] == Kind.ALLOCATE and e["address"] == aligned
    ]
    life = words(trace, born + 1, aligned, born)
    assert "alignment padding" in life[2]
    assert has_facts(life[-1], "cannot merge", "timestamp")
    assert "alignment padding" in words(trace, len(trace), aligned - 4096 + 256)[1]

    heap = new_heap(8 * MiB, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(2 * MiB))
    region = heap.regions()["address"][0]
    heap.allocate(7 * MiB)
    trace = trace_of_heap(heap)
    assert has_facts(words(trace, 3, int(region))[2], "Released to the sub-allocator", "step")


def test_a_region_that_grew_for_an_allocation():
    place = iter([BASE, BASE + 2 * MiB])
    source = Scripted(lambda _, num_bytes: (next(place), num_bytes), supports_coalescing=True)
    heap = new_heap(16 * MiB, source, allow_growth=True)
    heap.allocate(1000 * KiB)
    address = heap.allocate(2300 * KiB)
    trace = trace_of_heap(heap)
    source = words(trace, len(trace), address, len(trace) - 1)[2]
    assert has_facts(source, "free chunk of 5.0 MiB", "grew by 4.0 MiB")
