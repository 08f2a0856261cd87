"""LiveDashboard with a stand-in for the Inspector: which frames it requests, when, and in which thread."""

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from time import thread_time
from types import SimpleNamespace

import ipywidgets as widgets
import pytest
import traitlets
from heaps import MIB, new_heap
from shared import ROOT
from threads import wait_for_end
from unit.dashboard.pages import tell_views

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.dashboard import live_dashboard as module
from bfcviz.dashboard.header import notice
from bfcviz.dashboard.live_dashboard import (
    LEAST_S,
    MOST_S,
    LiveDashboard,
    RingReader,
    StatusLine,
    read_ring_once,
)
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of

PATIENCE_S = 60
QUICK = {"rate": 1000, "budget": 1.0}

WRITER = """
import sys
from heaps import MIB, new_heap
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
with Recording(sys.argv[1], [Pool("gpu", MIB)]) as recording:
    heap = new_heap(log=recording.log, labels=recording.labels)
    for number in range(100):
        heap.mark("mark", number)
    print("written", flush=True)
    sys.stdin.read()
"""


class Killed:
    """Another process, which recorded 100 events and waits."""

    def __init__(self, folder):
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        command = [sys.executable, "-c", WRITER, str(folder)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe)

    def __enter__(self):
        self.process.__enter__()
        assert self.process.stdout.readline() == "written\n"
        return self.process

    def __exit__(self, *how):
        self.process.kill()
        self.process.__exit__(*how)


class StandIn(widgets.VBox):
    """Has the interface of the Inspector, and records the lengths of the trace that it showed."""

    follow = traitlets.Bool(False)
    step = traitlets.Int(0)

    def __init__(self, trace, *, follow=False, theme="auto"):
        super().__init__()
        self.lock, self.came = threading.RLock(), threading.Condition()
        self.trace, self.follow, self.theme = trace, follow, theme
        self.model = Model(trace)
        self.shown, self.threads, self.failing = [], set(), False
        self.ended = False

    def draw_moving_map(self):
        return False

    def change_trace(self, trace):
        self.trace, self.model = trace, Model(trace)
        self.ended = False

    def show_end(self):
        self.ended = True

    def trace_grew(self, *, moving=False):
        with self.lock, self.came:
            if self.failing:
                raise ValueError("no frame")
            self.threads.add(threading.current_thread())
            self.step = len(self.trace) if self.follow else max(self.step, self.trace.first)
            self.model.seek(self.step)
            self.shown.append(len(self.trace))
            self.came.notify_all()

    def wait_for(self, length):
        with self.came:
            assert self.came.wait_for(lambda: self.shown and self.shown[-1] >= length, PATIENCE_S)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(module, "Inspector", StandIn)


@pytest.fixture
def watch():
    """Makes dashboards and closes them."""
    made = []

    def make(*arguments, **options):
        made.append(LiveDashboard(*arguments, **{**QUICK, **options}))
        return made[-1]

    yield make
    for dashboard in made:
        dashboard.close()


def work(heap, times=50):
    for number in range(times):
        heap.free(heap.allocate(1000 + number))
    return heap.log.head


def test_it_draws_new_events_in_its_own_thread(watch):
    heap = new_heap()
    dashboard = watch(heap)
    head = work(heap)
    dashboard.inspector.wait_for(head)
    assert dashboard.inspector.follow
    assert dashboard.inspector.step == head
    assert dashboard.inspector.threads == {dashboard.renderer.thread}
    head = work(heap)
    dashboard.inspector.wait_for(head)
    assert dashboard.pictures == len(dashboard.inspector.shown)


def test_without_new_events_nothing_is_drawn(watch):
    heap = new_heap()
    work(heap)
    dashboard = watch(heap, start=False)
    assert dashboard.refresh()
    assert dashboard.refresh()
    assert dashboard.inspector.shown == []
    work(heap)
    assert dashboard.refresh()
    assert dashboard.inspector.shown == [heap.log.head]


def test_the_workload_never_waits_for_a_frame(watch):
    heap = new_heap()
    dashboard = watch(heap)
    with dashboard.inspector.lock:  # as a frame that never ends
        head = work(heap, 2000)
    dashboard.inspector.wait_for(head)


def test_an_earlier_step_stays_shown_while_events_come(watch):
    heap = new_heap()
    dashboard = watch(heap, start=False)
    work(heap)
    dashboard.refresh()
    dashboard.inspector.follow, dashboard.inspector.step = False, 20
    work(heap)
    dashboard.refresh()
    assert dashboard.inspector.step == 20
    assert dashboard.inspector.shown[-1] == heap.log.head


def test_two_dashboards_show_one_heap(watch):
    heap = new_heap(log=EventLog(128))
    one, other = watch(heap), watch(heap, keep=512, start=False)
    head = work(heap, 300)
    one.inspector.wait_for(head)
    other.refresh()
    assert len(one.trace) == len(other.trace) == head
    assert one.inspector.model.stats().bytes_in_use == other.inspector.model.stats().bytes_in_use


def test_it_can_be_paused_and_resumed(watch):
    heap = new_heap()
    dashboard = watch(heap)
    dashboard.inspector.wait_for(work(heap))
    dashboard.pause()
    assert (dashboard.renderer.paused, dashboard.pause_button.description) == (True, "resume")
    assert f"paused: {dashboard.inspector.step:,} events." in dashboard.status.value
    dashboard.pause_button.value = False  # as by a click
    assert not dashboard.renderer.paused
    assert "live: " in dashboard.status.value
    dashboard.inspector.wait_for(work(heap))


def test_what_came_in_a_pause_is_no_rate(watch, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=thread_time))
    heap = new_heap()
    dashboard = watch(heap, start=False)
    dashboard.refresh()
    dashboard.pause()
    events = work(heap, 500)
    now[0] += 60
    dashboard.resume()
    now[0] += 2
    dashboard.refresh()
    assert f"live: {events:,} events, 0 events/s" in dashboard.status.value
    assert dashboard.pause_button.layout.display is None


def test_in_a_pause_the_status_line_follows_what_the_user_does(watch):
    one, other = new_heap(), new_heap()
    dashboard = watch([one, other], start=False)
    dashboard.refresh()
    dashboard.pause()
    for heap, number in ((other, 1), (one, 0)):
        events = work(heap, 5 + number)
        dashboard.menu.value = number
        assert f"paused: {events:,} events." in dashboard.status.value
    events = work(one, 3)
    dashboard.refresh()
    assert f"paused: {events:,} events." in dashboard.status.value
    job = dashboard.run(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        job.result(PATIENCE_S)
    wait_for_end("bfcviz-workload")
    assert "failed: ValueError" in dashboard.status.value


def test_a_rate_is_of_one_heap(watch):
    one, other = new_heap(), new_heap()
    dashboard = watch([one, other], start=False)
    work(one, 100)
    dashboard.refresh()
    dashboard.menu.value = 1
    assert "live: 0 events." in dashboard.status.value


def test_without_a_view_it_does_not_draw(watch):
    dashboard = watch(new_heap(), start=False)
    assert not dashboard.renderer.paused  # a busy kernel is notified of views late
    paused = []
    for count in (1, 2, 1, 0, 1):
        tell_views(dashboard, count)
        paused.append(dashboard.renderer.paused)
    assert paused == [False, False, False, True, False]
    dashboard.pause()
    tell_views(dashboard, 0)
    tell_views(dashboard, 1)
    assert dashboard.renderer.paused


def test_an_error_in_a_frame_is_shown_and_the_workload_continues(watch):
    heap = new_heap()
    dashboard = watch(heap, start=False)
    dashboard.inspector.failing = True
    stop = threading.Event()
    beside = threading.Thread(target=lambda: [work(heap) for _ in iter(stop.is_set, True)])
    beside.start()
    dashboard.start()
    dashboard.renderer.thread.join(PATIENCE_S)
    stop.set()
    beside.join()
    assert isinstance(dashboard.renderer.error, ValueError)
    assert "failed: ValueError: no frame" in dashboard.status.value


def test_lost_events_are_reported_and_the_state_is_right(watch):
    heap = new_heap(log=EventLog(64))
    dashboard = watch(heap, start=False)
    held = [heap.allocate(1000) for _ in range(200)]
    dashboard.status_line.hurry()
    dashboard.refresh()
    assert dashboard.inspector.model.stats().chunks_in_use == len(held)
    reason = "overwritten"
    assert reason in notice(dashboard.trace.origin)[1]  # the Inspector shows it above the figure
    assert reason not in dashboard.status.value


def test_it_ends_with_the_recording(tmp_path, watch):
    with Recording(tmp_path / "run", [Pool("gpu", MIB)]) as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), MIB, log=recording.log, labels=recording.labels)
        dashboard = watch(tmp_path / "run")
        head = work(heap)
        dashboard.inspector.wait_for(head)
        heap.close()
    dashboard.renderer.thread.join(PATIENCE_S)
    assert not dashboard.renderer.running
    assert "ended (complete)" in dashboard.status.value
    assert dashboard.pause_button.layout.display == "none"
    assert dashboard.inspector.ended


def test_several_heaps_have_a_menu(watch):
    heaps = [new_heap(), new_heap()]
    dashboard = watch(heaps, theme="dark", start=False)
    work(heaps[1])
    assert dashboard.menu.options == (("bfc (0)", 0), ("bfc (1)", 1))
    dashboard.menu.value = 1
    assert dashboard.inspector.trace is dashboard.trace is dashboard.traces[1]
    assert (dashboard.inspector.follow, dashboard.inspector.theme) == (True, "dark")
    assert len(dashboard.trace) == heaps[1].log.head
    assert dashboard.refresh()


def test_one_heap_has_no_menu(watch):
    dashboard = watch(new_heap(), start=False)
    assert dashboard.menu not in dashboard.bar.children


def test_a_workload_in_its_own_thread_keeps_the_loop_free(watch):
    heap = new_heap()

    async def run():
        dashboard = watch(heap)
        head = await dashboard.run(work, heap)
        while not dashboard.inspector.shown or dashboard.inspector.shown[-1] < head:  # noqa: ASYNC110
            await asyncio.sleep(0)
        dashboard.renderer.stop()
        return dashboard

    dashboard = asyncio.run(run())
    assert threading.current_thread() in dashboard.inspector.threads


def test_a_workload_runs_without_an_event_loop(watch):
    heap = new_heap()
    dashboard = watch(heap)
    head = dashboard.run(work, heap).result(PATIENCE_S)
    dashboard.inspector.wait_for(head)


def test_the_exception_of_a_workload_is_shown_in_the_dashboard(watch):
    dashboard = watch(new_heap(), start=False)
    job = dashboard.run(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        job.result(PATIENCE_S)
    assert (job.done, type(job.error)) == (True, ValueError)
    dashboard.renderer.stop()
    dashboard.status_line.hurry()
    dashboard.refresh()
    assert "failed: ValueError: invalid literal" in dashboard.status.value


def test_close_stops_its_thread_and_closes_its_widgets():
    dashboard = LiveDashboard(new_heap(), **QUICK)
    thread = dashboard.renderer.thread
    dashboard.close()
    assert not thread.is_alive()
    assert dashboard.comm is None
    assert dashboard.inspector.comm is None
    dashboard.close()  # a second close does nothing


def test_an_empty_list_is_refused():
    with pytest.raises(BfcvizError, match="no heap"):
        LiveDashboard([])


def test_it_ends_when_the_process_is_killed_and_its_events_stay(tmp_path, watch):
    with Killed(tmp_path / "run") as process:
        dashboard = watch(tmp_path / "run")
        assert (len(dashboard.trace), dashboard.trace.following) == (100, True)
        process.kill()
    dashboard.renderer.thread.join(PATIENCE_S)
    assert not dashboard.renderer.running
    assert "ended (truncated)" in dashboard.status.value
    assert notice(dashboard.trace.origin)[0]
    dashboard.inspector.model.seek(100)


class Fast:
    """A trace of which `come` events are new at each look."""

    slack, following = 1000, True

    def __init__(self, come):
        self.come, self.looks = come, threading.Semaphore(0)

    def fetch(self):
        self.looks.release()
        return self.come


def drains():
    return [each for each in threading.enumerate() if each.name == "bfcviz-ring-reader"]


def test_it_fetches_until_it_is_stopped():
    trace = Fast(1)
    drain = RingReader([trace])
    drain.start()
    drain.start()
    for _ in range(3):
        assert trace.looks.acquire(timeout=PATIENCE_S)
    assert drain.running
    (thread,) = drains()
    drain.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_does_not_keep_a_trace_and_ends_with_it():
    trace = Fast(1)
    gone = weakref.ref(trace)
    drain = RingReader([trace])
    drain.start()
    (thread,) = drains()
    del trace
    deadline = time.monotonic() + PATIENCE_S
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
    assert gone() is None
    thread.join(PATIENCE_S)
    assert not drain.running


def test_where_nothing_can_be_lost_there_is_no_thread():
    trace = Fast(1)
    trace.slack = None
    drain = RingReader([trace])
    drain.start()
    assert not drain.running


def test_the_faster_the_heap_the_sooner_it_looks_again():
    assert read_ring_once(Fast(0), 0.02) == MOST_S
    assert read_ring_once(Fast(1), 0.02) == MOST_S
    assert read_ring_once(Fast(500), 0.04) == 0.02
    assert read_ring_once(Fast(5000), 0.04) == LEAST_S


def test_what_it_fetched_is_not_lost_however_far_the_ring_comes_round():
    heap = new_heap(log=EventLog(1024))
    trace = trace_of(heap)
    for _ in range(20):
        for _ in range(100):
            heap.free(heap.allocate(1000))
        assert trace.fetch() > 0
        assert len(trace) == 0  # not yet to be seen
    assert heap.log.oldest > 1024
    trace.refresh()
    assert (len(trace), trace.first, trace.origin.reasons) == (heap.log.head, 0, ())


# ------------------------------------------------------------------------------
# The status line: what is shown, the error, and rates that are measured once a second.


def test_it_shows_events_and_frames_per_second(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    heap = new_heap()
    trace, line = trace_of(heap), StatusLine()
    assert line.text(trace, 0, 0, None).startswith("live: 0 events")
    for number in range(20):
        heap.mark("mark", number)
    trace.refresh()
    now[0] += 0.5
    assert "/s" not in line.text(trace, 20, 16, None)
    now[0] += 1.5
    assert re.findall(r"[\d.]+ (?:events/s|frames/s)", line.text(trace, 20, 16, None)) == [
        "10 events/s",
        "8.0 frames/s",
    ]
    now[0] += 0.1
    assert "10 events/s" in line.text(trace, 20, 16, None)
    assert "ValueError: no frame" in line.text(trace, 20, 16, ValueError("no frame"))


def test_it_counts_the_events_that_the_page_shows():
    """More may have come since the last frame was drawn."""
    heap = new_heap()
    trace, line = trace_of(heap), StatusLine()
    for number in range(20):
        heap.mark("mark", number)
        trace.refresh()
        assert line.text(trace, 3 + number // 2, 1, None).startswith(f"live: {3 + number // 2} events")


def test_a_pause_has_no_rate_and_none_spans_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    trace, line = trace_of(new_heap()), StatusLine()
    texts = []
    for paused in (False, True, False, False):
        texts.append(line.text(trace, 0, 0, None, paused=paused))
        now[0] += 2
    assert [text.partition(":")[0] for text in texts] == ["live", "paused", "live", "live"]
    assert ["/s" in text for text in texts] == [False, False, False, True]
