"""The life of a chunk, found from events and told in words."""

import pytest
from figures.synthetic import BASE, KiB, MiB, PlainHeap, busy_trace
from heaps import Scripted, new_heap
from model.explain.test_search import trace_of_heap

from bfcviz.events.schema import Kind
from bfcviz.figures.style.view_options import Selected
from bfcviz.model import Model
from bfcviz.model.explain.chunk_life import life_of
from bfcviz.model.explain.text.chunk_life import life_words


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


def test_a_chunk_in_use_tells_who_has_it_and_what_becomes_of_it(heap):
    trace = heap.trace()
    assert life_words(life_of(at(trace, 5), Selected(BASE, 2))) == [
        f"{BASE:#x}, 1.0 KiB, region 0, by its size of bin 2.",
        "Handed at step 3 to op0 (thread 0, id 2), which asked for 1000 B and got 1.0 KiB.",
        "It was cut from a free chunk of 1.0 MiB; the pool grew by 1.0 MiB for it.",
        "In use for 2 steps (2.0 µs) so far.",
        "Freed at step 9, after 6 steps (6.0 µs); it merged with the free chunk after it (1.0 KiB), into bin 3.",
    ]


def test_an_allocation_is_known_before_and_after_it_is_in_use(heap):
    trace = heap.trace()
    before, after = (life_of(at(trace, step), Selected(BASE, 2)) for step in (1, len(trace)))
    assert not before.in_use
    assert not after.in_use
    assert life_words(before)[3] == "At this step it is not handed out yet."
    assert before.ended == after.ended
    assert life_words(after)[3].startswith("Freed at step 9, ")


def test_what_it_merged_with_when_freed(heap):
    trace = heap.trace()
    third = life_of(at(trace, 7), Selected(BASE + 2 * KiB, 6))
    assert life_words(third)[-1] == (
        "Freed at step 11, after 4 steps (4.0 µs); it merged with the free chunk after it (1021.0 KiB) and the free "
        "chunk before it, into bin 12."
    )
    second = life_of(at(trace, 7), Selected(BASE + KiB, 4))
    assert life_words(second)[-1].endswith("; no neighbour was free to merge with.")


def test_a_free_chunk_tells_why_it_is_free_and_what_comes_next(heap):
    trace = heap.trace()
    told = [life_words(life_of(at(trace, step), Selected(BASE + KiB)))[1:] for step in (2, 8)]
    assert told == [
        ["Free and unchanged since step 2: left over from a split.", "Split at step 4 for op1."],
        [
            "Free and unchanged since step 8: op1 gave it back.",
            "Merges at step 10 into the free chunk before it.",
        ],
    ]
    granted = life_of(at(trace, 1), Selected(BASE))
    assert life_words(granted) == [
        f"{BASE:#x}, 1.0 MiB, region 0, bin 12.",
        "Free and unchanged since step 1: the sub-allocator granted it.",
        "Split at step 2 for op0.",
    ]
    merged = life_of(at(trace, len(trace)), Selected(BASE))
    assert life_words(merged)[1:] == [
        f"Free and unchanged since step {len(trace)}: it grew by the free chunk after it (1022.0 KiB).",
        "Not used or changed by the end of the trace.",
    ]


def test_a_free_chunk_that_is_handed_out_whole_or_grows():
    heap = PlainHeap(MiB)
    first, second = heap.allocate(1024, "a"), heap.allocate(1024, "b")
    heap.free(first)
    free = len(heap.events)
    again = heap.allocate(1024, "c")
    heap.free(again)
    heap.free(second)
    trace = heap.trace()
    assert life_words(life_of(at(trace, free), Selected(BASE)))[2] == f"Handed whole to c at step {free + 1}."
    grows = life_words(life_of(at(trace, free + 2), Selected(BASE)))[2]
    assert grows == f"Merges at step {len(trace)} with the free chunk after it (1023.0 KiB)."
    whole = life_words(life_of(at(trace, free + 1), Selected(BASE, free)))
    assert whole[1:3] == [
        f"Handed at step {free + 1} to c (thread 0, id {free}), which asked for 1.0 KiB and got just that.",
        "It was a whole free chunk.",
    ]


def test_padding_held_chunks_and_released_regions_of_a_real_heap():
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
    words = life_words(life_of(at(trace, born + 1), Selected(aligned, born)))
    assert ", behind alignment padding" in words[2]
    assert words[-1].endswith("; held back from merging until its timestamp is safe.")
    padding = life_of(at(trace, len(trace)), Selected(aligned - 4096 + 256))
    assert life_words(padding)[1].endswith(": alignment padding, split off.")

    heap = new_heap(8 * MiB, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(2 * MiB))
    region = heap.regions()["address"][0]
    heap.allocate(7 * MiB)
    trace = trace_of_heap(heap)
    life = life_of(at(trace, 3), Selected(int(region)))
    assert life_words(life)[2].startswith("Goes back to the sub-allocator with its region at step ")


def test_a_region_that_grew_for_it_is_told():
    place = iter([BASE, BASE + 2 * MiB])
    source = Scripted(lambda _, num_bytes: (next(place), num_bytes), supports_coalescing=True)
    heap = new_heap(16 * MiB, source, allow_growth=True)
    heap.allocate(1000 * KiB)
    address = heap.allocate(2300 * KiB)
    trace = trace_of_heap(heap)
    life = life_of(at(trace, len(trace)), Selected(address, len(trace) - 1))
    assert life_words(life)[2] == "It was cut from a free chunk of 5.0 MiB; the pool grew by 4.0 MiB for it."


def test_what_is_not_there_has_no_life(heap):
    model = at(heap.trace(), 5)
    for selected in (
        Selected(BASE),  # in use, not free
        Selected(BASE + 256),  # inside a chunk
        Selected(BASE + 100 * MiB),
        Selected(BASE, 1),  # no ALLOCATE
        Selected(BASE + 1, 2),  # of another chunk
        Selected(BASE, 1 << 60),
    ):
        assert life_of(model, selected) is None
    assert model.step == 5


def test_the_look_ahead_and_back_is_bounded_and_says_so(monkeypatch, heap):
    monkeypatch.setattr("bfcviz.model.explain.chunk_life._LOOK", 2)
    trace = heap.trace()
    used = life_of(at(trace, 4), Selected(BASE, 2))
    assert used.ended is None
    assert life_words(used)[-1] == "Not freed up to step 6; further was not looked."
    free = life_of(at(trace, 11), Selected(BASE))
    assert (
        life_words(free)[1]
        == "Free and unchanged since step 10: it grew by the free chunk after it (1.0 KiB)."
    )
    monkeypatch.setattr("bfcviz.model.explain.chunk_life._LOOK", 1)
    free = life_of(at(trace, 11), Selected(BASE))
    assert life_words(free)[1] == "Free, and unchanged for longer than was looked back."


def test_every_chunk_of_a_busy_heap_has_a_life_that_agrees_with_the_events():
    trace = busy_trace()
    events = trace.read(0, len(trace))
    for step in range(1, len(trace), 37):
        model = at(trace, step)
        for chunk in model.chunks():
            born = int(chunk["born"]) if chunk["in_use"] else None
            life = life_of(model, Selected(int(chunk["address"]), born))
            assert (life.size, life.handle, life.in_use) == (chunk["size"], chunk["handle"], chunk["in_use"])
            assert all(life_words(life))
            if born is not None:
                frees = events[(events["kind"] == Kind.FREE) & (events["other"] == born)]
                assert [life.ended["seq"]] == frees["seq"].tolist() if len(frees) else life.ended is None
