"""A workload in its own thread: its result, its exception, and a cancelled wait."""

import asyncio
import gc
import threading
import time
import weakref

import pytest

from bfcviz.dashboard import render_loop as module
from bfcviz.dashboard.render_loop import (
    IDLE_S,
    MOST_FAILURES,
    WHOLE_S,
    FrameChoice,
    FrameKind,
    Pace,
    Renderer,
    Workload,
)
from bfcviz.errors import BfcvizError

QUICK = {"rate": 1000, "budget": 1.0}
PATIENCE_S = 60


class Frames:
    """Counts frames; a thread can wait for the next."""

    def __init__(self, last=None):
        self.count, self.last = 0, last
        self.threads = set()
        self.came = threading.Condition()

    def __call__(self):
        with self.came:
            self.count += 1
            self.threads.add(threading.current_thread())
            self.came.notify_all()
        return self.count != self.last

    def wait_for(self, count):
        with self.came:
            assert self.came.wait_for(lambda: self.count >= count, PATIENCE_S)


def test_it_draws_in_its_own_thread_until_it_is_stopped():
    frames = Frames()
    renderer = Renderer(frames, **QUICK)
    assert not renderer.running
    renderer.start()
    renderer.start()  # once is enough
    frames.wait_for(5)
    assert renderer.running
    renderer.stop()
    after = frames.count
    assert not renderer.running
    assert len(frames.threads) == 1
    assert threading.current_thread() not in frames.threads
    assert not next(iter(frames.threads)).is_alive()
    assert renderer.pace.frames == frames.count == after


def test_it_can_be_started_again():
    frames = Frames()
    renderer = Renderer(frames, **QUICK)
    for round_ in (1, 2):
        renderer.start()
        frames.wait_for(frames.count + 2)
        renderer.stop()
        assert len(frames.threads) == round_


def test_it_ends_when_there_is_no_more_to_show_and_says_so():
    over = threading.Event()
    frames = Frames(last=3)
    renderer = Renderer(frames, ended=over.set, **QUICK)
    renderer.start()
    assert over.wait(PATIENCE_S)
    assert (renderer.running, frames.count, renderer.error) == (False, 3, None)


def test_what_goes_wrong_is_kept_and_it_gives_up_after_a_few():
    over, tries = threading.Event(), []

    def frame():
        tries.append(1)
        raise ValueError("no frame")

    renderer = Renderer(frame, ended=over.set, **QUICK)
    renderer.start()
    assert over.wait(PATIENCE_S)
    assert len(tries) == MOST_FAILURES
    assert isinstance(renderer.error, ValueError)


def test_a_frame_that_goes_well_makes_up_for_one_that_did_not():
    over, tries = threading.Event(), []

    def frame():
        tries.append(1)
        if len(tries) % 2:
            raise ValueError("no frame")
        return len(tries) < 20

    renderer = Renderer(frame, ended=over.set, **QUICK)
    renderer.start()
    assert over.wait(PATIENCE_S)
    assert (len(tries), renderer.error) == (20, None)


def test_paused_it_draws_nothing():
    frames = Frames()
    renderer = Renderer(frames, **QUICK)
    renderer.pause()
    assert renderer.paused
    renderer.start()
    time.sleep(0.05)
    assert (frames.count, renderer.pace.frames) == (0, 0)
    renderer.resume()
    frames.wait_for(1)
    renderer.stop()


def test_it_may_be_stopped_from_within_a_frame():
    over = threading.Event()

    def frame():
        renderer.stop()
        return True

    renderer = Renderer(frame, ended=over.set, **QUICK)
    renderer.start()
    assert over.wait(PATIENCE_S)
    assert not renderer.running


def test_on_an_event_loop_it_draws_between_other_tasks():
    frames = Frames(last=5)

    async def run():
        over = asyncio.Event()
        renderer = Renderer(frames, ended=over.set, **QUICK)
        renderer.start_task()
        renderer.start_task()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        return renderer.running

    assert asyncio.run(run()) is False
    assert frames.count == 5
    assert frames.threads == {threading.current_thread()}


def test_on_an_event_loop_it_can_be_stopped():
    frames = Frames()

    async def run():
        renderer = Renderer(frames, **QUICK)
        renderer.start_task()
        await asyncio.sleep(0)
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        renderer.stop()
        await asyncio.wait([task])
        return renderer.running, task.done()

    assert asyncio.run(run()) == (False, True)


def test_without_a_loop_a_task_is_refused():
    with pytest.raises(BfcvizError, match="use start"):
        Renderer(Frames()).start_task()


@pytest.mark.parametrize(("rate", "budget"), [(0, 0.05), (10, 0), (10, 1.5), (1e9, 0.05)])
def test_what_cannot_be_is_refused(rate, budget):
    with pytest.raises(BfcvizError, match="frames/s"):
        Renderer(Frames(), rate=rate, budget=budget)


def test_nothing_is_left_of_it():
    frames = Frames()
    renderer = Renderer(frames, **QUICK)
    renderer.start()
    frames.wait_for(1)
    renderer.stop()
    gone = weakref.ref(renderer)
    frames.threads.clear()
    del renderer
    gc.collect()
    assert gone() is None


class Clock:
    """A stand-in for `time` that the test advances."""

    def __init__(self):
        self.now = self.cpu = 100.0

    def monotonic(self):
        return self.now

    def thread_time(self):
        return self.cpu

    def draw(self, pace, seconds, cpu):
        pace.begin()
        self.now += seconds
        self.cpu += cpu
        wait = pace.end()
        self.now += wait
        return wait


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_cheap_frames_come_at_the_rate(clock):
    assert clock.draw(Pace(10, 0.05), 0.004, 0.001) == pytest.approx(0.096)


def test_frames_that_begin_late_keep_the_rate(clock):
    pace = Pace(10, 0.05)
    began = clock.now
    for _ in range(20):
        clock.draw(pace, 0.004, 0.001)
        clock.now += 0.005
    assert clock.now - began == pytest.approx(2.0, abs=0.01)


def test_frames_that_begin_early_delay_none(clock):
    pace = Pace(10, 0.05)
    for _ in range(20):  # as when it is stopped and started again
        pace.begin()
        wait = pace.end()
    assert wait == pytest.approx(0.1)


def test_after_a_pause_there_is_no_burst(clock):
    pace = Pace(10, 0.05)
    clock.draw(pace, 0.004, 0.001)
    clock.now += 3.0
    assert clock.draw(pace, 0.004, 0.001) == pytest.approx(0.096)


def test_expensive_frames_come_as_often_as_the_budget_allows(clock):
    pace = Pace(10, 0.05)
    began, costs = clock.now, (0.02, 0.05, 0.01, 0.03) * 20
    for cost in costs:
        clock.draw(pace, 2 * cost, cost)
    saved = 0.05 * module.SAVED_S
    assert sum(costs) - saved == pytest.approx((clock.now - began) * 0.05)
    assert (pace.frames, pace.cost_s) == (80, pytest.approx(0.03))


def test_one_expensive_frame_does_not_delay_cheap_ones(clock):
    pace = Pace(10, 0.05)
    for _ in range(3):
        assert clock.draw(pace, 0.03, 0.03) == pytest.approx(0.07)
        for _ in range(9):
            assert clock.draw(pace, 0.001, 0.001) == pytest.approx(0.099)


def test_waiting_for_others_costs_nothing(clock):
    assert clock.draw(Pace(10, 0.05), 0.5, 0.001) == 0


def test_one_very_slow_frame_does_not_stop_the_others(clock):
    assert clock.draw(Pace(10, 0.05), 1.5, 1.5) == pytest.approx(module.LONGEST_S - 1.5)
    assert clock.draw(Pace(0.2, 0.05), 0.1, 0.1) == pytest.approx(4.9)


def frames(choice, clock, came, seconds=0.1, cost_s=0.01, **how):
    """The frames drawn; `came`: one letter per frame, `.` if no event came."""
    drawn = []
    for letter in came:
        clock.now += seconds
        frame = choice.due(came=letter != ".", **{"followed": True} | how)
        if frame is not FrameKind.NOTHING:
            choice.drew(frame, cost_s)
        drawn.append(frame)
    return drawn


def test_the_first_frame_after_idle_is_whole(clock):
    choice = FrameChoice()
    assert frames(choice, clock, "..x") == [FrameKind.NOTHING, FrameKind.NOTHING, FrameKind.WHOLE]
    assert not choice.moving


def test_an_active_heap_moves_the_map_and_the_rest_once_per_second(clock):
    choice = FrameChoice()
    drawn = frames(choice, clock, "x" * 31)
    assert drawn[0] is FrameKind.WHOLE
    assert drawn.count(FrameKind.MOVING) == pytest.approx(3 / WHOLE_S, abs=1)
    assert drawn.count(FrameKind.MOVING) + drawn.count(FrameKind.MAP) == 30
    assert choice.moving


def test_expensive_frames_are_drawn_less_often(clock):
    cheap, dear = FrameChoice(), FrameChoice()
    assert frames(dear, clock, "x" * 50, cost_s=0.04).count(FrameKind.MOVING) < frames(
        cheap, clock, "x" * 50
    ).count(FrameKind.MOVING)


def test_an_idle_heap_gets_one_whole_frame(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxxx")
    drawn = frames(choice, clock, "." * 20)
    assert drawn.index(FrameKind.WHOLE) in (2, 3)
    assert [frame for frame in drawn if frame is not FrameKind.NOTHING] == [FrameKind.WHOLE]
    assert not choice.moving


def test_an_active_heap_is_recognised_at_a_low_frame_rate(clock):
    drawn = frames(FrameChoice(), clock, "xxx", seconds=3 * IDLE_S)
    assert drawn[1:] != [FrameKind.WHOLE] * 2


def test_an_earlier_step_is_redrawn_whole_once_per_second(clock):
    drawn = frames(FrameChoice(), clock, "x" * 30, followed=False)
    assert set(drawn) == {FrameKind.WHOLE, FrameKind.NOTHING}
    assert drawn.count(FrameKind.WHOLE) <= 4


def test_the_last_frame_is_whole(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxx")
    assert frames(choice, clock, ".", ended=True) == [FrameKind.WHOLE]
    assert frames(choice, clock, ".", ended=True) == [FrameKind.NOTHING]


def test_a_failed_frame_is_drawn_again(clock):
    choice = FrameChoice()
    clock.now += 1
    assert choice.due(came=True, followed=True) is FrameKind.WHOLE
    clock.now += 1
    assert choice.due(came=False, followed=True) is FrameKind.WHOLE


def test_its_exception_is_raised_again_and_stored():
    ended = []
    workload = Workload(int, ("x",), lambda: ended.append(True))
    with pytest.raises(ValueError, match="invalid literal"):
        workload.result(PATIENCE_S)
    assert (workload.done, type(workload.error)) == (True, ValueError)


def test_cancelling_a_wait_does_not_cancel_it():
    go_on = threading.Event()

    async def run():
        workload = Workload(go_on.wait, (PATIENCE_S,), lambda: None)
        waiter = asyncio.ensure_future(asyncio.wait_for(workload, PATIENCE_S))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not workload.done
        go_on.set()
        return await workload

    assert asyncio.run(run()) is True
