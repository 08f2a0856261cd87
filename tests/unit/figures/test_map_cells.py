"""The cells of a live map hold the bytes of the heap."""

import numpy as np
import pytest
from unit.figures.drawn_map import at_step, live_map_at
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.events.schema import Kind
from bfcviz.figures.map_image import RasterGrid, cell_bytes


@pytest.mark.parametrize("step", [150, 400, 609])
def test_cells_hold_the_bytes_of_the_heap(step):
    trace = busy_trace()
    model, live_map = at_step(trace, step), live_map_at(trace, step)
    stats, shares = model.stats(), live_map.cells.cell_bytes()
    assert shares.in_use.sum() == pytest.approx(stats.bytes_in_use)
    assert shares.waste.sum() == pytest.approx(stats.bytes_in_use - stats.requested_bytes_in_use)
    assert shares.region.sum() == pytest.approx(stats.pool_bytes)
    assert np.allclose(shares.by_class.sum(axis=0), shares.in_use)


@pytest.mark.parametrize("step", [150, 400])
def test_a_live_map_and_a_map_made_anew_have_the_same_cells(step):
    trace = busy_trace()
    moved = live_map_at(trace, step, "label")
    moved.take(trace.read(step, len(trace)))
    model = at_step(trace, len(trace))
    chunks, rows = model.chunks(), moved.rows
    grid = RasterGrid(rows, rows.part(None), moved.cells.cell_bytes().region.shape[1])
    anew = cell_bytes(chunks, moved.colours.classes(chunks, model.step), len(moved.colours.paints), grid)
    assert len(np.flatnonzero(anew.by_class.sum(axis=(1, 2)))) > 1
    assert np.allclose(moved.cells.cell_bytes().by_class, anew.by_class, atol=1e-3)


def test_regions_that_come_later_are_left_out():
    heap = PlainHeap(MiB, regions=2, gap=MiB)
    heap.allocate(MiB)
    before = len(heap.events)
    heap.allocate(MiB)
    trace = heap.trace()
    live_map = live_map_at(trace, before)
    image = live_map.image()
    live_map.take(trace.read(before, len(trace)))
    assert live_map.image() == image


@pytest.mark.parametrize("size", [3 * MiB, 1 << 40, 1 << 63])
@pytest.mark.parametrize("last", [True, False])
def test_what_a_region_grew_by_is_left_out(size, last):
    """A chunk that reaches past the old end of its region is clipped there; damaged events may hold any size."""
    heap = PlainHeap(MiB, regions=3, gap=MiB)
    first, _, end = [heap.allocate(MiB) for _ in range(3)]
    heap.free(first)
    heap.free(end)
    trace = heap.trace()
    live_map = live_map_at(trace, len(trace))
    before = live_map.cells.cell_bytes()
    events = trace.read(len(trace) - 2, len(trace)).copy()
    places = at_step(trace, len(trace)).regions()["address"]
    events["kind"] = [Kind.ALLOCATE, Kind.FREE]
    events["address"] = int(places[-1 if last else 0]) + 3 * MiB // 4
    events["size"], events["requested"] = size, 1000
    live_map.take(events[:1])
    held = live_map.cells.cell_bytes()
    assert held.in_use.sum() == pytest.approx(before.in_use.sum() + MiB // 4)
    assert held.waste.sum() == pytest.approx(before.waste.sum() + MiB // 4 - 1000)
    assert (held.in_use <= held.region + 1e-3).all()
    live_map.take(events[1:])
    assert np.allclose(live_map.cells.cell_bytes().in_use, before.in_use)
