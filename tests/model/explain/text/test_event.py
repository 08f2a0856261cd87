"""Every kind of event in words, to the letter: each number in them is counted here by hand."""

import pytest
from naive_heap import NaiveHeap

from bfcviz.errors import TraceError
from bfcviz.events.schema import Kind
from bfcviz.model import Model
from bfcviz.model.explain.text.event import explain

KiB = 1024
BASE = 0x7F1234567800
NAMES = ["", "train/MatMul", "gradient_tape/Relu", "Adam", "x" * 100, "epoch"]


@pytest.fixture
def heap():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    return heap


def told(heap, step=-1, limit=8000 * KiB):
    """The words for an event, by default the last one."""
    return explain(heap.trace(NAMES, [limit]), step % len(heap.records))


def test_extend_tells_the_pool_before_and_after_and_the_limit(heap):
    text = "The sub-allocator granted region 0, 4.0 MiB at 0x…34567800: the pool grew from 0 B to 4.0 MiB"
    assert told(heap) == f"{text} of a limit of 7.8 MiB."
    assert told(heap, limit=None) == f"{text}."
    heap.records[-1]["requested"] = 3 * KiB
    assert "4.0 MiB at 0x…34567800 for a request of 3.0 KiB: the pool grew" in told(heap)


def test_extend_that_grew_a_region(heap):
    heap.grow(0, 0, 1024 * KiB)
    assert told(heap, 1) == (
        "The sub-allocator lengthened region 0 by 1.0 MiB, from 0x…34967800: the pool grew from 4.0 MiB to "
        "5.0 MiB of a limit of 7.8 MiB."
    )


def test_release_tells_the_pool_before_and_after(heap):
    heap.extend(0, 0x10000, 512 * KiB, 1)
    heap.release(0, 1)
    assert told(heap) == (
        "Region 1, 512.0 KiB at 0x10000, was wholly free and went back to the sub-allocator: the pool "
        "shrank from 4.5 MiB to 4.0 MiB of a limit of 7.8 MiB."
    )


def test_split_and_allocate_of_one_allocation_tell_one_story(heap):
    heap.allocate(0, 1200 * KiB - 100, label=1)
    assert told(heap, 1) == (
        "Chunk 0x…34567800 (4.0 MiB) was split: 1.2 MiB handed to train/MatMul, 2.8 MiB back to bin 13."
    )
    assert told(heap, 2) == (
        "Chunk 0x…34567800 (1.2 MiB) was handed to train/MatMul, which asked for 100 bytes less; it was cut "
        "from a free chunk of 4.0 MiB, 2.8 MiB went back to bin 13."
    )


def test_events_of_another_heap_and_marks_do_not_break_the_story():
    heap = NaiveHeap(2, keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    heap.split(0, heap.pools[0].pieces()[0], 1024 * KiB)
    heap.extend(1, BASE, 4096 * KiB, 0)
    heap.mark(0)
    heap.allocate(0, 1024 * KiB, label=3)
    trace = heap.trace(NAMES)
    assert explain(trace, 1).endswith("1.0 MiB handed to Adam, 3.0 MiB back to bin 13.")
    assert explain(trace, 4).endswith("cut from a free chunk of 4.0 MiB, 3.0 MiB went back to bin 13.")


def test_split_that_no_allocation_follows(heap):
    heap.split(0, heap.pools[0].pieces()[0], 1024 * KiB)
    text = "Chunk 0x…34567800 (4.0 MiB) was split: 1.0 MiB stay where it begins, 3.0 MiB back to bin 13."
    assert told(heap, 1) == text
    heap.allocate(0, 3072 * KiB)
    assert told(heap, 1) == text


def test_allocation_of_a_whole_chunk(heap):
    heap.allocate(0, 4096 * KiB)
    assert told(heap) == (
        "Chunk 0x…34567800 (4.0 MiB) was handed to an unnamed request, which asked for just that; it is a "
        "whole free chunk, not split."
    )


def test_allocation_of_much_more_than_was_asked_for(heap):
    whole = heap.pools[0].pieces()[0]
    heap.allocate(0, 4096 * KiB, label=2)
    heap.records[-1]["requested"] = whole.owner["requested"] = 2100 * KiB
    assert "handed to gradient_tape/Relu, which asked for 2.1 MiB; it is" in told(heap)


def test_padding_is_told_in_both_splits_and_the_allocation(heap):
    heap.allocate(0, 1000 * KiB, padding=512, label=2)
    assert told(heap, 1) == (
        "Chunk 0x…34567800 (4.0 MiB) was split: 512 B of alignment padding stay free at its start, 1000.0 KiB "
        "of the 4.0 MiB behind it handed to gradient_tape/Relu."
    )
    assert told(heap, 2) == (
        "Chunk 0x…34567a00 (4.0 MiB) was split: 1000.0 KiB handed to gradient_tape/Relu, 3.0 MiB back to bin "
        "13."
    )
    assert told(heap, 3).endswith(
        "it was cut from a free chunk of 4.0 MiB, 3.0 MiB went back to bin 13 and 512 B of alignment "
        "padding stay free before it."
    )


def test_padding_before_all_that_is_left(heap):
    heap.allocate(0, 4095 * KiB, padding=1024, label=2)
    assert told(heap, 1).endswith("free at its start, 4.0 MiB behind it handed to gradient_tape/Relu.")
    assert told(heap, 2).endswith(
        "cut from a free chunk of 4.0 MiB, 1.0 KiB of alignment padding stay free before it."
    )


def test_padding_that_nothing_follows(heap):
    heap.allocate(0, 1000 * KiB, padding=512, label=2)
    del heap.records[2:]
    assert told(heap, 1).endswith("512 B of alignment padding stay free at its start, 4.0 MiB lie behind it.")


@pytest.fixture
def full(heap):
    """1 MiB of train/MatMul, 1 MiB of gradient_tape/Relu, 1 MiB of Adam, 1 MiB free."""
    pieces = [heap.allocate(0, 1024 * KiB, label=label) for label in (1, 2, 3)]
    return heap, pieces


def test_free_tells_since_when_and_what_merges(full):
    heap, (first, second, third) = full
    at = len(heap.records)
    heap.free(0, second)
    heap.free(0, first)
    heap.free(0, third)
    assert told(heap, at) == (
        "Chunk 0x…34667800 (1.0 MiB) came back from gradient_tape/Relu, in use since step 5; it is free now, "
        "in bin 12."
    )
    assert told(heap, at + 1).endswith(
        "in use since step 3; it merges with its free neighbour after it: one free chunk of 2.0 MiB, in bin "
        "13."
    )
    assert told(heap, at + 3).endswith(
        "from Adam, in use since step 7; it merges with its free neighbours after and before it: one free "
        "chunk of 4.0 MiB, in bin 14."
    )


def test_merges_tell_who_absorbed_whom(full):
    heap, (first, _, third) = full
    heap.free(0, third)
    assert told(heap) == (
        "Free chunk 0x…34767800 (1.0 MiB) absorbed the free chunk after it, 0x…34867800 (1.0 MiB): one chunk of "
        "2.0 MiB, in bin 13."
    )
    heap.free(0, first, held=True)
    assert told(heap).endswith(
        "train/MatMul, in use since step 3; it is free, but held back from merging until its timestamp is "
        "safe."
    )


def test_a_merge_of_a_later_operation_is_not_part_of_a_free(full):
    heap, (first, second, _) = full
    heap.free(0, first, held=True)
    heap.free(0, second, held=True)
    piece = heap.pools[0].free()[0]
    heap.coalesce(0, 0, piece)
    at = len(heap.records) - 2
    assert "until its timestamp is safe" in told(heap, at)
    assert told(heap).startswith("Free chunk 0x…34567800 (1.0 MiB) absorbed")


def test_oom_over_the_limit(full):
    heap, _ = full
    heap.allocate(0, 8001 * KiB, label=2)
    assert told(heap) == (
        "A request by gradient_tape/Relu for 7.8 MiB failed: 1.0 MiB free, the largest free chunk 1.0 MiB, "
        "the pool 4.0 MiB of a limit of 7.8 MiB. The request (rounded to 8193024 bytes) is larger than the "
        "limit: it could never fit."
    )


def test_oom_of_a_full_pool(full):
    heap, _ = full
    heap.allocate(0, 6144 * KiB - 1)
    free = "1.0 MiB free, the largest free chunk 1.0 MiB"
    numbers = f"An unnamed request for 6.0 MiB failed: {free}, the pool 4.0 MiB"
    why = "The pool is full: 5.0 MiB more would have to be free; "
    for limit, of_limit, growth in (
        (8192 * KiB, " of a limit of 8.0 MiB", "the limit leaves only 4.0 MiB for a new region."),
        (
            12288 * KiB,
            " of a limit of 12.0 MiB",
            "the limit leaves 8.0 MiB for a new region, but the sub-allocator granted none.",
        ),
        (None, "", "the sub-allocator granted no new region."),
    ):
        assert told(heap, limit=limit) == f"{numbers}{of_limit}. {why}{growth}"


def test_oom_by_fragmentation_tells_what_pins_the_largest_hole(full):
    heap, (first, _, third) = full
    heap.free(0, first)
    heap.free(0, third)
    heap.allocate(0, 2560 * KiB, label=4)
    assert told(heap, limit=4096 * KiB) == (
        f"A request by {'x' * 79}… for 2.5 MiB failed: 3.0 MiB free, the largest free chunk 2.0 MiB, the "
        "pool 4.0 MiB of a limit of 4.0 MiB. The free memory is fragmented: enough in total, in 2 pieces, "
        "but its largest is 512.0 KiB too short (it lies between chunk 0x…34667800 (1.0 MiB, "
        "gradient_tape/Relu) and the region's end); the limit leaves no room for a new region."
    )


def test_oom_between_regions_and_beside_a_chunk_held_back():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 1024, 0)
    heap.extend(0, BASE + 1024, 1024, 1)
    heap.allocate(0, 1500)
    assert "in 2 pieces, but its largest is 512 B too short (it fills its region); " in told(heap)
    piece = heap.allocate(0, 256)
    heap.free(0, piece, held=True)
    heap.allocate(0, 1800)
    assert "its largest is 1.0 KiB too short (it fills its region)" in told(heap)
    heap.allocate(0, 1024)
    heap.allocate(0, 1024 + 1)
    assert "The pool is full" in told(heap)


def test_oom_although_a_chunk_is_large_enough(heap):
    heap.allocate(0, 5000 * KiB)
    heap.records[-1]["requested"] = 100
    assert told(heap).endswith(
        "That chunk is large enough, and the events do not show why it was not taken: a timestamp can hold "
        "a free chunk back, or an alignment rule it out."
    )


def test_marks(heap):
    heap.mark(0, label=5, value=3)
    assert told(heap) == "Mark: epoch (3)."
    heap.mark(0, label=5)
    assert told(heap) == "Mark: epoch."
    heap.mark(0)
    assert told(heap) == "An unnamed mark."


def test_a_model_is_brought_back_to_where_it_stands(full):
    heap, (first, *_) = full
    heap.free(0, first)
    trace = heap.trace(NAMES)
    model = Model(trace)
    model.seek(3)
    for step in range(len(trace)):
        assert explain(trace, step, model) == explain(trace, step)
        assert model.step == 3
    other = Model(heap.trace(NAMES))
    assert explain(trace, 1, other) == explain(trace, 1)
    assert other.step == 0


def test_an_event_that_contradicts_the_others_is_refused(full):
    heap, _ = full
    heap.emit(Kind.FREE, 0, chunk=99)
    with pytest.raises(TraceError, match="chunk 99 does not exist"):
        told(heap)
    with pytest.raises(TraceError, match="chunk 99 does not exist"):
        explain(heap.trace(NAMES), len(heap.records) - 1)
