"""Rectangles of the region map: the bytes that they cover, and their lines."""

import pytest
from unit.figures.drawn import region_map
from unit.figures.region_map.drawn_map import (
    area,
    at_step,
    named,
    rectangles,
)
from unit.figures.synthetic import KiB, PlainHeap, busy_trace

from bfcviz.figures.colouring import COLOURINGS, colouring
from bfcviz.figures.theme import LIGHT
from bfcviz.figures.view_options import Look


@pytest.mark.parametrize("step", [1, 2, 150, 609])
def test_rectangles_cover_exactly_the_bytes_of_each_state(step):
    model = at_step(busy_trace(), step)
    figure = region_map(model)
    stats = model.stats()
    assert area(figure, "free") == stats.free_bytes
    assert area(figure, "in use") == stats.bytes_in_use
    assert area(figure, "waste (size - requested)") == stats.bytes_in_use - stats.requested_bytes_in_use
    assert area(figure, "region") == stats.pool_bytes


@pytest.mark.parametrize(("regions", "mode"), [(100, "lines"), (200, "none")])
def test_where_no_frame_hides_them_there_are_no_lines_between_rectangles(regions, mode):
    heap = PlainHeap(4 * KiB, regions=regions, gap=4 * KiB)
    for _ in range(regions):
        heap.allocate(3 * KiB)
    figure = region_map(at_step(heap.trace(), len(heap.events)))
    assert len(rectangles(figure, "in use")) > 0
    assert {named(figure, name).mode for name in ("in use", "free")} == {mode}
    assert (len(rectangles(figure, "region")) > 0) == (mode == "lines")


def test_classes_cover_the_bytes_in_use():
    model = at_step(busy_trace(), 400)
    chunks = model.chunks()
    for colour in COLOURINGS:
        figure = region_map(model, look=Look(colour=colour))
        made = colouring(model.trace, 0, colour, LIGHT, chunks)
        classes = made.classes(chunks, 400)
        for number, name in enumerate(made.names):
            if name:
                assert area(figure, name) == chunks["size"][classes == number].sum()
