"""What a request finds on the region map: chunks that would take it, or the nearest miss and its blockers."""

import numpy as np
import pytest
from unit.figures.drawn import region_map
from unit.figures.synthetic import BASE, KiB, MiB, PlainHeap

from bfcviz.figures.region_map import MOST_BLOCKERS, MOST_TAKERS
from bfcviz.figures.view_options import Look, MapWindow
from bfcviz.model import Model


def at_end(heap):
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return model


@pytest.fixture
def heap():
    """[free 16 | a 12 | free 18 | <b>b</b> 9 | free 9] MiB of a region of 64 MiB."""
    heap = PlainHeap(64 * MiB)
    names = ("x", "a", "y", "<b>b</b>", "z")
    places = [heap.allocate(size * MiB, name) for name, size in zip(names, (16, 12, 18, 9, 9), strict=True)]
    for place in places[::2]:
        heap.free(place)
    return heap


def boxes(figure, name):
    """(address in MiB, size in MiB) of each outlined rectangle, pieces of one chunk joined."""
    (trace,) = [trace for trace in figure.data if trace.name == name]
    x, y = np.reshape(trace.x, (-1, 6)), np.reshape(trace.y, (-1, 6))
    width = 4  # MiB of a row: 64 MiB in 16 rows
    spans = [
        (int(np.floor(low)) * width + left, right - left)
        for left, right, low in zip(x[:, 0], x[:, 1], y[:, 0], strict=True)
    ]
    joined = []
    for start, size in spans:
        if joined and joined[-1][0] + joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((start, size))
    return sorted(joined)


def marked(figure, symbol):
    points = [trace for trace in figure.data if trace.type == "scatter" and trace.mode == "markers"]
    return [trace for trace in points if trace.marker.symbol == symbol]


def names(figure):
    return {trace.name for trace in figure.data if trace.type == "scatter" and trace.showlegend}


def test_chunks_that_would_take_it_are_outlined_and_the_best_fit_has_a_star(heap):
    figure = region_map(at_end(heap), look=Look(wanted=10 * MiB))
    assert boxes(figure, "would take it") == [(0, 16), (28, 18)]
    (star,) = marked(figure, "star")
    assert len(star.x) == 1
    assert hex(BASE) in star.hovertext[0]
    assert names(figure).isdisjoint({"nearest miss", "in the way"})


def test_the_nearest_miss_is_framed_and_its_blockers_are_crossed_and_named(heap):
    heap.allocate(22 * MiB)  # fails: the pool cannot grow
    model = at_end(heap)
    figure = region_map(model)
    assert boxes(figure, "nearest miss") == [(28, 36)]
    (cross,) = marked(figure, "x")
    assert cross.marker.color == Look().paints.oom
    assert {"&lt;b&gt;b&lt;/b&gt;" in text and "9.0 MiB" in text for text in cross.hovertext} == {True}
    assert "36.0 MiB" in figure.layout.annotations[0].text
    asked = region_map(model, look=Look(wanted=1))
    assert boxes(asked, "would take it") == [(0, 16), (28, 18), (55, 9)]


def test_a_request_that_growth_serves_has_no_miss(heap):
    figure = region_map(at_end(heap), look=Look(wanted=22 * MiB))  # the trace's limit is 512 MiB
    assert names(figure).isdisjoint({"would take it", "nearest miss", "in the way"})


def test_without_a_request_nothing_is_marked_and_the_traces_are_the_same(heap):
    model = at_end(heap)
    plain, asked = region_map(model), region_map(model, look=Look(wanted=MiB))
    assert len(plain.data) == len(asked.data)
    assert names(plain).isdisjoint({"would take it", "nearest miss", "in the way"})


def test_only_so_many_are_marked_and_only_those_on_screen():
    heap = PlainHeap(MiB)
    places = [heap.allocate(KiB) for _ in range(1024)]
    for place in places[::2]:
        heap.free(place)
    model = at_end(heap)
    figure = region_map(model, look=Look(wanted=KiB))
    (trace,) = [trace for trace in figure.data if (trace.name or "").startswith("would take it")]
    assert len(trace.x) == 6 * MOST_TAKERS
    assert f"{512 - MOST_TAKERS:,}" in trace.name
    window = MapWindow((0, 64 * KiB), (0, 1))
    figure = region_map(model, look=Look(wanted=KiB, map_window=window))
    (trace,) = [trace for trace in figure.data if (trace.name or "").startswith("would take it")]
    assert len(trace.x) == 6 * 32
    heap.allocate(MiB // 2)  # fails
    (cross,) = marked(region_map(at_end(heap)), "x")
    assert len(cross.x) == MOST_BLOCKERS
