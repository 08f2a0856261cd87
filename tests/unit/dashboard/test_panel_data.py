"""PanelData reads the new events of a growing trace, and no old ones again."""

from dataclasses import replace

import pytest
from heaps import new_heap
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard.layouts import layouts, names_in
from bfcviz.dashboard.panel_data import PanelData, brushed, whole, zoomed
from bfcviz.events.trace import Trace
from bfcviz.figures import address_time
from bfcviz.figures.panel import Panel
from bfcviz.figures.timeline_parts import StepAxis
from bfcviz.figures.view_options import Look, MapWindow, Selected
from bfcviz.model.trace_from_source import trace_of

PANELS = sorted({name for layout in layouts() for name in names_in(layout)})
READERS = 8
"""Parts of the dashboard that read each new event once: at most so many."""

AROUND_THE_STEP = 400
"""Events near the step shown that are read to explain it, however long the trace is."""


@pytest.fixture
def events_read(monkeypatch):
    """The number of events that were read, in a list of one."""
    count, read = [0], Trace.read

    def counted(trace, start, stop):
        count[0] += stop - start
        return read(trace, start, stop)

    monkeypatch.setattr(Trace, "read", counted)
    return count


@pytest.mark.parametrize("as_image", [True, False])
@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_refresh_reads_the_new_events_only(axis, as_image, events_read, monkeypatch):
    monkeypatch.setattr(address_time, "EXACT_LIFETIMES", 100 if as_image else 10**9)
    heap = new_heap(1 << 30)
    held = [heap.allocate(1000 + 256 * (place % 9)) for place in range(60)]

    def work(operations):
        for place in range(operations):
            heap.free(held[place * 7 % 60])
            held[place * 7 % 60] = heap.allocate(1000 + 256 * (place % 11))

    work(1200)
    trace = trace_of(heap)
    data, look = PanelData(trace, 0), Look(axis=axis, colour="label")
    data.model.seek(len(trace))
    chunk = data.model.chunks()[0]
    look = Look(axis=axis, colour="label", selected=Selected(int(chunk["address"]), int(chunk["born"])))
    data.panels(PANELS, look)
    for operations in (5, 20, 80):
        work(operations)
        new = trace.refresh()
        events_read[0] = 0
        data.model.seek(len(trace))
        data.panels(PANELS, look)
        assert 0 < events_read[0] <= READERS * new + AROUND_THE_STEP < len(trace)


TRACE = busy_trace()
CLOCK = StepAxis.of(TRACE)


def panel(name, x=(0.0, 8.0), y=(16.0, -0.2), x_unit=1.0, y_unit=1.0):
    return Panel(name, "", "", [{}], {"range": list(x)}, {"range": list(y)}, x_unit=x_unit, y_unit=y_unit)


def test_what_is_shown_as_it_was_drawn_changes_nothing():
    shown = {"region_map": panel("region_map"), "stats_timeline": panel("stats_timeline")}
    ranges = {name: {"x": [0.0, 8.000001], "y": [16.0, -0.2]} for name in shown}
    look = Look()
    assert zoomed(look, shown, ranges, CLOCK) is look


def test_a_zoom_of_the_map_comes_in_bytes_and_rows():
    shown = {"region_map": panel("region_map", x_unit=1 << 20)}
    look = zoomed(Look(), shown, {"region_map": {"x": [1.0, 2.0], "y": [5.0, 3.0]}}, CLOCK)
    assert look.map_window == MapWindow((1 << 20, 2 << 20), (3.0, 5.0))


@pytest.mark.parametrize(
    "name", ["stats_timeline", "fragmentation_timeline", "event_rate", "active_memory", "address_time"]
)
def test_a_zoom_of_any_timeline_is_one_of_all(name):
    look = zoomed(Look(), {name: panel(name)}, {name: {"x": [3.0, 7.2], "y": [16.0, -0.2]}}, CLOCK)
    assert look.steps == (3, 7)
    assert look.addresses is None


def test_no_window_goes_beyond_the_data_and_all_of_it_is_no_window():
    limits = {"minallowed": 0.0, "maxallowed": 8.0}, {"minallowed": -0.2, "maxallowed": 16.0}
    drawn = panel("region_map", x=(2.0, 4.0), y=(9.0, 3.0))
    drawn = replace(drawn, xaxis=dict(drawn.xaxis) | limits[0], yaxis=dict(drawn.yaxis) | limits[1])
    shown = {"region_map": drawn}
    look = zoomed(Look(), shown, {"region_map": {"x": [-3.0, 5.0], "y": [99.0, 3.0]}}, CLOCK)
    assert look.map_window == MapWindow((0.0, 5.0), (3.0, 16.0))
    assert zoomed(look, shown, {"region_map": {"x": [-3.0, 9.0], "y": [99.0, -7.0]}}, CLOCK) == Look()
    assert zoomed(look, shown, {"region_map": {"x": [20.0, 30.0], "y": [9.0, 3.0]}}, CLOCK) is look


def test_a_brush_chooses_the_steps_and_none_shows_all():
    look = brushed(Look(), (7.2, 3.0), CLOCK)
    assert look.steps == (3, 7)
    assert brushed(look, (-9e9, 9e9), CLOCK).steps == (CLOCK.first, CLOCK.last)
    assert brushed(look, None, CLOCK) == Look()


def test_a_zoom_of_the_address_time_map_chooses_addresses_too():
    shown = {"address_time": panel("address_time", y=(0.0, 100.0), y_unit=1024)}
    look = zoomed(Look(), shown, {"address_time": {"x": [0.0, 8.0], "y": [10.0, 20.0]}}, CLOCK)
    assert (look.steps, look.addresses) == (None, (10 * 1024, 20 * 1024))


def test_a_window_narrower_than_an_event_holds_one():
    look = zoomed(
        Look(),
        {"stats_timeline": panel("stats_timeline")},
        {"stats_timeline": {"x": [3.2, 3.4], "y": [16.0, -0.2]}},
        CLOCK,
    )
    assert look.steps == (3, 4)
    end = float(CLOCK.last)
    look = zoomed(
        Look(),
        {"stats_timeline": panel("stats_timeline")},
        {"stats_timeline": {"x": [end + 1, end + 2], "y": [16.0, -0.2]}},
        CLOCK,
    )
    assert look.steps == (CLOCK.last - 1, CLOCK.last)


def test_all_is_shown_again_panel_by_panel_or_at_once():
    look = Look(map_window=MapWindow((0, 1), (0, 1)), steps=(1, 2), addresses=(0, 1))
    assert whole(look, "region_map") == Look(steps=(1, 2), addresses=(0, 1))
    assert whole(look, "stats_timeline") == Look(map_window=look.map_window, addresses=(0, 1))
    assert whole(look, "address_time") == Look(map_window=look.map_window)
    assert whole(look, "bin_bytes") == look
    assert whole(look) == Look()
