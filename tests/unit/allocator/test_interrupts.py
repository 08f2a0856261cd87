"""Signals during plain Python: an operation is complete or was not started, and nothing hangs."""

import gc
import signal
from contextlib import contextmanager

import pytest
from heaps import BASE, GIB, KIB, Scripted, new_heap

ROUNDS = 40


class Stop(Exception):
    """Raised by a signal handler."""


@contextmanager
def handler_of(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def stop(number, frame):
    raise Stop


def until_stopped(work):
    """Repeat `work` until a signal, which comes soon."""

    def again():
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True:
            work()

    with pytest.raises(Stop):
        again()


@pytest.mark.timeout(60, method="thread")  # the other method has the same timer
@pytest.mark.parametrize(
    "options", [{}, {"timestamps": True}, {"allow_growth": True, "garbage_collection": True}]
)
def test_a_handler_may_raise_at_any_moment(options):
    heap = new_heap(GIB, **options)

    def work():
        addresses = [heap.allocate(size) for size in (100, 40_000, 3_000_000)]
        heap.memory_map()
        for address in addresses:
            heap.free(address)

    with handler_of(signal.SIGALRM, stop):
        for _ in range(ROUNDS):
            until_stopped(work)
            assert gc.isenabled()
            heap.check_invariants()


@pytest.mark.timeout(60, method="thread")  # the other method has the same timer
def test_a_handler_may_ask_the_heap():
    heap, seen = new_heap(), set()

    def look(number, frame):
        seen.add(heap.stats().bytes_in_use)
        raise Stop

    with handler_of(signal.SIGALRM, look):
        for _ in range(ROUNDS):
            until_stopped(lambda: heap.allocate(4 * KIB) and heap.free(BASE))
            if heap.stats().bytes_in_use:  # the address of the last one was on its way
                heap.free(BASE)
    assert seen
    assert seen <= {0, 4 * KIB}


def test_handlers_stay_who_they_are():
    heap = new_heap()
    with handler_of(signal.SIGTERM, stop):
        heap.free(heap.allocate(1))
        assert signal.getsignal(signal.SIGTERM) is stop
    with handler_of(signal.SIGTERM, signal.SIG_IGN):
        heap.free(heap.allocate(1))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_signal_within_a_sub_allocator_is_not_lost():
    def grant(alignment, num_bytes):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        return BASE, num_bytes

    came = []
    heap = new_heap(source=Scripted(grant))
    with (
        handler_of(signal.SIGTERM, lambda number, frame: came.append(number)),
        handler_of(signal.SIGUSR1, lambda number, frame: came.append(number)),
    ):
        heap.allocate(1)
    assert sorted(came) == sorted([signal.SIGTERM, signal.SIGUSR1])
    heap.check_invariants()
