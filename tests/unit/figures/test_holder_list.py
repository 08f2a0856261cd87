"""Who holds the memory at a step: the rows of a list, the largest first, and the colours of holders."""

import numpy as np
import pytest
from heap_strategies import operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap
from unit.model.plain_holders import trace_of_heap

from bfcviz.figures import holder_list
from bfcviz.figures.colouring import colouring
from bfcviz.figures.holder_list import MOST, HolderCounts, HolderRowChooser
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.find_steps import peak
from bfcviz.model.grouping import UNNAMED, grouping
from bfcviz.model.holders import ROOT, HolderIndex


def counted(trace, step, by="op"):
    model = Model(trace)
    model.seek(step)
    index = HolderIndex(grouping(trace, 0, by))
    return index, index.amounts(index.count(model.in_use()))


def rows_of(trace, **order):
    index, amounts = counted(trace, len(trace))
    rows = HolderRowChooser(index, amounts, amounts.bytes, **order).rows()
    return [(row.depth, row.name, int(amounts.bytes[row.node]) if row.node >= 0 else None) for row in rows]


def heap_of(**sizes):
    heap = PlainHeap(512 * MiB)
    for name, size in sizes.items():
        heap.allocate(size, name.replace("__", "/"))
    return heap.trace()


def test_the_largest_are_first_and_their_parts_below_them():
    trace = heap_of(net__a=8 * MiB, net__b=4 * MiB, adam=6 * MiB, small=256, tiny=256)
    assert rows_of(trace) == [
        (0, "net", 12 * MiB),
        (1, "a", 8 * MiB),
        (1, "b", 4 * MiB),
        (0, "adam", 6 * MiB),
        (0, "", None),
    ]
    assert rows_of(trace, ascending=True) == [
        (0, "adam", 6 * MiB),
        (0, "net", 12 * MiB),
        (1, "b", 4 * MiB),
        (1, "a", 8 * MiB),
        (0, "", None),
    ]


def test_rows_can_be_sorted_by_name():
    trace = heap_of(zeta=8 * MiB, Beta=2 * MiB, alpha=4 * MiB)
    assert [name for _, name, _ in rows_of(trace, by_name=True, ascending=True)] == ["alpha", "Beta", "zeta"]


def test_a_part_around_everything_is_left_out_of_the_names():
    trace = heap_of(main__net__a=8 * MiB, main__net__b__c=4 * MiB)
    assert rows_of(trace) == [(0, "a", 8 * MiB), (0, "b/c", 4 * MiB)]


def test_what_grew_is_shown_also_if_it_is_small_among_others():
    trace = heap_of(large=200 * MiB, grew=MiB // 4, small=MiB // 2)
    index, amounts = counted(trace, len(trace))
    names = {index.names[node]: node for node in range(1, len(index))}
    key = np.zeros(len(index), np.int64)
    key[names["grew"]] = 100 * MiB
    rows = HolderRowChooser(index, amounts, key).rows()
    assert [row.name for row in rows] == ["grew", "large", ""]


@given(operations(), st.integers(0, 10_000), st.sampled_from(list(UNNAMED)))
def test_the_rows_at_the_left_have_every_byte_once(steps, place, by):
    trace = trace_of_heap(steps)
    index, amounts = counted(trace, place % (len(trace) + 1), by)
    rows = HolderRowChooser(index, amounts, amounts.bytes).rows()
    top = [row for row in rows if row.depth == 0 and row.node >= 0]
    paths = [index.path(row.node) for row in top]
    assert all(a[: len(b)] != b for a in paths for b in paths if a is not b)  # none lies in another one
    assert len(top) <= MOST
    others = [row for row in rows if row.node < 0]
    assert others in ([], rows[-1:])
    rest = sum(row.holders for row in others)
    assert sum(row.holders for row in top) + rest == amounts.holders[ROOT]
    if not rest:
        assert sum(int(amounts.bytes[row.node]) for row in top) == amounts.bytes[ROOT]


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_at_the_peak_of_a_real_run_few_bytes_have_no_row(name):
    trace = sample_trace(name)
    index, amounts = counted(trace, peak(trace))
    rows = HolderRowChooser(index, amounts, amounts.bytes).rows()
    top = sum(int(amounts.bytes[row.node]) for row in rows if row.depth == 0 and row.node >= 0)
    assert top > 0.9 * int(amounts.bytes[ROOT])


def test_a_holder_keeps_its_colour_while_the_step_moves():
    trace = sample_trace("conv")
    model = Model(trace)
    model.seek(peak(trace))
    colours = colouring(trace, 0, "holder", Look().paints, model.chunks())
    counts, fills = HolderCounts(trace, 0), {}
    for step in range(33_000, 36_000, 250):
        model.seek(step)
        found = counts.count(model, "op", colours)
        for node in np.flatnonzero(found.amounts.bytes).tolist():
            fills.setdefault(found.index.path(node), set()).add(found.fill(node))
    assert len(fills) > 20
    assert {path for path, several in fills.items() if len(several) > 1} == set()


def test_the_largest_chunk_of_very_many_gives_its_holder_a_colour(monkeypatch):
    monkeypatch.setattr(holder_list, "_SAMPLE", 100)
    monkeypatch.setattr(holder_list, "_LARGEST", 10)
    heap = PlainHeap(512 * MiB)
    heap.allocate(256)
    heap.allocate(200 * MiB)
    for _ in range(400):
        heap.allocate(512)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    colours = colouring(model.trace, 0, "holder", Look().paints, model.chunks())
    found = HolderCounts(model.trace, 0).count(model, "size", colours)
    largest = int(np.argmax(found.amounts.bytes * (np.arange(len(found.index)) > ROOT)))
    assert found.amounts.bytes[largest] == 200 * MiB
    assert found.classes[largest] >= 0
