import asyncio
import gc
import threading
import time
import weakref

import pytest

from bfcviz.dashboard.renderer import MOST_FAILURES, Renderer
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
