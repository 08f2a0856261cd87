"""LiveDashboard with the real Inspector, on a heap whose first events were dropped."""

import re
import threading
from dataclasses import replace
from random import Random

import pytest
from heaps import MIB, new_heap
from unit.dashboard.side_html import Side

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.analysis.account import Account, AccountFigures, account_of
from bfcviz.dashboard import Inspector
from bfcviz.dashboard import live_dashboard as module
from bfcviz.dashboard.layouts import layouts, names_in
from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.dashboard.render_loop import FrameKind
from bfcviz.dashboard.toolbar import MOVES
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace
from bfcviz.figures import FIGURES
from bfcviz.figures.view_options import MapWindow
from bfcviz.model.grouping import grouping, members
from bfcviz.model.trace_from_source import trace_of


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


def test_it_follows_through_gaps_and_over_the_edge_of_what_is_kept(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    for views in layouts():
        inspector.views = views
        for times in (20, 150, 600, 20):  # some events, the window moves, a gap
            first = dashboard.trace.first
            work(heap, times)
            dashboard.refresh()
            assert inspector.follow, views
            assert inspector.step == heap.log.head > first > 0, views
            stats = inspector.panel_data.model.stats()
            assert stats.bytes_in_use == heap.stats().bytes_in_use, views
    assert dashboard.trace.first > 1000


def test_an_earlier_step_stays_until_it_is_dropped(live):
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


def test_an_inspector_that_gets_no_new_events_does_not_say_that_it_follows():
    heap = new_heap(log=EventLog(1024))
    heap.allocate(300)
    inspector = Inspector(trace_of(heap))
    inspector.act("follow")
    button = inspector.toolbar.buttons["follow"]
    assert (inspector.follow, button.layout.display) == (False, "none")
    inspector.trace_grew()
    inspector.act("follow")
    assert (inspector.follow, button.layout.display) == (True, None)
    inspector.close()


def test_every_move_ends_at_an_existing_step(live):
    _, dashboard = live
    for move in (*MOVES, "whole", "unselect"):
        for step in (dashboard.trace.first, dashboard.trace.first + 5, len(dashboard.trace)):
            dashboard.inspector.step = step
            dashboard.inspector.act(move)
            assert dashboard.trace.first <= dashboard.inspector.step <= len(dashboard.trace), move


def test_every_figure_can_be_drawn_of_the_events_kept(live):
    _, dashboard = live
    for step in (dashboard.trace.first, len(dashboard.trace)):
        dashboard.inspector.step = step
        for name in FIGURES:
            assert dashboard.inspector.draw_for_export(name), name


def moving_map(dashboard):
    return dashboard.inspector.view.panels["region_map"].traces[0]["source"]


def draw(dashboard, frame):
    """Draw a frame of this kind now; returns the newest step."""
    dashboard.trace.refresh()
    dashboard.draw(frame)
    dashboard._show_status()
    return len(dashboard.trace)


def shown_steps(dashboard):
    """What each part of the page says: step and length in the header, events in the status, the step of the map."""
    inspector = dashboard.inspector
    header = re.search(r"step ([\d,]+) of ([\d,]+)<", inspector.header.step_line.value)
    status = re.search(r"([\d,]+) events", dashboard.status.value)
    texts = [header[1], header[2], status[1]]
    return [int(text.replace(",", "")) for text in texts] + [
        inspector.step,
        inspector.toolbar.step.value,
        inspector.panel_data.model.step,
        inspector.panel_data.live_map.step,
    ]


@pytest.mark.parametrize("views", ["active_memory", "event_table", "chunk_table", "everything"])
def test_each_frame_of_an_active_heap_shows_one_state(live, views):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.views = views
    work(heap, 5)
    drawn = draw(dashboard, FrameKind.MOVING)
    captions = {name: panel.caption for name, panel in inspector.view.panels.items()}
    for _ in range(4):
        heap.allocate(100)  # what is in use differs from frame to frame
        work(heap, 7)
        newest = draw(dashboard, FrameKind.MAP)
        assert set(shown_steps(dashboard)) == {newest}
        assert newest > drawn
        assert inspector.panel_data.model.stats().bytes_in_use == heap.stats().bytes_in_use
        assert f"Step {drawn:,}." in inspector.holders.head.value
    others = {"region_map", "strip"}
    for name in names_in(views):
        assert (f"step {drawn:,}" in captions[name]) is (name not in others)
    draw(dashboard, FrameKind.WHOLE)
    assert "Step " not in inspector.holders.head.value
    shown = [inspector.view.panels[name].caption for name in names_in(views)]
    assert not any(caption.startswith("step ") for caption in shown)


def test_events_that_were_not_drawn_are_not_counted(live):
    heap, dashboard = live
    dashboard.inspector.step -= 1  # the user went back: later frames only lengthen the range
    dashboard.refresh()
    shown = len(dashboard.trace)
    for _ in range(3):
        work(heap, 5)
        dashboard.draw_frame()
        counted = int(re.search(r"([\d,]+) events", dashboard.status.value)[1].replace(",", ""))
        assert counted == dashboard.inspector._last
    assert len(dashboard.trace) > shown


def test_an_active_heap_redraws_only_the_map_and_an_idle_one_everything(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.trace_grew(moving=True)
    before, lifetimes = moving_map(dashboard), inspector.view.panels["active_memory"]
    kept = [heap.allocate(100_000) for _ in range(40)]
    dashboard.trace.refresh()
    assert inspector.draw_moving_map()
    assert moving_map(dashboard) != before
    assert inspector.view.widget.data[0].source == moving_map(dashboard)
    assert inspector.view.panels["active_memory"] is lifetimes
    hover = inspector.view.panels["region_map"].traces[-2]
    assert hover["hovertemplate"] == []
    dashboard.refresh()
    assert inspector.step == heap.log.head
    assert inspector.view.panels["active_memory"] is not lifetimes
    hover = inspector.view.panels["region_map"].traces[-2]
    assert len(hover["hovertemplate"]) > len(kept)


def test_a_move_by_the_user_ends_the_moving_map(live):
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


def test_a_colour_that_changes_with_each_step_needs_the_whole_frame(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.colour = "age"
    inspector.trace_grew(moving=True)
    work(heap, 5)
    dashboard.trace.refresh()
    assert not inspector.draw_moving_map()


def test_a_zoomed_map_is_exact_also_for_an_active_heap(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.look = replace(inspector.look, map_window=MapWindow((0.0, 65536.0), (0.0, 1.0)))
    inspector.trace_grew(moving=True)
    work(heap, 5)
    dashboard.trace.refresh()
    assert not inspector.draw_moving_map()
    assert inspector.view.panels["region_map"].traces[0]["visible"] is False


def test_a_region_that_grows_needs_the_whole_frame():
    """The image has no room for its new bytes, and the header counts them."""
    heap = new_heap(1 << 40, SimulatedSubAllocator(supports_coalescing=True), allow_growth=True)
    dashboard = LiveDashboard(heap, start=False)
    inspector = dashboard.inspector
    small = heap.allocate(1000)
    dashboard.trace.refresh()
    for size in (3_000_000, 100_000_000, 40_000_000_000):
        inspector.trace_grew(moving=True)
        heap.allocate(size)
        dashboard.trace.refresh()
        assert not inspector.draw_moving_map()
        inspector.trace_grew(moving=True)
        heap.free(small)
        dashboard.trace.refresh()
        assert inspector.draw_moving_map()
        small = heap.allocate(1000)
        dashboard.trace.refresh()
    assert len(heap.regions()) == 1
    dashboard.close()


@pytest.mark.parametrize("colour", ["label", "thread", "stream"])
def test_events_after_a_gap_have_a_colour(live, colour):
    heap, dashboard = live
    inspector = dashboard.inspector
    for address in heap.memory_map()["address"][heap.memory_map()["in_use"]].tolist():
        heap.free(address)
    for number in range(3000):  # a gap: the model starts again, with two labels
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


def test_lost_events_need_the_whole_frame(live):
    heap, dashboard = live
    inspector = dashboard.inspector
    inspector.trace_grew(moving=True)
    work(heap, 1000)
    dashboard.trace.refresh()
    assert dashboard.trace.first > inspector.step
    assert not inspector.draw_moving_map()


def test_a_pause_draws_the_whole_frame(live):
    heap, dashboard = live
    for _ in range(3):
        work(heap, 5)
        dashboard.draw_frame()
    assert dashboard.inspector.panel_data.moving
    dashboard.pause()
    assert not dashboard.inspector.panel_data.moving
    assert dashboard.inspector.step == len(dashboard.trace)
    work(heap, 5)
    assert dashboard.draw_frame()  # in progress when the pause came
    assert dashboard.inspector.step == len(dashboard.trace)


# -- the device, in the header -------------------------------------------------------------------------------


class Devices:
    """Stands for `account_now`: two devices; `asked` is notified at each question."""

    def __init__(self):
        self.asked, self.count = threading.Condition(), 0

    def __call__(self):
        with self.asked:
            self.count += 1
            self.asked.notify_all()
        figures = [AccountFigures(f"device {n}", n, 16 * MIB, (5 + n) * MIB) for n in range(2)]
        return Account(tuple(map(account_of, figures)))

    def wait_for(self, count):
        with self.asked:
            assert self.asked.wait_for(lambda: self.count >= count, 60)


@pytest.fixture
def devices(monkeypatch):
    found = Devices()
    monkeypatch.setattr(module, "account_now", found)
    monkeypatch.setattr(module, "PERIOD_S", 0.001)
    return found


def named_heap(name):
    return BFCAllocator(SimulatedSubAllocator(), MIB, name=name)


def test_the_header_shows_the_device_of_the_heap_while_live(devices):
    dashboard = LiveDashboard(named_heap("cupy:1"))
    devices.wait_for(3)  # the second one was shown
    assert "device 1: 6.0 MiB of 16.0 MiB free" in dashboard.inspector.header.device.value
    dashboard.stop()
    assert dashboard.inspector.header.device.layout.display == "none"
    dashboard.start()
    devices.wait_for(devices.count + 2)
    dashboard.close()
    assert not dashboard._device_reader.running


@pytest.mark.parametrize("name", ["numpy", "cupy:7"])
def test_nothing_is_shown_where_there_is_no_such_device(devices, name):
    dashboard = LiveDashboard(named_heap(name), start=False)
    dashboard._device_reader.start()
    dashboard.show_device()
    assert dashboard.inspector.header.device.layout.display == "none"
    assert devices.count == 0 or name == "cupy:7"
    dashboard.close()


def test_a_recording_of_another_process_is_not_about_the_devices_here(devices, tmp_path):
    heap = named_heap("cupy:0")
    heap.allocate(1000)
    path = Trace.from_events(trace_of(heap).read(0, 2), heap.labels, trace_of(heap).origin).save(
        tmp_path / "a.parquet"
    )
    dashboard = LiveDashboard(path)
    dashboard._device_reader.stop()
    assert devices.count == 0
    dashboard.close()


def shown_fills(inspector):
    """The colours that the list gives its holders, and the colours of their chunks in the map, by path."""
    data, pane = inspector.panel_data, inspector.holders
    colours, chunks = data.colours(inspector.look), data.model.in_use()
    classes, fills = colours.classes(chunks, data.model.step), {}
    for row in (row for row in Side(pane.body.value).all("tr") if "does" in row):
        choice = pane.choice(row["does"]["row"])
        mine = members(grouping(data.trace, inspector.pool, "op"), choice)(chunks)
        of_chunks = {colours.paints[number].fill for number in classes[mine].tolist()}
        fills[choice.path] = re.search("--fill:(#[0-9A-F]{6});", row["style"])[1], of_chunks
    return fills


@pytest.mark.parametrize("seed", [2, 6, 9, 11])
def test_the_list_has_the_colours_of_the_map_while_labels_appear(seed):
    random, heap, kept = Random(seed), new_heap(256 * MIB), []
    dashboard = LiveDashboard(heap, start=False)
    other, first = dashboard.inspector.look.paints.other.fill, {}
    try:
        for _ in range(80):
            if kept and random.random() < 0.48:
                heap.free(kept.pop(random.randrange(len(kept))))
            else:
                size = random.choice([4096, 70_000, MIB, 3 * MIB, 9 * MIB])
                label = random.choice(["enc/attn", "enc/mlp", "dec/attn", "loss"])
                kept.append(heap.allocate(size, label=label))
            if random.random() < 0.3:
                dashboard.refresh()
                for path, (fill, of_chunks) in shown_fills(dashboard.inspector).items():
                    assert fill in of_chunks or len(of_chunks) > 1, path
                    assert first.setdefault(path, fill) in (fill, other), path
                    first[path] = fill
    finally:
        dashboard.close()
