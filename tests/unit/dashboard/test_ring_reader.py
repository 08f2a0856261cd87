import gc
import threading
import time
import weakref

from heaps import new_heap

from bfcviz.dashboard.live import LEAST_S, MOST_S, RingReader, read_ring_once
from bfcviz.events.log import EventLog
from bfcviz.model.trace_from_source import trace_of

PATIENCE_S = 60


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
