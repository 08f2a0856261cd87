"""Bands: their outlines, names and hover texts."""

import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from unit.figures.active_memory.outlines import area, polygons, three_steps
from unit.figures.synthetic import MiB, PlainHeap, busy_trace
from unit.model.one_pass import find

from bfcviz.figures import active_memory as module
from bfcviz.figures.active_memory import active_memory_panel, active_memory_window, stack
from bfcviz.figures.view_options import Look
from bfcviz.model import timeline
from bfcviz.model.lifetimes import LIFETIME


def test_a_band_comes_down_when_one_below_it_ends():
    trace = three_steps()
    lived = find(trace).lifetimes
    heights = {}
    for outline in polygons(active_memory_panel(active_memory_window(trace), None, Look())):
        heights[round(outline[:, 0].min())] = outline
    born = {trace.labels.name(int(life["label"])): int(life["born"]) + 1 for life in lived}
    a_ends = int(lived["died"][0]) + 1
    c = heights[born["c"]]
    before, after = c[c[:, 0] < a_ends], c[c[:, 0] > a_ends]
    assert before[:, 1].min() / after[:, 1].min() == pytest.approx(5 / 2)


def test_each_band_covers_its_bytes_for_as_long_as_it_lived(trace):
    seen = active_memory_window(trace)
    drawn = sorted(area(outline) * seen.divisor for outline in polygons(active_memory_panel(seen, 5, Look())))
    every = find(trace, largest=module.LARGEST).lifetimes
    lived = np.minimum(every["died"].astype(float) + 1, len(trace)) - every["born"].astype(float) - 1
    covered = np.sort(every["size"] * lived)
    assert np.allclose(drawn, covered)


def test_only_the_largest_have_a_band_and_the_caption_says_so(trace, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 20)
    seen = active_memory_window(trace)
    panel = active_memory_panel(seen, None, Look())
    count = len(find(trace).lifetimes)
    assert f"{count - 20:,} smaller" in panel.caption
    assert "the 20 largest allocations" in panel.caption
    assert len(polygons(panel)) == 20
    assert max(panel.traces[0]["y"]) * seen.divisor == timeline(trace)["bytes_in_use_max"].max()


def test_wide_bands_carry_their_names_and_points_tell_the_rest():
    heap = PlainHeap(64 * MiB)
    heap.allocate(3 * MiB, "a/very/long/name/of/an/operation/layer_1/MatMul")
    heap.allocate(2 * MiB, "<b>b</b>")
    panel = active_memory_panel(active_memory_window(heap.trace()), None, Look())
    (names,) = [trace for trace in panel.traces if trace.get("mode") == "text"]
    assert names["text"] == ["a/very/long/name/of/an/operation/layer_1/MatMul"]
    (points,) = [trace for trace in panel.traces if trace.get("mode") == "none" and "hovertext" in trace]
    assert any("size 3.0 MiB (3,145,728 B)" in text for text in points["hovertext"])
    assert "<b>b</b>" not in str(names) + str(points["hovertext"]).replace("<b>&lt;b&gt;", "")


def test_a_name_stays_on_the_longest_level_of_its_band():
    # The band comes down when the one below it ends: at its middle no name has room on either side.
    heap = PlainHeap(64 * MiB)
    below = heap.allocate(8 * MiB)
    heap.allocate(4 * MiB, "layer_1/MatMul")
    begin = len(heap.trace())
    for _ in range(11):
        heap.free(heap.allocate(256))
    heap.free(below)
    step = len(heap.trace())
    for _ in range(12):
        heap.free(heap.allocate(256))
    trace = heap.trace()
    seen = active_memory_window(trace)
    (names,) = [each for each in active_memory_panel(seen, None, Look()).traces if each.get("mode") == "text"]
    assert names["text"] == ["layer_1/MatMul"]
    half = len("layer_1/MatMul") * module._LETTER * len(trace) / 2
    assert begin < step < names["x"][0] - half < names["x"][0] + half < len(trace)
    assert names["y"][0] * seen.divisor == 2 * MiB


@given(seeded_operations())
def test_every_lifetime_lies_on_those_that_began_before_it(steps):
    lives = find(run(steps).trace(), 0).lifetimes
    found = stack(lives)
    for number, life in enumerate(lives):
        for at in range(found.first[number], found.last[number]):
            moment = found.moments[at]
            alive = (lives["born"] <= moment) & (moment < lives["died"])
            assert found.below[number, at] == lives["size"][:number][alive[:number]].sum()
        assert found.moments[found.first[number]] == life["born"]
        assert found.moments[found.last[number]] == life["died"]


def test_turns_are_where_the_height_changes():
    lives = find(busy_trace()).lifetimes
    found = stack(lives)
    for number in range(len(lives)):
        heights = found.below[number, found.turns(number)]
        assert (np.diff(heights) < 0).all()


def test_no_lifetimes_make_no_stack():
    assert stack(np.zeros(0, LIFETIME)).below.shape == (0, 0)
