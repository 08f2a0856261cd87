"""The icicle of holders: widths, texts, colours and table."""

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.figures import draw
from bfcviz.figures.colouring import colouring
from bfcviz.figures.holder_icicle import MOST, icicle_of, icicle_panel
from bfcviz.figures.theme import THEMES, contrasting
from bfcviz.figures.view import HeapData
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.holders import summary


def drawn(heap, **look):
    figure = draw("holders", heap.trace(), **look)
    (bars,) = figure.data
    return figure, bars


def nested():
    heap = PlainHeap(64 * MiB)
    for label, size in (("layer_1/MatMul", 8), ("layer_1/Relu", 2), ("layer_1", 2), ("x/y", 3), ("", 1)):
        heap.allocate(size * MiB, label)
    return heap


def test_rectangles_are_as_wide_as_their_bytes_and_lie_within_the_one_above():
    figure, bars = drawn(nested())
    assert figure.layout.xaxis.range == (0, 16)
    assert figure.layout.xaxis.title.text == "bytes in use (MiB)"
    assert bars.x.tolist() == [16, 12, 8, 2, 3, 1]
    assert list(bars.base) == [0, 0, 0, 8, 12, 15]
    assert (np.array(bars.y) - 0.5).tolist() == [0, 1, 2, 2, 1, 1]
    names = [text.split("<br>")[0] for text in bars.text]
    assert names == ["in use", "layer_1", "MatMul", "Relu", "x/y", "no label"]
    assert bars.text[1].endswith("<br>12.0 MiB, 75 %")


def test_hover_says_bytes_share_chunks_and_the_whole_path():
    _, bars = drawn(nested())
    assert bars.hovertext[2] == (
        "<b>layer_1/MatMul</b><br>in layer_1<br>8.0 MiB (8,388,608 B), 50.0 % of all bytes in use<br>"
        "1 chunk, 8.0 MiB (8,388,608 B) requested"
    )
    assert "2.0 MiB (2,097,152 B) of it in no rectangle below" in bars.hovertext[1]


def test_many_holders_are_few_rectangles_and_all_rows_of_the_table():
    heap = PlainHeap(1024 * MiB)
    for number in range(2000):
        heap.allocate(MiB // 4, f"group_{number % 10}/op_{number}")
    figure, bars = drawn(heap)
    assert len(bars.x) <= 2 * MOST
    table = figure.table
    assert table.num_rows == 1 + 10 + 2000
    assert sum(table["own_bytes"].to_pylist()) == 500 * MiB
    others = [text for text in bars.hovertext if "other:" in text]
    assert len(others) == 10
    assert "<b>other: 200 small holders together</b>" in others[0]


@pytest.mark.parametrize("by", ["op", "thread"])
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_a_holder_has_the_colour_that_most_of_its_bytes_have_in_the_map(theme, by):
    trace = nested().trace()
    model = Model(trace)
    model.seek(len(trace))
    look = Look(theme=theme.name)
    (bars,) = icicle_panel(icicle_of(HeapData(model), look, by), theme).traces
    chunks = model.in_use()
    made = colouring(trace, 0, "holder", theme, chunks)
    by_label = {
        trace.labels.name(int(chunk["label"])) or "no label": made.paints[number].fill
        for chunk, number in zip(chunks, made.classes(chunks, model.step), strict=True)
    }
    colours = list(bars["marker"]["color"])
    assert colours[0] == theme.pool.fill
    if by == "op":
        names = ["layer_1/MatMul", "layer_1/MatMul", "layer_1/Relu", "x/y", "no label"]
        assert colours[1:] == [by_label[name] for name in names]
        assert len(set(colours[2:])) == 4
    else:
        assert colours[1:] == [by_label["layer_1/MatMul"]]
    assert list(bars["insidetextfont"]["color"]) == [contrasting(colour) for colour in colours]


@pytest.mark.parametrize("place", ["peak", "last"])
def test_a_sample(place):
    trace = sample_trace("transformer")
    step = bfcviz.peak(trace) if place == "peak" else len(trace)
    figure = draw("holders", trace, step)
    model = Model(trace)
    model.seek(step)
    assert figure.table["bytes"][0].as_py() == model.stats().bytes_in_use
    assert len(figure.data[0].x) <= 300


def test_an_empty_heap_and_a_busy_one():
    figure, bars = drawn(PlainHeap(MiB))
    assert (bars.x.tolist(), figure.table.num_rows) == ([0], 1)
    assert len(draw("holders", busy_trace()).data[0].x) > 5


def test_no_two_rectangles_of_a_row_overlap_and_each_lies_below_its_own():
    """In a tree that is deeper than what is drawn."""
    trace = sample_trace("lstm")
    model = Model(trace)
    model.seek(bfcviz.peak(trace))
    icicle = icicle_of(HeapData(model), Look())
    assert max(part.depth for part in summary(icicle.found, MOST)) > icicle.rows
    bars = draw("holders", trace, model.step).data[0]
    left, right, row = np.array(bars.base), np.array(bars.base) + bars.x, np.array(bars.y)
    for number, part in enumerate(icicle.parts):
        if part.parent >= 0:
            assert row[number] == row[part.parent] + 1
            assert left[part.parent] - 1e-9 <= left[number] <= right[number] <= right[part.parent] + 1e-9
    for each in np.unique(row):
        at = np.flatnonzero(row == each)
        at = at[np.argsort(left[at], kind="stable")]
        assert (right[at][:-1] <= left[at][1:] + 1e-9).all()
