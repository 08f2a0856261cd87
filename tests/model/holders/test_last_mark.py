"""The last mark before a step, and what holders had there."""

import numpy as np
from figures.synthetic import MiB, PlainHeap

from bfcviz.events.schema import Kind
from bfcviz.model import Model
from bfcviz.model.browse.phases import BEGINS, ENDS
from bfcviz.model.holders.grouping import grouping
from bfcviz.model.holders.holder_index import ROOT, HolderIndex
from bfcviz.model.holders.last_mark import LastMark, LastMarks


def heap_with_marks():
    heap = PlainHeap(8 * MiB)
    heap.allocate(MiB, "weights")
    heap.mark("step", 1)
    kept = heap.allocate(MiB, "cache")
    heap.mark("forward", **{BEGINS: "forward"})
    heap.allocate(MiB, "cache")
    heap.free(kept)
    heap.mark("forward", **{ENDS: "forward"})
    return heap.trace()


def test_the_last_mark_before_a_step():
    trace = heap_with_marks()
    marks = LastMarks(trace, 0)
    kinds = trace.read(0, len(trace))["kind"]
    steps = (np.flatnonzero(kinds == Kind.MARK) + 1).tolist()
    assert marks.before(0) is None
    assert marks.before(steps[0]) is None  # the step just after a mark shows what grew up to it
    assert marks.before(steps[0] + 1) == LastMark(steps[0], "step")
    assert marks.before(steps[1] + 1) == LastMark(steps[1], "forward begins")
    assert marks.before(len(trace) + 5) == LastMark(steps[2], "forward ends")
    assert marks.phases == 2


def test_bytes_at_a_mark_are_those_of_the_model_there():
    trace = heap_with_marks()
    model, marks = Model(trace), LastMarks(trace, 0)
    index = HolderIndex(grouping(trace, 0, "op"))
    model.seek(len(trace))
    now = index.amounts(index.count(model.in_use()))
    mark = marks.before(len(trace))
    growth = now.bytes - marks.bytes_at(mark, index)
    with model.visiting(mark.step):
        assert index.amounts(index.count(model.in_use())).bytes[ROOT] + growth[ROOT] == now.bytes[ROOT]
    assert growth[ROOT] == 0  # one came, one went


def test_a_mark_is_visited_once_and_events_are_searched_once(monkeypatch):
    trace = heap_with_marks()
    marks, index = LastMarks(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    mark = marks.before(len(trace))
    first = marks.bytes_at(mark, index)
    sought, read = [], []
    seek, blocks = Model.seek, type(trace).blocks
    monkeypatch.setattr(Model, "seek", lambda self, step: sought.append(step) or seek(self, step))
    monkeypatch.setattr(
        type(trace), "blocks", lambda self, *at: read.append(at[0] < len(trace)) or blocks(self, *at)
    )
    assert marks.before(len(trace)) == mark
    assert marks.bytes_at(mark, index).tolist() == first.tolist()
    assert (sought, any(read)) == ([], False)


def test_holders_that_come_later_had_nothing():
    trace = heap_with_marks()
    model, marks = Model(trace), LastMarks(trace, 0)
    index = HolderIndex(grouping(trace, 0, "op"))
    mark = marks.before(5)
    before = marks.bytes_at(mark, index)
    model.seek(len(trace))
    index.count(model.in_use())
    assert len(marks.bytes_at(mark, index)) == len(index) > len(before)
    assert marks.bytes_at(mark, index)[-1] == 0
