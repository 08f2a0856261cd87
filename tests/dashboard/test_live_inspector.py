"""LiveDashboard with the real Inspector, on a heap whose first steps are long gone."""

from dataclasses import replace

import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.dashboard.controls.moves import MOVES
from bfcviz.dashboard.live import LiveDashboard
from bfcviz.dashboard.panels.layouts import LAYOUTS
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.figures import FIGURES
from bfcviz.figures.style.view_options import MapWindow


def work(heap, times):
    for number in range(times):
        heap.free(heap.allocate(1000 + number, label=f"op{number % 9}"))


@pytest.fixture
def live():
    heap = new_heap(64 * MIB, log=EventLog(1024))
    for number in range(40):
        heap.allocate(3000, label=f"kept{number}")
    work(heap, 1000)
    dashboard = LiveDashboard(heap, keep=512, start=False)
    yield heap, dashboard
    dashboard.close()


@pytest.mark.parametrize("views", list(LAYOUTS))
def test_it_follows_through_gaps_and_over_the_edge_of_what_is_kept(live, views):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.views = views
    for times in (20, 150, 600, 20):  # more of the same, what is kept moves on, a gap
        first = dashboard.trace.first
        work(heap, times)
        dashboard.refresh()
        assert inspector.follow
        assert inspector.step == heap.log.head > first > 0
        stats = inspector.panel_data.model.stats()
        assert stats.bytes_in_use == heap.stats().bytes_in_use
    assert dashboard.trace.first > 1000


def test_who_looks_back_stays_until_that_step_is_gone(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.step = step = dashboard.trace.first + 300
    assert not inspector.follow
    work(heap, 20)
    dashboard.refresh()
    assert inspector.step == step
    work(heap, 1000)
    dashboard.refresh()
    assert (inspector.step, inspector.follow) == (dashboard.trace.first, False)


@pytest.mark.parametrize("move", [*MOVES, "whole", "unselect"])
def test_every_move_ends_at_a_step_that_is_there(live, move):
    _, dashboard = live
    for step in (dashboard.trace.first, dashboard.trace.first + 5, len(dashboard.trace)):
        dashboard.inspector.step = step
        dashboard.inspector.act(move)
        assert dashboard.trace.first <= dashboard.inspector.step <= len(dashboard.trace)


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_can_be_had_of_what_is_kept(live, name):
    _, dashboard = live
    for step in (dashboard.trace.first, len(dashboard.trace)):
        dashboard.inspector.step = step
        assert dashboard.inspector.draw_for_export(name)


def moving_map(dashboard):
    return dashboard.inspector.view.panels["region_map"].traces[0]["source"]


def test_at_work_the_map_alone_moves_and_at_rest_there_is_all(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.trace_grew(moving=True)
    step, words = inspector.step, inspector.summary.event.value
    before = moving_map(dashboard)
    kept = [heap.allocate(100_000) for _ in range(40)]
    dashboard.trace.refresh()
    assert inspector.draw_moving_map()
    assert moving_map(dashboard) != before
    assert inspector.view.widget.data[0].source == moving_map(dashboard)
    assert (inspector.step, inspector.summary.event.value) == (step, words)
    hover = inspector.view.panels["region_map"].traces[-2]
    assert hover["hovertemplate"] == []
    dashboard.refresh()
    assert inspector.step == heap.log.head
    hover = inspector.view.panels["region_map"].traces[-2]
    assert len(hover["hovertemplate"]) > len(kept)


def test_a_persons_move_ends_the_moving_picture(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.trace_grew(moving=True)
    assert inspector.panel_data.moving
    inspector.step -= 1
    assert not inspector.panel_data.moving
    work(heap, 5)
    dashboard.trace.refresh()
    assert not inspector.draw_moving_map()
    inspector.follow = True
    assert not inspector.panel_data.moving


@pytest.mark.parametrize("change", [{"views": "time"}, {"colour": "age"}])
def test_what_events_cannot_bring_up_to_date_takes_the_whole_picture(live, change):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.set_trait(*next(iter(change.items())))
    inspector.trace_grew(moving=True)
    work(heap, 5)
    dashboard.trace.refresh()
    assert not inspector.draw_moving_map()


def test_zoomed_in_the_map_is_exact_also_at_work(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.look = replace(inspector.look, map_window=MapWindow((0.0, 65536.0), (0.0, 1.0)))
    inspector.trace_grew(moving=True)
    work(heap, 5)
    dashboard.trace.refresh()
    assert not inspector.draw_moving_map()
    assert inspector.view.panels["region_map"].traces[0]["visible"] is False


def test_a_region_that_grows_in_place_is_no_trouble():
    """What it grows by has no place on the moving map, which goes on."""
    heap = new_heap(1 << 40, SimulatedSubAllocator(supports_coalescing=True), allow_growth=True)
    dashboard = LiveDashboard(heap, start=False)
    inspector = dashboard.inspector
    heap.allocate(1000)
    dashboard.trace.refresh()
    for size in (3_000_000, 100_000_000, 40_000_000_000):
        inspector.trace_grew(moving=True)
        heap.allocate(size)
        dashboard.trace.refresh()
        assert inspector.draw_moving_map()
    assert len(heap.regions()) == 1
    dashboard.close()


@pytest.mark.parametrize("colour", ["label", "thread", "stream"])
def test_what_comes_after_a_gap_has_a_colour(live, colour):
    heap, dashboard = live
    inspector = dashboard.inspector
    for address in heap.memory_map()["address"][heap.memory_map()["in_use"]].tolist():
        heap.free(address)
    for number in range(3000):  # a gap: what is known begins anew, with two labels
        heap.free(heap.allocate(1000, label=f"op{number % 2}"))
    dashboard.trace.refresh()
    assert dashboard.trace.origin.status is Status.DEGRADED
    inspector.trace_grew(moving=True)
    inspector.colour = colour
    inspector.trace_grew(moving=True)
    heap.allocate(MIB, label="new", stream=7)
    dashboard.trace.refresh()
    assert inspector.draw_moving_map()
    model = inspector.panel_data.model
    model.seek(len(dashboard.trace))
    colours = inspector.panel_data.colours(inspector.look)
    classes = colours.classes(model.in_use(), model.step)
    assert classes.max() < len(colours.names)


def test_what_was_lost_takes_the_whole_picture(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.trace_grew(moving=True)
    work(heap, 1000)
    dashboard.trace.refresh()
    assert dashboard.trace.first > inspector.step
    assert not inspector.draw_moving_map()


def test_a_pause_shows_all_of_where_it_stands(live):
    heap, dashboard = live
    for _ in range(3):
        work(heap, 5)
        dashboard.draw_frame()
    assert dashboard.inspector.panel_data.moving
    dashboard.pause()
    assert not dashboard.inspector.panel_data.moving
    assert dashboard.inspector.step == len(dashboard.trace)
    work(heap, 5)
    assert dashboard.draw_frame()  # was under way when the pause came
    assert dashboard.inspector.step == len(dashboard.trace)
