"""The ladder: one step per free chunk, as wide and high as its bytes, and the request across."""

import numpy as np
import pytest
from heaps import GIB, model_of, new_heap
from unit.figures.drawn import ladder
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.figures.free_chunk_ladder import STEPS, free_chunk_at, ladder_of, ladder_panel
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model import Model


def at_end(trace):
    model = Model(trace)
    model.seek(len(trace))
    return model


def panel_of(model, look):
    return ladder_panel(ladder_of(model, look), model.trace.labels, look)


@pytest.fixture
def model():
    model = Model(busy_trace())
    model.seek(300)
    return model


@pytest.fixture
def heap():
    """[free 16 | a 12 | free 18 | b 9 | free 9] MiB, then a request of 24 MiB that failed."""
    heap = PlainHeap(64 * MiB)
    places = [heap.allocate(size * MiB, name) for name, size in zip("fagbh", (16, 12, 18, 9, 9), strict=True)]
    for place in places[::2]:
        heap.free(place)
    heap.allocate(24 * MiB)
    return heap


def named(panel, name):
    return next(trace for trace in panel.traces if trace.get("name") == name)


def bars(panel, name, unit=1):
    """Left edges, widths and heights in units of `unit` bytes."""
    trace = named(panel, name)
    scale = panel.y_unit / unit
    return [(np.asarray(trace[key]) * scale).round(6).tolist() for key in ("x", "width", "y")]


def test_each_free_chunk_is_a_step_and_the_request_divides_them(heap):
    panel = panel_of(at_end(heap.trace()), Look(wanted=10 * MiB))
    assert bars(panel, "would take it", MiB) == [[0, 18], [18, 16], [18, 16]]
    assert bars(panel, "free", MiB) == [[34], [9], [9]]
    line = named(panel, "asked")
    assert (np.asarray(line["y"]) * panel.y_unit).tolist() == [10 * MiB] * 2


def test_a_failed_request_is_a_line_above_the_first_step(heap):
    panel = panel_of(at_end(heap.trace()), PLAIN)
    line = named(panel, "failed request")
    assert line["y"][0] * panel.y_unit == 24 * MiB
    assert line["line"]["color"] == PLAIN.paints.oom
    assert bars(panel, "would take it") == [[], [], []]
    assert panel.yaxis["range"][1] * panel.y_unit > 24 * MiB
    (name,) = [trace for trace in panel.traces if "failed" in str(trace.get("text"))]
    assert name["y"][0] - line["y"][0] >= 0.01 * panel.yaxis["range"][1]  # the line does not strike it out


def test_each_place_of_the_ladder_is_a_free_chunk(heap):
    model = at_end(heap.trace())
    by_size = [chunk["address"] for chunk in ladder_of(model, PLAIN).chunks]
    places = [free_chunk_at(ladder_of(model, PLAIN), x) for x in (0.0, 17.9, 18.1, 33.9, 34.1, 42.9)]
    assert places == [Selected(int(by_size[at]), None) for at in (0, 0, 1, 1, 2, 2)]
    beside = [free_chunk_at(ladder_of(model, PLAIN), x) for x in (-0.1, 1e9, float("nan"))]
    assert beside == [None, None, None]


def test_the_table_has_every_free_chunk_by_size(model):
    table = ladder(model, look=Look(wanted=4096)).table.to_pylist()
    chunks = model.chunks()
    free = chunks[~chunks["in_use"]]
    assert [row["size"] for row in table] == sorted(free["size"].tolist(), reverse=True)
    assert {row["address"] for row in table} == set(free["address"].tolist())
    assert table[-1]["bytes_up_to_here"] == model.stats().free_bytes
    assert [row["takes"] for row in table] == [row["size"] >= 4096 for row in table]
    assert {row["takes"] for row in ladder(model).table.to_pylist()} == {None}


def test_the_selected_free_chunk_is_outlined(model):
    chunks = model.chunks()
    chunk = chunks[~chunks["in_use"]][0]
    panel = panel_of(model, Look(selected=Selected(int(chunk["address"]))))
    assert bars(panel, "selected")[2] == [int(chunk["size"])]
    used = chunks[chunks["in_use"]][0]
    panel = panel_of(model, Look(selected=Selected(int(used["address"]), int(used["born"]))))
    assert bars(panel, "selected")[2] == []


def test_a_panel_has_the_same_traces_at_every_step(model):
    count = len(panel_of(model, PLAIN).traces)
    for step, look in ((0, PLAIN), (0, Look(wanted=1 << 30)), (300, Look(wanted=256, theme="dark"))):
        model.seek(step)
        assert len(panel_of(model, look).traces) == count


def test_thousands_of_chunks_share_steps_but_lose_no_bytes_and_no_answer():
    heap = new_heap(2 * GIB)
    places = [heap.allocate(256 * (1 + number % 1500)) for number in range(6000)]
    for place in places[::2]:
        heap.free(place)
    model, wanted = model_of(heap), 256 * 900
    panel = panel_of(model, Look(wanted=wanted))
    steps = [bars(panel, name) for name in ("would take it", "free")]
    assert 100 < sum(len(left) for left, _, _ in steps) <= 2 * STEPS
    free = model.chunks()[~model.chunks()["in_use"]]["size"].astype(int)
    for (left, width, height), held in zip(steps, (free[free >= wanted], free[free < wanted]), strict=True):
        assert sum(width) == pytest.approx(held.sum())
        assert height[0] == held.max()
        assert height == sorted(height, reverse=True)
        assert left == sorted(left)
