"""Growth of holders from mark to mark of one name."""

import numpy as np
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.events.labels import BEGINS, ENDS
from bfcviz.events.schema import Kind
from bfcviz.model import Model
from bfcviz.model.grouping import grouping
from bfcviz.model.holders import ROOT, HolderIndex, HolderMark, HolderMarkGrowth, HolderMarkPair


def training(steps=4):
    """Steps that keep 1 MiB each, and use 8 MiB meanwhile; each ends with a mark; stops in the middle of one."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(2 * MiB, "weights")
    for step in range(steps):
        held = heap.allocate(8 * MiB, "activations")
        heap.allocate(MiB, "kept")
        heap.free(held)
        heap.mark("step", step)
    heap.allocate(8 * MiB, "activations")
    return heap.trace()


def phased():
    heap = PlainHeap(8 * MiB)
    for _ in range(2):
        heap.mark("forward", **{BEGINS: "forward"})
        held = heap.allocate(MiB, "values")
        heap.mark("forward", **{ENDS: "forward"})
        heap.free(held)
    return heap.trace()


def steps_after_marks(trace):
    return (np.flatnonzero(trace.read(0, len(trace))["kind"] == Kind.MARK) + 1).tolist()


def growth_of(trace, marks, index):
    """Path -> its growth at the last step."""
    grown = marks.growth(marks.pair(len(trace)), index)
    return {"/".join(map(str, index.path(node))): int(size) for node, size in enumerate(grown)}


def test_what_is_kept_grows_and_what_comes_and_goes_does_not():
    trace = training()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    model = Model(trace)
    model.seek(len(trace))
    assert "activations" in {trace.labels.name(int(each)) for each in model.in_use()["label"]}
    assert growth_of(trace, marks, index) == {"": 2 * MiB, "weights": 0, "kept": 2 * MiB}
    model.seek(len(trace))
    index.count(model.in_use())  # the holder of the activations is known from here on
    grown = growth_of(trace, marks, index)
    assert (grown["activations"], grown["kept"], grown[""]) == (0, 2 * MiB, 2 * MiB)


def test_an_array_that_was_kept_once_stays_growth():
    heap = PlainHeap(64 * MiB)
    for step in range(9):
        if step == 3:
            heap.allocate(4 * MiB, "cache")
        heap.free(heap.allocate(MiB, "work"))
        heap.mark("epoch", step)
    trace = heap.trace()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    assert growth_of(trace, marks, index)["cache"] == 4 * MiB


def test_the_first_step_is_a_warm_up_once_there_are_three_marks():
    trace = training()
    marks, ends = HolderMarkGrowth(trace, 0), steps_after_marks(trace)
    named = [HolderMark(end, "step") for end in ends]
    assert marks.pair(ends[1] - 1) is None
    assert marks.pair(ends[1]) == HolderMarkPair(named[0], named[1], 1)
    assert marks.pair(ends[2]) == HolderMarkPair(named[1], named[2], 1)
    assert marks.pair(len(trace)) == HolderMarkPair(named[1], named[3], 2)


def test_marks_of_one_name_are_compared_and_numbers_do_not_matter():
    heap = PlainHeap(8 * MiB)
    for number in range(3):
        heap.mark("loaded")
        heap.mark("loaded")
        heap.mark(f"epoch {number}")
        heap.mark("alert: growth of bytes in use per step above 1 MiB")
    heap.mark("once")
    trace = heap.trace()
    pair = HolderMarkGrowth(trace, 0).pair(len(trace))
    assert (pair.first.name, pair.last.name, pair.apart) == ("epoch 1", "epoch 2", 1)


def test_a_phase_is_compared_at_its_begins_or_at_its_ends():
    trace = phased()
    marks = HolderMarkGrowth(trace, 0)
    pair = marks.pair(len(trace))
    assert {pair.first.name, pair.last.name} == {"forward begins"}
    assert marks.phases == 4
    assert marks.growth(pair, HolderIndex(grouping(trace, 0, "op")))[ROOT] == 0


def test_marks_that_name_nothing_twice_are_not_compared():
    heap = PlainHeap(8 * MiB)
    heap.mark("begin")
    heap.allocate(MiB, "a")
    heap.mark("end")
    trace = heap.trace()
    assert HolderMarkGrowth(trace, 0).pair(len(trace)) is None


def test_a_mark_is_visited_once_and_events_are_searched_once(monkeypatch):
    trace = training()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    first = growth_of(trace, marks, index)
    sought, read = [], []
    seek, blocks = Model.seek, type(trace).blocks
    monkeypatch.setattr(Model, "seek", lambda self, step: sought.append(step) or seek(self, step))
    monkeypatch.setattr(
        type(trace), "blocks", lambda self, *at: read.append(at[0] < len(trace)) or blocks(self, *at)
    )
    assert growth_of(trace, marks, index) == first
    assert (sought, any(read)) == ([], False)
