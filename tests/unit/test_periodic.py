"""Periodic: calls a function until it is stopped, in a thread or on an event loop."""

import asyncio
import contextvars
import gc
import threading
import time
import weakref

import pytest

from bfcviz.periodic import Periodic

PATIENCE_S = 60


class Calls:
    """Counts calls; a thread can wait for the next."""

    def __init__(self, wait=0.0, last=None):
        self.wait, self.last, self.threads = wait, last, []
        self.came = threading.Semaphore(0)

    def __call__(self):
        self.threads.append(threading.current_thread())
        self.came.release()
        return None if len(self.threads) == self.last else self.wait

    def wait_for_one(self):
        assert self.came.acquire(timeout=PATIENCE_S)


def test_it_calls_in_one_daemon_thread_until_it_is_stopped():
    calls = Calls()
    periodic = Periodic(calls, "often")
    assert not periodic.running
    periodic.start()
    periodic.start()
    for _ in range(3):
        calls.wait_for_one()
    assert periodic.running
    assert periodic.stop()
    count = len(calls.threads)
    assert not periodic.running
    (thread,) = set(calls.threads)
    assert (thread.name, thread.daemon, thread.is_alive()) == ("often", True, False)
    assert periodic.stop()  # twice is as good as once
    periodic.start()
    calls.wait_for_one()
    periodic.stop()
    assert len(calls.threads) > count
    assert len(set(calls.threads)) == 2


def test_it_waits_as_long_as_the_call_says_and_a_stop_ends_the_wait():
    calls = Calls(wait=1000)
    periodic = Periodic(calls, "seldom")
    began = time.monotonic()
    periodic.start(0.05)
    calls.wait_for_one()
    assert time.monotonic() - began >= 0.05
    assert periodic.stop(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert len(calls.threads) == 1


def test_it_ends_where_there_is_nothing_more_to_do_and_says_so():
    over = threading.Event()
    calls = Calls(last=3)
    periodic = Periodic(calls, "thrice", ended=over.set)
    periodic.start()
    assert over.wait(PATIENCE_S)
    assert (periodic.running, len(calls.threads)) == (False, 3)


def test_what_a_call_raises_ends_it_and_is_told():
    over, errors = threading.Event(), []

    def fail():
        raise ValueError("no")

    periodic = Periodic(fail, "fails", failed=errors.append, ended=over.set)
    periodic.start()
    assert over.wait(PATIENCE_S)
    assert [str(error) for error in errors] == ["no"]
    assert not periodic.running


def test_a_call_can_stop_it_and_start_it_again():
    over, results = threading.Semaphore(0), []

    def call():
        results.append(periodic.stop())
        if len(results) == 1:
            periodic.start()
        return 0.0

    periodic = Periodic(call, "stops", ended=over.release)
    periodic.start()
    for _ in range(2):
        assert over.acquire(timeout=PATIENCE_S)
    assert results == [False, False]
    assert not periodic.running


def test_a_stop_waits_no_longer_than_it_is_told_to():
    entered, leave = threading.Event(), threading.Event()

    def call():
        entered.set()
        leave.wait(PATIENCE_S)
        return 0.0

    periodic = Periodic(call, "slow")
    periodic.start()
    assert entered.wait(PATIENCE_S)
    assert periodic.stop(0) is False
    assert not periodic.running
    leave.set()


def test_a_sleep_within_a_call_ends_with_it():
    slept, began = [], threading.Event()

    def call():
        slept.append(periodic.sleep(0.001))
        began.set()
        slept.append(periodic.sleep(1000))
        return 0.0

    periodic = Periodic(call, "sleeps")
    periodic.start()
    assert began.wait(PATIENCE_S)
    assert periodic.stop(PATIENCE_S)
    assert slept == [True, False]


def test_it_runs_in_the_context_of_its_start():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("here")
    seen, over = [], threading.Event()
    periodic = Periodic(lambda: seen.append(variable.get()), "context", ended=over.set)
    periodic.start()
    assert over.wait(PATIENCE_S)
    assert seen == ["here"]


def test_on_an_event_loop_it_calls_between_other_tasks_until_it_is_stopped():
    calls, ends = Calls(), []

    async def run():
        periodic = Periodic(calls, "task", ended=lambda: ends.append(periodic.running))
        periodic.start_task()
        periodic.start_task()
        while len(calls.threads) < 3:  # noqa: ASYNC110  a plain list
            await asyncio.sleep(0)
        assert periodic.running
        assert periodic.stop()
        periodic.start_task()  # while the first is not told yet
        while len(calls.threads) < 6 or not ends:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert ends == [True]
        periodic.stop()
        while len(ends) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)

    asyncio.run(run())
    assert ends == [True, False]
    assert set(calls.threads) == {threading.current_thread()}


def test_a_task_that_is_stopped_before_it_begins_says_so():
    calls, ends = Calls(), []

    async def run():
        periodic = Periodic(calls, "task", ended=lambda: ends.append(periodic.running))
        periodic.start_task()
        periodic.stop()
        while not ends:  # noqa: ASYNC110  a plain list
            await asyncio.sleep(0)

    asyncio.run(run())
    assert (ends, calls.threads) == ([False], [])


def test_without_an_event_loop_there_is_no_task():
    periodic = Periodic(Calls(), "task")
    with pytest.raises(RuntimeError):
        periodic.start_task()
    assert not periodic.running


def test_nothing_is_left_of_one_that_was_stopped():
    calls = Calls()
    periodic = Periodic(calls, "gone")
    periodic.start()
    calls.wait_for_one()
    periodic.stop()
    gone = weakref.ref(periodic)
    del periodic
    gc.collect()
    assert gone() is None
