"""The dashboard of a watch: when it is made, what it shows, and that its own arrays stay off the heap."""

import asyncio
import time

import numpy as np
import pytest
from heaps import MIB
from shared import land_window, window_readers
from unit.watching.ranks import board, ranks

import bfcviz
from bfcviz.cli import attach, view
from bfcviz.dashboard import LiveDashboard
from bfcviz.dashboard.trace_menus import RanksView
from bfcviz.watching.workers_dashboard import WorkersDashboard

PATIENCE_S = 60


def watched(**options):
    return bfcviz.watch(**{"numpy": True, "limit": "64MiB", **options})


def test_without_a_notebook_it_is_made_on_first_use():
    with watched() as w:
        held = np.ones(MIB)
        dashboard = w.dashboard
        assert w.dashboard is dashboard
        assert dashboard.traces == w.traces
        assert dashboard.renderer.running
        assert "NumPy is served" in dashboard.says_line.value
        assert not dashboard.renderer.thread.name.startswith("bfcviz-monitor")
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    assert f"ended: {len(w.trace):,} events" in dashboard.status.value
    assert "has ended" in dashboard.says_line.value
    assert "Peak: 8.0 MiB" in dashboard.inspector.header.headline.value
    assert dashboard.inspector.toolbar.buttons["oom"].layout.display == "none"
    assert dashboard.pause_button.layout.display == "none"
    assert dashboard.inspector.toolbar.buttons["follow"].layout.display == "none"
    dashboard.inspector.act("back")
    assert dashboard.inspector.toolbar.buttons["follow"].layout.display == "none"
    assert held.nbytes == 8 * MIB
    dashboard.close()


def test_the_arrays_of_pictures_are_not_on_the_heap():
    with watched() as w:
        dashboard = w.dashboard
        made = w.sources[0].allocator.stats
        before = made().num_allocs
        np.empty(1000)
        dashboard.refresh()
        dashboard.stop()
        np.empty(1000)
        dashboard.start()
        pictures = dashboard.pictures
        dashboard.run(np.empty, 1000).result(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while dashboard.pictures == pictures and time.monotonic() < until:
            time.sleep(0.01)  # between two checks
        assert made().num_allocs == before + 3
    dashboard.close()


@pytest.mark.parametrize("view", [bfcviz.Inspector, LiveDashboard])
def test_the_arrays_of_a_view_made_inside_a_watch_are_not_on_the_heap(view, tmp_path):
    """Of a view that is not the watch's own, too: it would fill the heap that it shows."""
    with watched(path=str(tmp_path / "recording"), dashboard=False) as w:
        made = w.sources[0].allocator.stats
        held = [np.empty(1000) for _ in range(50)]
        before = made().num_allocs
        shown = view(str(tmp_path / "recording"))
        inspector = shown.inspector if view is LiveDashboard else shown
        for name in ("first", "forward", "peak", "last"):
            inspector.act(name)
        inspector.views = "chunk_table"
        inspector.chunk_list.sort("size")
        if view is LiveDashboard:
            pictures = shown.pictures
            held.append(np.empty(1000))
            before += 1
            until = time.monotonic() + PATIENCE_S
            while shown.pictures == pictures and time.monotonic() < until:
                time.sleep(0.01)  # between two checks
            assert shown.pictures > pictures
        shown.close()
        assert made().num_allocs == before
    assert len(held) >= 50


def test_the_arrays_of_what_a_program_asks_inside_a_watch_are_not_on_the_heap(tmp_path):
    with watched(path=str(tmp_path / "recording"), dashboard=False) as w:
        made = w.sources[0].allocator.stats
        held = [np.empty(1000) for _ in range(50)]
        before = made().num_allocs
        trace = bfcviz.open(tmp_path / "recording")
        picture = bfcviz.draw("region_map", w.trace)
        picture._ipython_display_()
        bfcviz.export(picture, tmp_path / "map.svg")
        bfcviz.compare_policies(bfcviz.requests_of(trace), ["bfc"], limit="64MiB")
        assert made().num_allocs == before
    assert len(held) == 50


def test_made_after_the_end_it_shows_the_last_step():
    with watched() as w:
        np.ones(MIB)
    dashboard = w.dashboard
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    dashboard.close()


def test_the_dashboard_of_a_recording_says_that_it_is_complete(tmp_path):
    with watched(path=tmp_path / "run") as w:
        dashboard = w.dashboard
        np.ones(MIB)
    assert f"ended (complete): {len(w.trace):,} events" in dashboard.status.value
    dashboard.close()


@pytest.mark.parametrize(
    ("error", "how"), [(KeyboardInterrupt, "interrupted"), (ValueError, "ended by ValueError")]
)
def test_it_says_what_ended_the_watch(tmp_path, error, how):
    w = watched(path=tmp_path / "run")

    def work():
        with w:
            w.dashboard.pause()
            np.ones(MIB)
            raise error

    with pytest.raises(error):
        work()
    dashboard = w.dashboard
    assert f"{how} (complete): {len(w.trace):,} events" in dashboard.status.value
    assert dashboard.pause_button.layout.display == "none"
    dashboard.close()


def test_it_shows_the_newest_notices_only():
    with bfcviz.watch(numpy=True, limit="1MiB") as w:
        dashboard = w.dashboard
        for number in range(9):
            dashboard.notice(f"<notice {number}>")
    shown = dashboard.notice_box.value
    assert "(4 earlier" in shown
    assert "&lt;notice 8&gt;" in shown
    assert "&lt;notice 3&gt;" not in shown
    dashboard.close()


# ------------------------------------------------------------------------------
# The view of a folder of recordings opens one worker, in a dashboard of its own.


__all__ = ["board", "ranks"]


def test_one_worker_is_opened_and_replaced_by_another(ranks, board, tmp_path):
    for name in ("a", "b"):
        ranks(name).heap.allocate(MIB)
    board.refresh()
    board.show("a")
    first = board.detail
    assert (first.trace.path, board.shown) == (tmp_path / "a", "a")
    board.show("b")
    assert (first.closed, board.detail.trace.path) == (True, tmp_path / "b")
    board.show("nothing")
    assert board.shown == "b"
    board.close()
    assert (board.detail, board.closed, board.draw_frame()) == (None, True, False)


def test_attach_shows_several_processes_together_and_one_alone(ranks, tmp_path):
    ranks("one")
    ranks("many/rank-0")
    alone, together = (attach.dashboard(str(tmp_path / name), "dark") for name in ("one", "many"))
    assert (type(alone), type(together)) == (LiveDashboard, WorkersDashboard)
    together.refresh()
    together.show("rank-0")
    assert together.detail.inspector.theme == "dark"
    for each in (alone, together):
        each.close()
    assert attach._can_attach(tmp_path / "many")
    (tmp_path / "soon" / "rank-0").mkdir(parents=True)
    assert not attach._can_attach(tmp_path / "soon")


def test_view_shows_several_processes_live_while_one_of_them_records(ranks, tmp_path):
    written, other = (ranks(f"many/rank-{number}") for number in range(2))
    for each in (written, other):
        each.heap.allocate(MIB)
    other.end()
    shown = view.dashboard(str(tmp_path / "many"), "dark")
    assert isinstance(shown, WorkersDashboard)
    shown.close()
    written.end()
    shown = view.dashboard(str(tmp_path / "many"), "dark")
    assert isinstance(shown, RanksView)
    shown.close()


def test_attach_shows_the_windows_that_are_there_at_once_and_later_ones_once_the_page_has_them(tmp_path):
    async def attached():
        for number in (1, 2):
            land_window(tmp_path, number, "lstm")
        series = attach.dashboard(str(tmp_path), "dark")
        assert (len(series.traces), series.trace) == (2, series.traces[1])
        assert series.children[-1] is series.inspector
        assert not window_readers()
        land_window(tmp_path, 3, "lstm")
        arrived, add = asyncio.Event(), series.add
        series.add = lambda *window, **options: (add(*window, **options), arrived.set())
        first = series.inspector
        first.page._handle_custom_msg({"do": "width", "width": 900}, [])
        assert window_readers()
        await asyncio.wait_for(arrived.wait(), PATIENCE_S)
        assert series.inspector is not first
        assert series.trace is series.traces[2]
        series.close()

    asyncio.run(attached())
