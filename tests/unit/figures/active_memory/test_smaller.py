"""The areas of the smaller allocations."""

import numpy as np
import pytest
from unit.figures.active_memory.outlines import area
from unit.figures.synthetic import KiB, MiB, PlainHeap
from unit.model.one_pass import find

from bfcviz.events.trace import Trace
from bfcviz.figures import active_memory
from bfcviz.figures.active_memory import MOST_AREAS, active_memory_panel, active_memory_window
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT, mixed
from bfcviz.figures.view_options import FADE, Look
from bfcviz.model.grouping import HolderChoice


def areas(window):
    """Colour -> outline, (points, 2), in axis units."""
    traces = active_memory_panel(window, None, Look()).traces[1 : 1 + MOST_AREAS]
    found = {}
    for trace in traces:
        points = np.column_stack([trace["x"], trace["y"]]).astype(float)
        if not np.isnan(points).any():
            found[trace["fillcolor"]] = points
    return found


@pytest.fixture
def few_bands(monkeypatch):
    monkeypatch.setattr(active_memory, "LARGEST", 2)


def two_holders():
    """Two large allocations, and many small ones of two labels, the second from the middle on."""
    heap = PlainHeap(64 * MiB)
    for name in ("large_a", "large_b"):
        heap.allocate(8 * MiB, name)
    for name in ("x/small", "y/small"):
        for _ in range(50):
            heap.allocate(64 * KiB, name)
    return heap.trace()


def lived(trace, lives):
    """Bytes times steps."""
    ends = np.minimum(lives["died"].astype(float) + 1, len(trace))
    return float((lives["size"] * (ends - lives["born"].astype(float) - 1)).sum())


def test_areas_cover_the_bytes_that_have_no_band(trace, monkeypatch):
    monkeypatch.setattr(active_memory, "LARGEST", 20)
    seen = active_memory_window(trace)
    without_band = lived(trace, find(trace).lifetimes) - lived(trace, find(trace, largest=20).lifetimes)
    drawn = sum(area(outline) for outline in areas(seen).values()) * seen.divisor
    assert drawn == pytest.approx(without_band, rel=1e-3)


def test_each_holder_has_an_area_of_its_colour_above_the_bands(few_bands):
    trace = two_holders()
    colours = colouring(trace, 0, "holder", LIGHT)
    seen = active_memory_window(trace, 0, Look(colour="holder"), colours)
    found = areas(seen)
    for name in ("x", "y"):
        outline = found[colours.paints[colours.holders.of_path((name, "small"))].fill]
        right = outline[outline[:, 0] == outline[:, 0].max()] * seen.divisor
        assert np.ptp(right[:, 1]) == pytest.approx(50 * 64 * KiB, rel=0.05)
        assert right[:, 1].min() >= 16 * MiB


def test_areas_outside_of_the_chosen_holder_are_faded(few_bands):
    trace = two_holders()
    colours = colouring(trace, 0, "holder", LIGHT)
    look = Look(colour="holder", holder=HolderChoice("op", ("x",)))
    fills = areas(active_memory_window(trace, 0, look, colours))
    of_x, of_y = (colours.paints[colours.holders.of_path((name, "small"))].fill for name in ("x", "y"))
    assert set(fills) == {of_x, mixed(of_y, LIGHT.paper, FADE)}


def test_without_smaller_allocations_nothing_is_read_and_no_area_is_drawn():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "a")
    seen = active_memory_window(heap.trace())
    assert seen.by_class is None
    assert areas(seen) == {}


@pytest.mark.parametrize("axis", ["step", "time"])
def test_other_colours_and_a_longer_trace_read_only_new_events(few_bands, monkeypatch, axis):
    trace = two_holders()
    look = Look(colour="holder", axis=axis, steps=(0, 120))
    seen = active_memory_window(trace, 0, look)
    read = []
    blocks = Trace.blocks
    monkeypatch.setattr(Trace, "blocks", lambda *of: read.extend(each := list(blocks(*of))) or each)
    again = seen.class_reader.read((0, 120), seen.step_axis, seen.colours.for_images)
    assert sum(map(len, read)) == 0
    assert (again.held == seen.by_class.held).all()
    longer = seen.class_reader.read((0, len(trace)), seen.step_axis, seen.colours.for_images)
    assert sum(map(len, read)) == len(trace) - 120
    fresh = active_memory_window(trace, 0, Look(colour="holder", axis=axis))
    assert np.allclose(longer.held, fresh.by_class.held)
