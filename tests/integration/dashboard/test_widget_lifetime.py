"""A dashboard is freed when it is closed, or when no page and no variable refers to it."""

import ctypes
import gc
import threading
import weakref
from pathlib import Path

import comm
import ipywidgets as widgets
import numpy as np
import pytest
import traitlets
from heaps import MIB, new_heap
from ipywidgets.widgets.widget import _instances
from processes import run_code
from unit.dashboard.pages import tell_views

import bfcviz
from bfcviz.dashboard.figure_widget import PlotlyScriptWidget
from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.dashboard.trace_menus import LiveSeries
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog

MOST_OBJECTS = 200  # a dashboard, of the interpreter's and of other packages' own; an Inspector is some 5,000
MOST_MEMORY = 2.4 * MIB  # a dashboard; one of those below takes 2 to 4 MiB


def work(heap, times=50):
    for number in range(times):
        heap.free(heap.allocate(1000 + number, label=f"op{number % 9}"))


@pytest.fixture(scope="module")
def trace():
    heap = new_heap()
    work(heap)
    return bfcviz.model.trace_from_source.trace_of(heap)


@pytest.fixture(autouse=True)
def plotly_script():
    """It stays open for all later figures, so it is there before widgets are counted."""
    return PlotlyScriptWidget.shared()


def inspector(trace):
    made = Inspector(trace)
    made.step = 40
    return made, [made.panel_data.model, made.panel_data, made.view.widget, made.page, made.chunk_list]


def live(_=None):
    heap = new_heap(log=EventLog(1 << 15))
    made = LiveDashboard(heap)
    work(heap, 5000)
    made.refresh()
    view = made.inspector
    return made, [heap, *made.traces, view, view.panel_data.model, view.view.widget, view.page]


def watched(_=None):
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False) as w:
        made = w.dashboard
        np.ones(1000)
    return made, [w, *made.traces, made.inspector, made.inspector.panel_data.model]


def series(trace):
    made = LiveSeries("window")
    made.add("one", trace)
    made.add("two", trace)
    return made, [made.inspector, made.inspector.panel_data.model]


KINDS = [inspector, live, watched, series]


def used(make, trace):
    """Make one and close it; return weak references to it and its parts."""
    made, parts = make(trace)
    made.close()
    return [weakref.ref(each) for each in (made, *parts)]


def counted():
    """Numbers of widgets, comms and threads."""
    return len(_instances), len(comm.get_comm_manager().comms), threading.active_count()


def memory():
    """Resident memory of this process, in bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def alive(references):
    gc.collect()
    return [each() for each in references if each() is not None]


@pytest.mark.parametrize(("make", "times"), [(inspector, 4), (live, 4), (watched, 3)])
def test_any_number_that_were_closed_leave_nothing(make, times, trace):
    assert alive(used(make, trace)) == []  # the first one imports and fills caches
    there, objects, before = counted(), len(gc.get_objects()), memory()
    references = [each for _ in range(times) for each in used(make, trace)]
    assert alive(references) == []
    assert counted() == there
    del references
    assert len(gc.get_objects()) - objects < MOST_OBJECTS * times
    assert memory() - before < MOST_MEMORY * times


def test_a_closed_series_leaves_nothing(trace):
    there = counted()
    assert alive(used(series, trace)) == []
    assert counted() == there


@pytest.mark.parametrize("make", KINDS)
def test_closed_and_still_in_a_variable_it_keeps_no_more_than_its_shell(make, trace):
    made, parts = make(trace)
    shells = [id(each) for each in parts if isinstance(each, Inspector)]
    references = [weakref.ref(each) for each in parts if each is not trace]
    del parts
    made.close()
    made.close()  # a second close does nothing
    assert {id(each) for each in alive(references)} <= set(shells)
    assert made.comm is None


def test_what_is_asked_of_a_closed_one_is_refused_with_a_reason(trace):
    made, _ = inspector(trace)
    made.close()
    assert made.closed
    assert made.draw_moving_map() is False
    for ask in (lambda: made.panel_data, lambda: made.chunk_list, lambda: setattr(made, "step", 3)):
        with pytest.raises(BfcvizError, match="closed"):
            ask()
    assert not hasattr(made, "no_such_thing")
    dashboard, _ = live()
    dashboard.close()
    with pytest.raises(BfcvizError, match="closed"):
        _ = dashboard.trace
    assert dashboard.refresh() is False
    dashboard.stop()


def test_another_pool_or_heap_leaves_no_list_of_the_one_before():
    dashboard = LiveDashboard([new_heap(), new_heap()], start=False)
    dashboard.menu.value = 1
    there = counted()
    for number in (0, 1, 0, 1):
        dashboard.menu.value = number
    assert counted() == there
    dashboard.close()


@pytest.mark.parametrize("options", [{"theme": "none"}, {"pool": 9}, {"step": 1 << 40}])
def test_a_refused_one_leaves_no_widget(options, trace):
    there = counted()
    with pytest.raises(traitlets.TraitError):
        Inspector(trace, **options)
    with pytest.raises(traitlets.TraitError):
        LiveDashboard(trace, **options)
    assert counted() == there


def test_a_layout_of_the_users_stays_open(trace):
    layout = widgets.Layout(width="50%")
    Inspector(trace, layout=layout).close()
    assert layout.comm is not None


@pytest.mark.parametrize("link", [traitlets.link, traitlets.dlink])
def test_a_link_to_one_that_stays_is_ended(link, trace):
    stays, _ = inspector(trace)
    goes, parts = inspector(trace)
    link((goes, "step"), (stays, "step"))
    references = [weakref.ref(each) for each in (goes, *parts)]
    goes.close()
    del goes, parts
    assert alive(references) == []
    stays.step = 7
    assert stays.panel_data.model.step == 7


# -- displaced ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [inspector, live, watched])
def test_its_last_view_gone_it_is_freed_with_its_last_variable(make, trace):
    there = counted()
    made, parts = make(trace)
    references = [weakref.ref(each) for each in (made, *parts)]
    tell_views(made, 1)
    tell_views(made, 0)
    del made, parts
    assert alive(references) == []
    assert counted()[:2] == there[:2]


@pytest.mark.parametrize("counts", [[], [1], [1, 0, 1]])
def test_what_a_page_shows_or_may_show_soon_stays_without_a_variable(counts, trace):
    made, _ = inspector(trace)
    for count in counts:
        tell_views(made, count)
    reference = weakref.ref(made)
    del made, _
    assert len(alive([reference])) == 1


def test_a_heaps_view_that_is_shown_on_its_own_keeps_the_dashboard():
    made, _ = live()
    view, reference = made.inspector, weakref.ref(made)
    for shown, count in ((made, 1), (view, 2), (made, 0), (view, 1)):
        tell_views(shown, count)
    del made, view, shown, _
    assert len(alive([reference])) == 1


def test_unseen_but_in_a_variable_it_hears_the_page(trace):
    made, _ = inspector(trace)
    tell_views(made, 1)
    tell_views(made, 0)
    gc.collect()
    box = made.toolbar.step
    data = {"method": "update", "state": {"value": 9}, "buffer_paths": []}
    comm.get_comm_manager().comms[box.model_id].handle_msg({"content": {"data": data}, "buffers": []})
    assert (made.step, made.panel_data.model.step) == (9, 9)


def test_unseen_but_in_a_variable_a_page_that_is_loaded_again_gets_it(trace):
    """A new page requests all widgets; it cannot show a widget that is missing in the answer."""
    made, _ = inspector(trace)
    tell_views(made, 1)
    before = widgets.Widget.get_manager_state()["state"]
    tell_views(made, 0)
    assert widgets.Widget.get_manager_state()["state"].keys() == before.keys()
    tell_views(made, 1)
    assert _instances[made.model_id] is made
    made.close()


# -- the watch's, and the end of Python -----------------------------------------------------------------------


def test_closed_while_it_watches_the_watch_goes_on_and_shows_it_anew():
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False) as w:
        first = w.dashboard
        first.close()
        kept = np.ones(100_000)
        second = w.dashboard
        assert second is not first
        second.refresh()
        assert second.inspector.panel_data.model.stats().bytes_in_use >= kept.nbytes
        second.close()
    assert w.errors == []


ENDINGS = """
import gc
from heaps import new_heap
import bfcviz
heap = new_heap()
heap.free(heap.allocate(1000))
made = [bfcviz.LiveDashboard(heap), bfcviz.Inspector(bfcviz.LiveDashboard(heap, start=False).trace), bfcviz.Inspector]
import ipykernel.ipkernel  # brings another table of comms, which does not know those that are open
made[1].close()
made[1] = None
gc.collect()
import builtins
builtins.kept = made  # freed as one of the last things
"""


def test_a_script_that_leaves_dashboards_open_ends_without_a_word():
    assert run_code(ENDINGS) == ""  # which fails on anything in stderr
