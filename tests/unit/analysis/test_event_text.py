"""Every kind of event in sentences: each number in them is counted here by hand."""

import pytest
from heaps import MIB, new_heap
from naive_heap import NaiveHeap
from unit.analysis.built import has_facts, state
from unit.figures.synthetic import busy_trace

from bfcviz.analysis.event_text import explain_event, short_words, step_line
from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of

KiB = 1024
BASE = 0x7F1234567800
NAMES = ["", "train/MatMul", "gradient_tape/Relu", "Adam", "x" * 100, "epoch"]


@pytest.fixture
def heap():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    return heap


def explained(heap, step=-1, limit=8000 * KiB):
    """The explanation of an event, by default of the last one."""
    return explain_event(heap.trace(NAMES, [limit]), step % len(heap.records))


def test_extend_names_the_region_the_growth_and_the_limit(heap):
    facts = ("granted region 0", "4.0 MiB at 0x…34567800", "from 0 B to 4.0 MiB")
    assert has_facts(explained(heap), *facts, "limit of 7.8 MiB")
    assert has_facts(explained(heap, limit=None), *facts)
    assert "limit" not in explained(heap, limit=None)
    assert "request" not in explained(heap)
    heap.records[-1]["requested"] = 3 * KiB
    assert has_facts(explained(heap), "4.0 MiB at 0x…34567800", "request of 3.0 KiB", "from 0 B")


def test_extend_that_grew_a_region(heap):
    heap.grow(0, 0, 1024 * KiB)
    facts = ("region 0 by 1.0 MiB", "0x…34967800", "from 4.0 MiB to 5.0 MiB", "7.8 MiB")
    assert has_facts(explained(heap, 1), *facts)


def test_release_names_the_region_and_the_pool_before_and_after(heap):
    heap.extend(0, 0x10000, 512 * KiB, 1)
    heap.release(0, 1)
    facts = ("released", "region 1", "512.0 KiB at 0x10000", "from 4.5 MiB to 4.0 MiB", "7.8 MiB")
    assert has_facts(explained(heap), *facts)


def test_split_and_allocate_of_one_allocation_agree(heap):
    heap.allocate(0, 1200 * KiB - 100, label=1)
    facts = ("0x…34567800 (4.0 MiB)", "1.2 MiB for train/MatMul", "2.8 MiB", "bin 13")
    assert has_facts(explained(heap, 1), *facts)
    facts = ("train/MatMul allocated 1.2 MiB", "0x…34567800 (1.2 MiB)", "4.0 MiB", "2.8 MiB", "bin 13")
    assert has_facts(explained(heap, 2), *facts, "100 B wasted")


def test_events_of_another_heap_and_marks_do_not_interrupt_an_operation():
    heap = NaiveHeap(2, keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    heap.split(0, heap.pools[0].pieces()[0], 1024 * KiB)
    heap.extend(1, BASE, 4096 * KiB, 0)
    heap.mark(0)
    heap.allocate(0, 1024 * KiB, label=3)
    trace = heap.trace(NAMES)
    assert has_facts(explain_event(trace, 1), "1.0 MiB for Adam", "3.0 MiB", "bin 13")
    assert has_facts(explain_event(trace, 4), "Adam", "free chunk of 4.0 MiB", "3.0 MiB", "bin 13")


def test_split_that_no_allocation_follows(heap):
    heap.split(0, heap.pools[0].pieces()[0], 1024 * KiB)
    text = explained(heap, 1)
    assert has_facts(text, "0x…34567800 (4.0 MiB)", "1.0 MiB", "3.0 MiB", "bin 13")
    heap.allocate(0, 3072 * KiB, label=3)
    assert explained(heap, 1) == text
    assert "whole" in explained(heap)


def test_allocation_of_a_whole_chunk(heap):
    heap.allocate(0, 4096 * KiB)
    facts = ("An unnamed request allocated 4.0 MiB", "whole free chunk 0x…34567800 (4.0 MiB)")
    assert has_facts(explained(heap), *facts)
    assert "wasted" not in explained(heap)


def test_allocation_of_a_chunk_much_larger_than_the_request(heap):
    whole = heap.pools[0].pieces()[0]
    heap.allocate(0, 4096 * KiB, label=2)
    heap.records[-1]["requested"] = whole.owner["requested"] = 2100 * KiB
    facts = (
        "gradient_tape/Relu allocated 2.1 MiB",
        "whole free chunk 0x…34567800 (4.0 MiB)",
        "1.9 MiB wasted",
    )
    assert has_facts(explained(heap), *facts)


def test_padding_is_in_both_splits_and_the_allocation(heap):
    heap.allocate(0, 1000 * KiB, padding=512, label=2)
    facts = (
        "0x…34567800 (4.0 MiB)",
        "512 B of alignment padding",
        "1000.0 KiB",
        "4.0 MiB",
        "gradient_tape/Relu",
    )
    assert has_facts(explained(heap, 1), *facts)
    facts = ("0x…34567a00 (4.0 MiB)", "1000.0 KiB for gradient_tape/Relu", "3.0 MiB", "bin 13")
    assert has_facts(explained(heap, 2), *facts)
    facts = ("free chunk of 4.0 MiB", "512 B of alignment padding", "3.0 MiB", "bin 13")
    assert has_facts(explained(heap, 3), *facts)


def test_padding_before_all_of_the_rest(heap):
    heap.allocate(0, 4095 * KiB, padding=1024, label=2)
    assert has_facts(explained(heap, 1), "1.0 KiB of alignment padding", "4.0 MiB for gradient_tape/Relu")
    assert has_facts(explained(heap, 2), "free chunk of 4.0 MiB", "1.0 KiB of alignment padding")


def test_padding_that_no_allocation_follows(heap):
    heap.allocate(0, 1000 * KiB, padding=512, label=2)
    del heap.records[2:]
    assert has_facts(explained(heap, 1), "512 B of alignment padding", "4.0 MiB")


@pytest.fixture
def full(heap):
    """1 MiB of train/MatMul, 1 MiB of gradient_tape/Relu, 1 MiB of Adam, 1 MiB free."""
    pieces = [heap.allocate(0, 1024 * KiB, label=label) for label in (1, 2, 3)]
    return heap, pieces


def test_free_says_since_when_and_what_merges(full):
    heap, (first, second, third) = full
    at = len(heap.records)
    heap.free(0, second)
    heap.free(0, first)
    heap.free(0, third)
    facts = ("0x…34667800 (1.0 MiB)", "gradient_tape/Relu", "since step 5", "freed", "bin 12")
    assert has_facts(explained(heap, at), *facts)
    assert "merge" not in explained(heap, at)
    assert has_facts(explained(heap, at + 1), "since step 3", "merged", "after", "2.0 MiB", "bin 13")
    facts = ("Adam", "since step 7", "merged", "after and before", "4.0 MiB", "bin 14")
    assert has_facts(explained(heap, at + 3), *facts)


def test_merges_name_both_chunks_and_the_result(full):
    heap, (first, _, third) = full
    heap.free(0, third)
    facts = ("0x…34767800 (1.0 MiB)", "after it", "0x…34867800 (1.0 MiB)", "2.0 MiB", "bin 13")
    assert has_facts(explained(heap), *facts)
    heap.free(0, first, held=True)
    assert has_facts(explained(heap), "train/MatMul", "since step 3", "cannot merge", "timestamp")


def test_a_merge_of_a_later_operation_is_not_part_of_a_free(full):
    heap, (first, second, _) = full
    heap.free(0, first, held=True)
    heap.free(0, second, held=True)
    piece = heap.pools[0].free()[0]
    heap.coalesce(0, 0, piece)
    at = len(heap.records) - 2
    assert "cannot merge" in explained(heap, at)
    assert has_facts(explained(heap), "0x…34567800 (1.0 MiB)", "merged with")


def test_marks(heap):
    heap.mark(0, label=5, value=3)
    assert "epoch (3)" in explained(heap)
    heap.mark(0, label=5)
    assert "epoch." in explained(heap)
    heap.mark(0)
    assert "unnamed" in explained(heap)


def test_a_model_returns_to_its_step(full):
    heap, (first, *_) = full
    heap.free(0, first)
    trace = heap.trace(NAMES)
    model = Model(trace)
    model.seek(3)
    for step in range(len(trace)):
        assert explain_event(trace, step, model) == explain_event(trace, step)
        assert model.step == 3
    other = Model(heap.trace(NAMES))
    assert explain_event(trace, 1, other) == explain_event(trace, 1)
    assert other.step == 0


def test_an_event_that_contradicts_the_others_is_refused(full):
    heap, _ = full
    heap.emit(Kind.FREE, 0, chunk=99)
    with pytest.raises(TraceError, match="chunk 99 does not exist"):
        explained(heap)
    with pytest.raises(TraceError, match="chunk 99 does not exist"):
        explain_event(heap.trace(NAMES), len(heap.records) - 1)


# ------------------------------------------------------------------------------
# A failed request in sentences: each number in them is counted here by hand.


OTHER_NAMES = ["", "train/MatMul", "gradient_tape/Relu", "Adam", "x" * 100]


def explained_failure(heap, limit=8000 * KiB):
    """The explanation of the last event."""
    return explain_event(heap.trace(OTHER_NAMES, [limit]), len(heap.records) - 1)


@pytest.fixture
def full_heap():
    """1 MiB of train/MatMul, 1 MiB of gradient_tape/Relu, 1 MiB of Adam, 1 MiB free."""
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    return heap, [heap.allocate(0, 1024 * KiB, label=label) for label in (1, 2, 3)]


def test_a_request_over_the_limit(full_heap):
    heap, _ = full_heap
    heap.allocate(0, 8001 * KiB, label=2)
    facts = ("gradient_tape/Relu failed to allocate 7.8 MiB", "1.0 MiB free", "1.0 MiB", "4.0 MiB", "7.8 MiB")
    assert has_facts(explained_failure(heap), *facts, "8193024 bytes", "larger than the limit")


@pytest.mark.parametrize(
    ("limit", "facts"),
    [
        (8192 * KiB, ("limit of 8.0 MiB", "5.0 MiB more", "only 4.0 MiB for a new region")),
        (12288 * KiB, ("limit of 12.0 MiB", "8.0 MiB for a new region", "granted none", "5.0 MiB more")),
        (None, ("5.0 MiB more", "granted no new region")),
    ],
)
def test_a_full_pool(full_heap, limit, facts):
    heap, _ = full_heap
    heap.allocate(0, 6144 * KiB - 1)
    numbers = ("An unnamed request failed to allocate 6.0 MiB", "1.0 MiB free", "1.0 MiB", "pool 4.0 MiB")
    assert has_facts(explained_failure(heap, limit), *numbers, *facts)


def test_fragmentation_names_the_neighbours_of_the_largest_free_chunk(full_heap):
    heap, (first, _, third) = full_heap
    heap.free(0, first)
    heap.free(0, third)
    heap.allocate(0, 2560 * KiB, label=4)
    text = explained_failure(heap, limit=4096 * KiB)
    assert has_facts(text, f"{'x' * 79}… failed", "2.5 MiB", "3.0 MiB free", "2.0 MiB", "4.0 MiB", "4.0 MiB")
    facts = ("fragmented", "2 chunks", "512.0 KiB too small", "no room for a new region")
    assert has_facts(text, *facts, "0x…34667800 (1.0 MiB, gradient_tape/Relu)", "region's end")


def test_free_chunks_in_two_regions_and_one_that_waits_to_merge():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 1024, 0)
    heap.extend(0, BASE + 1024, 1024, 1)
    heap.allocate(0, 1500)
    numbers = ("2 regions", "even the largest, of 1.0 KiB", "2 of them are wholly free, 2.0 KiB")
    assert has_facts(explained_failure(heap, 2048), *numbers)
    piece = heap.allocate(0, 256)
    heap.free(0, piece, held=True)
    heap.allocate(0, 1800)
    assert has_facts(
        explained_failure(heap, 2048), "2 regions", "even the largest, of 1.0 KiB", "2.0 KiB in all"
    )
    heap.allocate(0, 1024)
    heap.allocate(0, 1024 + 1)
    assert has_facts(explained_failure(heap, 2048), "1.0 KiB (-256 B) free", "256 B more must be free")


def test_a_free_chunk_that_is_large_enough(full_heap):
    heap, _ = full_heap
    heap.allocate(0, 5000 * KiB)
    heap.records[-1]["requested"] = 100
    assert has_facts(explained_failure(heap), "large enough", "not show why", "timestamp", "alignment")


# ------------------------------------------------------------------------------
# Every kind of event in a few words: numbers and verdicts.


@pytest.mark.parametrize(
    ("kind", "fields", "facts"),
    [
        (Kind.EXTEND, {"region": 2}, ("new", "2")),
        (Kind.EXTEND, {"region": 2, "flags": 1}, ("region 2", "extended")),
        (Kind.SPLIT, {"bin": 4}, ("split", "bin 4")),
        (Kind.SPLIT, {"bin": 4, "flags": 2}, ("padding",)),
        (Kind.ALLOCATE, {"bin": 4, "size": 512, "requested": 500}, ("bin 4", "12 B")),
        (Kind.ALLOCATE, {"bin": 4, "size": 512, "requested": 512}, ("bin 4",)),
        (Kind.FREE, {"seq": 1001, "other": 1}, ("1,000 steps",)),
        (Kind.FREE, {"seq": (1 << 32) + 1, "other": 0, "flags": 4}, ("1 step", "merge deferred")),
        (Kind.MERGE, {"bin": 9}, ("merged", "bin 9")),
        (Kind.RELEASE, {"region": 1}, ("region 1", "released")),
        (Kind.OOM, {"address": 4096, "size": 256}, ("4.0 KiB", "256 B")),
        (Kind.MARK, {"size": 7}, ("7",)),
        (Kind.MARK, {}, ()),
    ],
)
def test_every_kind_in_a_few_words(kind, fields, facts):
    nothing = dict.fromkeys(EVENT.names, 0)
    words = short_words(nothing | fields | {"kind": int(kind)}, Labels())
    assert has_facts(words, *facts)
    assert bool(words) == bool(facts)


# ------------------------------------------------------------------------------
# The line of a step: what happened, to which label, how many bytes.

LONG = "/".join(f"layer_{number}" for number in range(40))


def lines(trace):
    """The line of each step, by the kind of its event."""
    found = {}
    for step in range(1, len(trace) + 1):
        kind = Kind(int(trace.read(step - 1, step)[0]["kind"]))
        found.setdefault(kind.name, step_line(trace, step, 0))
    return found


def test_each_kind_of_event_has_its_numbers():
    heap = new_heap(64 * MIB, allow_growth=True, garbage_collection=True)
    first, second = (heap.allocate(size * MIB + 1, label=name) for size, name in ((3, "conv"), (1, "bias")))
    heap.free(first)
    heap.free(second)
    heap.try_allocate(100 * MIB, label="attention")
    heap.mark("epoch", 7)
    found = lines(trace_of(heap))
    assert "conv allocated 3.0 MiB" in found["ALLOCATE"]
    assert "wasted" in found["ALLOCATE"]
    assert "conv freed 4.0 MiB after" in found["FREE"]
    assert "for bias" in found["SPLIT"]
    assert "MiB" in found["MERGE"]
    assert "region 0" in found["EXTEND"]
    assert found["OOM"] == "attention failed to allocate 100.0 MiB"
    assert found["MARK"] == "mark epoch (7)"


def test_a_line_is_short():
    heap = new_heap(64 * MIB)
    heap.free(heap.allocate(MIB, label=LONG))
    found = lines(trace_of(heap))
    assert all(len(line) <= 110 for line in found.values())
    assert found["ALLOCATE"].startswith("…/layer_")
    assert "layer_39 allocated 1.0 MiB" in found["ALLOCATE"]


def test_steps_without_an_event_and_states():
    trace = busy_trace(20)
    assert step_line(trace, 0, 0) == "before the first event"
    kept = state([[4, -4]], asked=6, limit=8)
    assert "state" in step_line(kept, 1, 0)
    assert "asker failed to allocate 6.0 MiB" in step_line(kept, len(kept), 0)
