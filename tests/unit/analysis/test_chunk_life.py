"""The life of a chunk, found from events."""

import pytest
from heaps import Scripted, new_heap
from unit.analysis.built import has_facts
from unit.analysis.test_free_chunk_search import trace_of_heap
from unit.figures.synthetic import BASE, KiB, MiB, PlainHeap, busy_trace

from bfcviz.analysis.chunk_life import (
    beginning_words,
    end_words,
    life_of,
    merge_words,
    next_words,
    source_words,
    span_words,
)
from bfcviz.events.schema import Kind
from bfcviz.model import Model


def at(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


@pytest.fixture
def heap():
    """Three chunks of 1 KiB, the middle one freed, then the first, then the last."""
    heap = PlainHeap(MiB)
    first, second, third = (heap.allocate(1000, f"op{number}") for number in range(3))
    for address in (second, first, third):
        heap.free(address)
    return heap


def test_an_allocation_is_known_before_and_after_it_is_in_use(heap):
    trace = heap.trace()
    before, during, after = (life_of(at(trace, step), BASE, 2) for step in (1, 5, len(trace)))
    assert [life.in_use for life in (before, during, after)] == [False, True, False]
    assert [int(life.began["seq"]) for life in (before, during, after)] == [2, 2, 2]
    assert [int(life.ended["seq"]) for life in (before, during, after)] == [8, 8, 8]
    assert len(after.splits) == len(after.extends) == len(after.merges) == 1


def test_a_chunk_that_does_not_exist_has_no_life(heap):
    model = at(heap.trace(), 5)
    for address, born in (
        (BASE, None),  # in use, not free
        (BASE + 256, None),  # inside a chunk
        (BASE + 100 * MiB, None),
        (BASE, 1),  # no ALLOCATE
        (BASE + 1, 2),  # of another chunk
        (BASE, 1 << 60),
    ):
        assert life_of(model, address, born) is None
    assert model.step == 5


def test_the_search_forward_and_back_is_bounded(monkeypatch, heap):
    monkeypatch.setattr("bfcviz.analysis.chunk_life._LOOK", 2)
    trace = heap.trace()
    used = life_of(at(trace, 4), BASE, 2)
    assert (used.ended, used.looked_to) == (None, 6)
    assert "6" in end_words(used, "freed")
    free = life_of(at(trace, 11), BASE, None)
    assert (int(free.began["seq"]), int(free.began["size"])) == (9, KiB)
    monkeypatch.setattr("bfcviz.analysis.chunk_life._LOOK", 1)
    free = life_of(at(trace, 11), BASE, None)
    assert free.began is None


def test_every_chunk_of_a_busy_heap_has_a_life_that_agrees_with_the_events():
    trace = busy_trace()
    events = trace.read(0, len(trace))
    for step in range(1, len(trace), 37):
        model = at(trace, step)
        for chunk in model.chunks():
            born = int(chunk["born"]) if chunk["in_use"] else None
            life = life_of(model, int(chunk["address"]), born)
            assert (life.size, life.handle, life.in_use) == (chunk["size"], chunk["handle"], chunk["in_use"])
            if born is not None:
                frees = events[(events["kind"] == Kind.FREE) & (events["other"] == born)]
                assert [life.ended["seq"]] == frees["seq"].tolist() if len(frees) else life.ended is None


# ------------------------------------------------------------------------------
# The life of a chunk in sentences: numbers, names and verdicts.


def life(trace, step, address, born=None):
    model = Model(trace)
    model.seek(step)
    return life_of(model, address, born)


def why_free(found):
    return beginning_words(found, found.began)


def test_a_chunk_in_use(heap):
    found = life(heap.trace(), 5, BASE, 2)
    assert has_facts(source_words(found), "free chunk of 1.0 MiB", "grew by 1.0 MiB")
    assert has_facts(span_words(found, found.began, None), "2 steps", "2.0 µs")
    assert has_facts(span_words(found, found.began, found.ended), "6 steps", "6.0 µs")
    assert has_facts(merge_words(found, found.ended), "merged", "after it", "1.0 KiB", "bin 3")


def test_the_neighbours_that_a_freed_chunk_merged_with(heap):
    third, second = life(heap.trace(), 7, BASE + 2 * KiB, 6), life(heap.trace(), 7, BASE + KiB, 4)
    assert has_facts(merge_words(third, third.ended), "after it", "1021.0 KiB", "before it", "bin 12")
    assert "did not merge" in merge_words(second, second.ended)


def test_why_a_chunk_is_free_and_what_changes_it_next(heap):
    trace = heap.trace()
    found = life(trace, 2, BASE + KiB)
    assert "split" in why_free(found)
    assert has_facts(next_words(found), "Split at step 4", "op1")
    found = life(trace, 8, BASE + KiB)
    assert "op1 freed it" in why_free(found)
    assert has_facts(next_words(found), "step 10", "before it")
    found = life(trace, 1, BASE)
    assert "sub-allocator" in why_free(found)
    assert has_facts(next_words(found), "Split at step 2", "op0")
    found = life(trace, len(trace), BASE)
    assert has_facts(why_free(found), "merged", "after it", "1022.0 KiB")
    assert has_facts(next_words(found), "Not", "end of the trace")


def test_a_free_chunk_that_is_allocated_whole_or_merges():
    heap = PlainHeap(MiB)
    first, second = heap.allocate(1024, "a"), heap.allocate(1024, "b")
    heap.free(first)
    free = len(heap.events)
    again = heap.allocate(1024, "c")
    heap.free(again)
    heap.free(second)
    trace = heap.trace()
    assert has_facts(next_words(life(trace, free, BASE)), "Allocated whole", "c", f"step {free + 1}")
    merged = next_words(life(trace, free + 2, BASE))
    assert has_facts(merged, f"step {len(trace)}", "after it", "1023.0 KiB")
    assert "whole free chunk" in source_words(life(trace, free + 1, BASE, free))


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
    found = life(trace, born + 1, aligned, born)
    assert "alignment padding" in source_words(found)
    assert has_facts(merge_words(found, found.ended), "cannot merge", "timestamp")
    assert "alignment padding" in why_free(life(trace, len(trace), aligned - 4096 + 256))

    heap = new_heap(8 * MiB, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(2 * MiB))
    region = heap.regions()["address"][0]
    heap.allocate(7 * MiB)
    trace = trace_of_heap(heap)
    assert has_facts(next_words(life(trace, 3, int(region))), "Released to the sub-allocator", "step")


def test_a_region_that_grew_for_an_allocation():
    place = iter([BASE, BASE + 2 * MiB])
    source = Scripted(lambda _, num_bytes: (next(place), num_bytes), supports_coalescing=True)
    heap = new_heap(16 * MiB, source, allow_growth=True)
    heap.allocate(1000 * KiB)
    address = heap.allocate(2300 * KiB)
    trace = trace_of_heap(heap)
    found = source_words(life(trace, len(trace), address, len(trace) - 1))
    assert has_facts(found, "free chunk of 5.0 MiB", "grew by 4.0 MiB")
