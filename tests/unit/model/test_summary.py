"""Summaries of trees of holders."""

from heap_strategies import seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap
from unit.model.plain_holders import labels_of, trace_of_heap

import bfcviz
from bfcviz.model import Model
from bfcviz.model.holders import holders, summary

NAMES = ("", "a/b/c", "a/b/d/e", "f/g")


@given(seeded_operations(), st.integers(1, 12), st.floats(0, 1))
def test_parts_sum_up_at_every_depth_and_are_few(steps, most, share):
    trace = trace_of_heap(steps, labels_of(NAMES))
    model = Model(trace)
    model.seek(len(trace))
    found = holders(model)
    parts = summary(found, most, share)
    assert parts[0].bytes == found.bytes_in_use
    assert len([part for part in parts if part.row >= 0]) <= most
    assert len(parts) <= 2 * most
    for number, part in enumerate(parts):
        inside = [each for each in parts if each.parent == number]
        sizes = [each.bytes for each in inside if each.row >= 0]
        assert sizes == sorted(sizes, reverse=True)
        if inside:
            assert part.own_bytes + sum(each.bytes for each in inside) == part.bytes
            assert all(each.depth == part.depth + 1 for each in inside)
            assert [each.row for each in inside].count(-1) <= 1
    assert sum(part.chunks for part in parts if part.depth == 1) + int(found.rows["own_chunks"][0]) == (
        found.chunks_in_use
    )


def test_a_holder_around_one_other_is_one_part_with_it():
    heap = PlainHeap(64 * MiB)
    for label, size in (("a/b/c", 8), ("a/b/d/e", 4), ("f/g", 2), ("", 1)):
        heap.allocate(size * MiB, label)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    parts = summary(holders(model), 100)
    assert [(part.depth, part.name) for part in parts] == [
        (0, "in use"),
        (1, "a/b"),
        (2, "c"),
        (2, "d/e"),
        (1, "f/g"),
        (1, "no label"),
    ]
    few = summary(holders(model), 2)
    assert [(part.name, part.holders, part.bytes // MiB) for part in few] == [
        ("in use", 1, 15),
        ("a/b", 1, 12),
        ("other", 2, 12),
        ("other", 2, 3),
    ]


def test_a_sample():
    trace = sample_trace("transformer")
    model = Model(trace)
    model.seek(bfcviz.peak(trace))
    parts = summary(holders(model), 150, 0.001)
    assert 20 < len(parts) <= 300
    assert sum(part.bytes for part in parts if part.depth == 1) == parts[0].bytes
