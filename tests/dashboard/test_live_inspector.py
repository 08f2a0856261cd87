"""LiveDashboard with the real Inspector, on a heap whose first steps are long gone."""

import pytest
from heaps import MIB, new_heap

from bfcviz.dashboard.layouts import LAYOUTS
from bfcviz.dashboard.live import LiveDashboard
from bfcviz.dashboard.moves import MOVES
from bfcviz.events.log import EventLog
from bfcviz.figures import FIGURES


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
        stats = inspector.study.model.stats()
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
        assert dashboard.inspector._draw(name)
