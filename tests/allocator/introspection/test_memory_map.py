"""The whole heap between two events, while it works."""

import threading

import numpy as np
from heaps import MIB, assert_model_agrees, new_heap

from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.model.seeking.window_start import beginning


def test_it_is_what_the_single_looks_show():
    heap = new_heap()
    held = [heap.allocate(1000 + i, label=f"op{i}") for i in range(20)]
    heap.free(held[7])
    moment = heap.moment()
    stats = heap.stats()
    assert moment.step == heap.log.head
    assert np.array_equal(moment.chunks, heap.memory_map())
    assert np.array_equal(moment.regions, heap.regions())
    assert moment.num_allocs == 20
    assert moment[4:] == (stats.peak_bytes_in_use, stats.largest_alloc_size, stats.peak_pool_bytes)


def test_a_closed_heap_has_nothing():
    heap = new_heap()
    heap.allocate(1000)
    heap.close()
    moment = heap.moment()
    assert (moment.step, len(moment.chunks), len(moment.regions)) == (heap.log.head, 0, 0)


def test_while_another_thread_allocates_it_is_of_one_step():
    heap = new_heap(64 * MIB, log=EventLog(1 << 17))
    turns, stop = [0], threading.Event()

    def work():
        while not stop.is_set() and turns[0] < 8000:
            held = [heap.allocate(256 * (i + 1)) for i in range(4)]
            for address in held:
                heap.free(address)
            turns[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    moments = [heap.moment() for _ in range(50)]
    stop.set()
    thread.join()
    events = Reader(heap.log, 0).read(1 << 20)
    assert_model_agrees(heap, events)
    for moment in moments:
        _, allocs = np.unique(events["kind"][: moment.step] == 3, return_counts=True)
        assert moment.num_allocs == (allocs[-1] if moment.step else 0)


def test_where_nothing_is_left_of_the_events_before_it_it_is_the_beginning():
    heap = new_heap(log=EventLog(64))
    heap.allocate(1000)
    moment = heap.moment()
    for number in range(200):
        heap.mark("mark", number)
    first, _, events = beginning(moment, heap.log)
    assert (first, len(events)) == (moment.step, 0)
