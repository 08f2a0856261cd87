"""The whole dashboard on traces as nobody would wish for, and messages that no page of ours sends."""

import math

import ipywidgets as widgets
import pytest
from figures.odd_traces import LABELS, ODD, assert_drawable, assert_harmless, many_regions
from figures.synthetic import busy_trace
from heaps import new_heap

from bfcviz.dashboard import Inspector
from bfcviz.dashboard.controls.summary_text import notice
from bfcviz.dashboard.panels.layouts import LAYOUTS
from bfcviz.dashboard.sources import trace_of
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import COLOURINGS

OURS = {
    *("a", "b", "br", "button", "code", "col", "colgroup", "div", "i", "span", "style", "table", "tbody"),
    *("td", "textarea", "th", "thead", "tr", "u"),
}
"""Tags that the dashboard's own HTML is made of."""


def everything_in(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from everything_in(child)


def assert_fit_for_a_page(inspector):
    for widget in everything_in(inspector):
        if isinstance(widget, widgets.HTML):
            assert_harmless(widget.value, OURS)
    assert_drawable(inspector.view.widget.to_dict())


def looked_at_from_all_sides(inspector, steps):
    """Every view, colouring and axis, without all of their products."""
    for views in LAYOUTS:
        inspector.views = views
        for axis in ("step", "time"):
            inspector.axis = axis
            for step in steps:
                inspector.step = step
            assert_fit_for_a_page(inspector)
    for number, colour in enumerate(COLOURINGS):
        inspector.colour = colour
        inspector.tabs.selected_index = number % 3
        inspector.page_theme = ("light", "dark")[number % 2]
        inspector.width = (480, 700, 1100)[number % 3]
    for button in inspector.controls.buttons.values():
        button.click()
    assert_fit_for_a_page(inspector)


@pytest.mark.parametrize("name", ODD)
def test_it_is_shown(name):
    trace = ODD[name]()
    inspector = Inspector(trace, len(trace))
    for pool in range(len(trace.origin.pools)):
        inspector.pool = pool
        looked_at_from_all_sides(inspector, sorted({0, len(trace) // 2, len(trace)}))


def test_thousands_of_regions_are_shown():
    trace = many_regions()
    inspector = Inspector(trace, len(trace), views="everything")
    inspector.colour = "label"
    assert_fit_for_a_page(inspector)


def test_no_text_of_a_trace_becomes_markup_however_it_is_shown():
    trace = ODD["odd_labels"]()
    inspector = Inspector(trace, views="everything")
    inspector.tabs.selected_index = 1
    for step in range(len(trace) + 1):
        inspector.step = step
        assert_fit_for_a_page(inspector)
    chunks = inspector.panel_data.model.chunks()
    for chunk in chunks[chunks["in_use"]]:
        inspector.receive({"do": "select", "address": str(chunk["address"]), "born": int(chunk["born"])})
        assert f"step {int(chunk['born']) + 1:,}" in inspector.summary.life.value
        assert_fit_for_a_page(inspector)
    inspector.export_row.toggle_code()
    assert_fit_for_a_page(inspector)


# -- how far a trace can be trusted ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.TRUNCATED, Status.DEGRADED])
def test_an_incomplete_trace_says_so_and_why(status):
    whole = busy_trace(20)
    origin = Origin(status=status, reasons=("it broke <off>", "a disk was full"), pools=whole.origin.pools)
    inspector = Inspector(Trace.from_events(whole.read(0, len(whole)), whole.labels, origin))
    said = inspector.summary.notice
    assert said.layout.display is None
    assert f"This trace is {status}" in said.value
    assert "it broke &lt;off&gt;; a disk was full" in said.value


@pytest.mark.parametrize("status", [Status.COMPLETE, Status.RECORDING])
def test_a_trace_as_it_should_be_needs_no_notice(status):
    assert notice(Origin(status=status)) == ""


def test_a_complete_trace_has_no_empty_line():
    assert Inspector(busy_trace(20)).summary.notice.layout.display == "none"


# -- a trace that grows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", LAYOUTS)
def test_a_trace_grows_from_nothing(views, tmp_path):
    with Recording(tmp_path / "run", [Pool("gpu", 1 << 20)]) as recording:
        heap = new_heap(1 << 20, log=recording.log, labels=recording.labels)
        trace = Trace.open(tmp_path / "run")
        inspector = Inspector(trace, follow=True, views=views, axis="time")
        inspector.trace_grew()
        for name in (*LABELS, "more"):
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
    inspector.receive({"do": "zoom", "ranges": {"2": {"x": [-9e9, -8e9], "y": [0, 1]}}})
    assert inspector.look.steps[0] >= trace.first
    assert_fit_for_a_page(inspector)


# -- messages ----------------------------------------------------------------------------------------------------

NONSENSE = (
    *(None, math.nan, math.inf, -math.inf, -1, 0, 1, 1.5, 1e300, 1 << 64, -(1 << 70), 10**400, True),
    *("", "abc", "1", "0x10", "1" * 5000, "chunks", "²", [], [1, 2], {}, {"x": 1}),
)
DEEDS = ("theme", "width", "key", "click", "zoom", "whole", "step", "select", "sort", "scroll")
FIELDS = ("theme", "width", "key", "panel", "x", "y", "ranges", "step", "address", "born", "list", "rows")
"""All but `by`: what chunks are sorted by is nonsense in a way of its own."""


def nonsense():
    yield from NONSENSE
    for what in NONSENSE:
        yield {"do": what}
        for do in DEEDS:
            yield {"do": do} | dict.fromkeys((*FIELDS, "by"), what)
        for panel in ("1", "2", "7", "8", "9", "0", "-1", "²", "x"):
            yield {"do": "zoom", "ranges": {panel: what}}
            for ends in (what, [what, 1], [0, what], [what, what], [1, 2, 3]):
                yield {"do": "zoom", "ranges": {panel: {"x": ends, "y": [0, 1]}}}
                yield {"do": "zoom", "ranges": {panel: {"x": [0, 1], "y": ends}}}
    yield from ({"do": do} for do in DEEDS)


def far_off():
    for panel in range(1, 9):
        for x in (-1e18, -5, 0, 1e-9, 0.5, 1e9, 1e18):
            for y in (-1e18, -5, 0.5, 1e18):
                yield {"do": "click", "panel": panel, "x": x, "y": y}
                yield {"do": "zoom", "ranges": {str(panel): {"x": [x, x + 1], "y": [y, y + 1]}}}
                yield {"do": "zoom", "ranges": {str(panel): {"x": [x, y], "y": [y, x]}}}
    for address in ("0", str((1 << 64) - 1)):
        for born in (None, 0, 1, 1 << 63):
            yield {"do": "select", "address": address, "born": born}
    for rows in (-(1 << 53), 1 << 53):
        for name in ("chunks", "events"):
            yield {"do": "scroll", "list": name, "rows": rows}


@pytest.mark.parametrize(
    ("name", "messages"), [("empty", far_off), ("no_time_at_all", far_off), ("odd_labels", nonsense)]
)
def test_no_message_raises_or_leaves_it_unable_to_draw(name, messages):
    trace = ODD[name]()
    inspector = Inspector(trace, len(trace), views="everything")
    for number, message in enumerate(messages()):
        if number % 50 == 0:
            inspector.act("whole")
            inspector.axis = ("step", "time")[number // 50 % 2]
        inspector.receive(message)
    assert_fit_for_a_page(inspector)
    inspector.act("whole")
    inspector.receive({"do": "step", "step": 0})
    assert inspector.step == 0


def test_nonsense_is_named():
    inspector = Inspector(busy_trace(20), 5)
    inspector.receive({"do": "step", "step": "<b>"})
    assert inspector.step == 5
    assert "&lt;b&gt;" in inspector.summary.event.value
    assert "whole number" in inspector.summary.event.value
    inspector.receive({"do": "explode"})
    assert "explode" in inspector.summary.event.value


def test_a_zoom_of_axes_that_are_hidden_is_not_held_against_the_others():
    inspector = Inspector(busy_trace(20))
    shown = {
        "1": {"x": [0, 1], "y": [3, 0]},
        "6": {"x": [None, None], "y": [0, 1]},
        "99": {"x": [0, 1], "y": [0, 1]},
    }
    inspector.receive({"do": "zoom", "ranges": shown})
    assert inspector.look.map_window is not None
