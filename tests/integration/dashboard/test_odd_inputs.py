"""The whole dashboard on unusual traces."""

from itertools import cycle

import pytest
from heaps import new_heap
from unit.dashboard.pages import assert_fit_for_a_page
from unit.figures.odd_traces import LABELS, ODD, many_regions

from bfcviz.dashboard import Inspector
from bfcviz.dashboard.layouts import EVERYTHING, layouts
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.model.trace_from_source import trace_of

LAYOUTS = tuple(layouts())
WIDEST = (EVERYTHING, "active_memory", "chunk_table", "event_table", "export")
"""Layouts with all panels, tables and rows of buttons; the others show a part of the panels of `everything`."""


def look_at_layouts(inspector, steps, shown):
    """Every layout, step and axis, without all of their products."""
    axes, turns = cycle(("step", "time")), cycle(steps)
    for views in shown:
        inspector.views = views
        for step in steps if views == EVERYTHING else (next(turns),):
            inspector.axis = next(axes)
            inspector.step = step
        assert_fit_for_a_page(inspector)
        inspector.axis = "time" if inspector.axis == "step" else "step"
        assert_fit_for_a_page(inspector)


def use_colours_and_buttons(inspector):
    for number, colour in enumerate(COLOURINGS):
        third = 3 * number // len(COLOURINGS)
        inspector.colour = colour
        inspector.views = ("chunk_table", "event_table", "memory")[third]
        inspector.page_theme = ("light", "dark")[third % 2]
        inspector.width = (480, 700, 1100)[third]
    for button in inspector.toolbar.buttons.values():
        button.click()
    assert_fit_for_a_page(inspector)


@pytest.mark.parametrize("name", ODD)
def test_it_is_shown(name):
    trace = ODD[name]()
    inspector = Inspector(trace, len(trace))
    steps = sorted({0, len(trace) // 2, len(trace)})
    look_at_layouts(inspector, steps, LAYOUTS if name in {"empty", "odd_labels"} else WIDEST)
    use_colours_and_buttons(inspector)
    for pool in range(1, len(trace.origin.pools)):
        inspector.pool = pool
        look_at_layouts(inspector, steps, (EVERYTHING,))


def test_thousands_of_regions_are_shown():
    trace = many_regions()
    inspector = Inspector(trace, len(trace), views="everything")
    inspector.colour = "label"
    assert_fit_for_a_page(inspector)


def test_no_text_of_a_trace_becomes_markup_however_it_is_shown():
    trace = ODD["odd_labels"]()
    inspector = Inspector(trace, views="everything")
    for step in range(len(trace) + 1):
        inspector.step = step
        assert_fit_for_a_page(inspector)
    for views in LAYOUTS:
        inspector.views = views
        assert_fit_for_a_page(inspector)
    chunks = inspector.panel_data.model.chunks()
    for chunk in chunks[chunks["in_use"]]:
        inspector.receive({"do": "select", "address": str(chunk["address"]), "born": int(chunk["born"])})
        assert f"step {int(chunk['born']) + 1:,}" in inspector.chunk.text.value
        assert_fit_for_a_page(inspector)
    inspector.export_row.toggle_code()
    assert_fit_for_a_page(inspector)


# -- a trace that grows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", WIDEST)
def test_a_trace_grows_from_nothing(views, tmp_path):
    with Recording(tmp_path / "run", [Pool("gpu", 1 << 20)]) as recording:
        heap = new_heap(1 << 20, log=recording.log, labels=recording.labels)
        trace = Trace.open(tmp_path / "run")
        inspector = Inspector(trace, follow=True, views=views, axis="time")
        inspector.trace_grew()
        for names in (LABELS[:1], LABELS[1:], ["more"]):
            for name in names:
                heap.allocate(1000, label=name)
            trace.refresh()
            inspector.trace_grew()
            assert inspector.step == len(trace) > 0
            assert_fit_for_a_page(inspector)
        inspector.step = 1
        heap.allocate(1000)
        trace.refresh()
        inspector.trace_grew()
        assert inspector.step == 1


def test_the_first_step_is_the_first_that_is_kept():
    heap = new_heap(1 << 20, log=EventLog(1024))
    for size in range(900):
        heap.free(heap.allocate(1000 + size))
    trace = trace_of(heap, keep=512)
    inspector = Inspector(trace, follow=True)
    assert inspector.step == len(trace) > trace.first > 0
    for move in ("first", "back"):
        inspector.act(move)
        assert inspector.step == trace.first
    inspector.receive({"do": "zoom", "ranges": {"3": {"x": [-9e9, -8e9], "y": [0, 1]}}})
    assert inspector.look.steps is None  # nothing is there
    assert_fit_for_a_page(inspector)
