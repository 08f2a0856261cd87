"""The tree of holders that grows from step to step: the same bytes as a tree of each step alone."""

import numpy as np
from heap_strategies import seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import MiB, PlainHeap
from unit.model.plain_holders import trace_of_heap

from bfcviz.model import Model
from bfcviz.model.grouping import UNNAMED, grouping
from bfcviz.model.holders import ROOT, HolderIndex, RunningCount, holders


def held(index, amounts):
    """Path as text -> bytes, requested and chunks, of those that hold something."""
    rows = zip(amounts.bytes.tolist(), amounts.requested.tolist(), amounts.chunks.tolist(), strict=True)
    return {index.how.text(index.path(node)): row for node, row in enumerate(rows) if row[2]}


@given(
    seeded_operations(),
    st.lists(st.integers(0, 10_000), min_size=1, max_size=4),
    st.sampled_from(list(UNNAMED)),
)
def test_it_counts_as_a_tree_of_the_step_alone_does(steps, places, by):
    trace = trace_of_heap(steps)
    model = Model(trace)
    index = HolderIndex(grouping(trace, 0, by))
    for place in places:
        model.seek(place % (len(trace) + 1))
        found = holders(model, by)
        rows = zip(*(found.rows[name].tolist() for name in ("bytes", "requested", "chunks")), strict=True)
        plain = {path: row for path, row in zip(found.paths(), rows, strict=True) if row[2]}
        assert held(index, index.amounts(index.count(model.in_use()))) == plain


def heap_with_paths():
    heap = PlainHeap(4 * MiB)
    for name in ("a/b", "a/b", "a/c", "", "d"):
        heap.allocate(MiB // 4, name)
    heap.allocate(MiB // 4, "a/b", shape="[2]")  # another label of the same path
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return trace, model


def test_holders_are_different_paths():
    trace, model = heap_with_paths()
    index = HolderIndex(grouping(trace, 0, "op"))
    amounts = index.amounts(index.count(model.in_use()))
    assert amounts.holders[ROOT] == 4
    counts = {index.how.text(index.path(node)): int(amounts.holders[node]) for node in range(len(index))}
    assert counts == {"": 4, "a": 2, "a/b": 1, "a/c": 1, "no label": 1, "d": 1}


def test_a_node_has_the_class_of_most_of_its_bytes():
    trace, model = heap_with_paths()
    index, records = HolderIndex(grouping(trace, 0, "op")), model.in_use()
    classes = np.where([trace.labels.name(label) == "a/b" for label in records["label"].tolist()], 2, 1)
    index.count(records)
    found = index.main_class(index.codes(records), classes, records["size"])
    named = {index.how.text(index.path(node)): int(found[node]) for node in range(len(index))}
    assert named == {"": 1, "a": 2, "a/b": 2, "a/c": 1, "no label": 1, "d": 1}  # of equal ones the first
    none = index.main_class(index.codes(records[:0]), classes[:0], records["size"][:0])
    assert none.tolist() == [-1] * len(index)


@given(
    seeded_operations(),
    st.lists(st.integers(0, 10_000), min_size=2, max_size=8),
    st.sampled_from(list(UNNAMED)),
)
def test_sums_that_follow_the_steps_are_those_of_each_step(steps, places, by):
    trace = trace_of_heap(steps)
    model = Model(trace)
    index = HolderIndex(grouping(trace, 0, by))
    running = RunningCount(index)
    for place in places:
        model.seek(place % (len(trace) + 1))
        sums = running.at(model)
        assert sums.tolist() == index.count(model.in_use()).tolist()


def test_nothing_in_use_counts_nothing():
    trace, model = heap_with_paths()
    index = HolderIndex(grouping(trace, 0, "op"))
    model.seek(0)
    assert index.amounts(index.count(model.in_use())).bytes.tolist() == [0]
