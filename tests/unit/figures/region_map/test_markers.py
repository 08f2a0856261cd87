"""Touched, selected and lone chunks on the region map."""

import sys

import numpy as np
from unit.figures.drawn import region_map
from unit.figures.region_map.drawn_map import area, at_step, of_mode, rectangles, unit
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace

from bfcviz.figures.region_map import chunk_at
from bfcviz.figures.view_options import Look, MapWindow, Selected


def test_the_touched_chunk_is_outlined_and_a_narrow_one_gets_a_marker():
    heap = PlainHeap(64 * MiB)
    heap.allocate(4 * KiB)
    model = at_step(heap.trace(), 3)
    figure = region_map(model)
    outline = rectangles(figure, "touched by this step")
    assert (outline[:, 1] - outline[:, 0]) * unit(figure) == 4 * KiB
    _, _, marker = of_mode(figure, "markers")
    assert list(marker.x) == [2 * KiB / unit(figure)]
    model.seek(0)
    assert len(rectangles(region_map(model), "touched by this step")) == 0


def test_the_selected_chunk_is_outlined_while_it_is_there():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for state in (True, False):
        chunk = chunks[chunks["in_use"] == state][2]
        chosen = Selected(int(chunk["address"]), int(chunk["born"]) if state else None)
        assert area(region_map(model, look=Look(selected=chosen)), "selected") == chunk["size"]
        for other in (Selected(chosen.address, 399), Selected(chosen.address + 1, chosen.born), Selected(0)):
            assert not area(region_map(model, look=Look(selected=other)), "selected")


def test_one_small_chunk_in_a_terabyte_can_be_found_clicked_and_zoomed_to():
    heap = PlainHeap(1 << 40)
    held = [heap.allocate(256), heap.allocate(1 << 37), heap.allocate(1)]
    heap.free(held[1])
    model = at_step(heap.trace(), len(heap.events))
    figure = region_map(model)
    mark, *_ = of_mode(figure, "markers")
    assert len(mark.x) == 2
    assert mark.showlegend
    found = chunk_at(model, mark.x[1] + 0.05, mark.y[1], Look())
    assert (int(found["address"]), int(found["size"])) == (held[2], 256)
    offset = (held[2] - held[0]) % (1 << 36)
    look = Look(map_window=MapWindow((offset - 300.0, offset + 700.0), (2.0, 3.0)))
    near = region_map(model, look=look)
    assert area(near, "in use") == 256
    assert np.isnan(of_mode(near, "markers")[0].x).all()
    assert chunk_at(model, (offset + 100) / unit(near), 2.5, look)["address"] == held[2]


def test_a_lone_chunk_in_an_image_is_marked_too(monkeypatch):
    monkeypatch.setattr(sys.modules["bfcviz.figures.region_map"], "EXACT_CHUNKS", 1)
    heap = PlainHeap(1 << 40)
    heap.allocate(256)
    mark, *_ = of_mode(region_map(at_step(heap.trace(), 3)), "markers")
    assert list(mark.y) == [0.98]
