"""EventLog and Reader: a ring that overwrites, a file that only grows, and errors for readers that missed events."""

import time

import numpy as np
import pytest
from heaps import MIB, new_heap
from processes import sized

from bfcviz.errors import BfcvizError, Lapped
from bfcviz.events.log import EventLog, Reader, number_of_thread
from bfcviz.events.schema import EVENT, Kind

CAPACITY = 64


def busy(heap, pairs):
    for _ in range(pairs):
        heap.free(heap.allocate(1000))


def test_readers_see_every_event_in_order_each_at_its_own_place():
    heap = new_heap(log=EventLog(CAPACITY * 64))
    eager, lazy = Reader(heap.log), Reader(heap.log)
    seen = []
    for _ in range(10):
        busy(heap, 3)
        seen.append(eager.read())
    everything = np.concatenate(seen)
    assert everything["seq"].tolist() == list(range(heap.log.head))
    assert everything["kind"][0] == Kind.EXTEND
    assert np.array_equal(lazy.read(7), everything[:7])
    assert np.array_equal(lazy.read(), everything[7:])
    assert len(lazy.read()) == len(eager.read()) == 0


def test_a_lapped_reader_is_told_and_goes_on():
    heap = new_heap(log=EventLog(CAPACITY))
    reader = Reader(heap.log)
    busy(heap, 2)
    assert len(reader.read()) == heap.log.head
    place = reader.position
    busy(heap, CAPACITY)
    with pytest.raises(Lapped) as caught:
        reader.read()
    assert (caught.value.missed, caught.value.resume_at) == (heap.log.oldest - place, heap.log.oldest)
    assert reader.position == place  # nothing was skipped behind its back
    assert reader.resync() == caught.value.missed
    rest = reader.read()
    assert rest["seq"].tolist() == list(range(heap.log.head - CAPACITY + 1, heap.log.head))


def test_the_ring_keeps_all_but_the_slot_being_written():
    heap = new_heap(log=EventLog(CAPACITY))
    while heap.log.head < CAPACITY - 1:
        heap.mark("mark")
    assert heap.log.oldest == 0
    heap.mark("mark")
    assert heap.log.oldest == 1


@pytest.mark.parametrize("capacity", [0, 1, 63, 100, -64])
def test_capacities_that_cannot_be(capacity):
    with pytest.raises((BfcvizError, OverflowError)):
        EventLog(capacity)


def test_time_never_steps_back_and_is_near_the_systems():
    log = EventLog(CAPACITY * 4096)
    heap = new_heap(log=log)
    start = time.monotonic_ns()
    busy(heap, sized(30_000, 3000))
    took = time.monotonic_ns() - start
    times = Reader(log, 0).read(1 << 20)["time"]
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert abs((times[-1] - times[0]) - took) < 0.05 * took + 5_000_000


def test_a_file_holds_what_the_readers_see(tmp_path):
    log = EventLog(CAPACITY, folder=tmp_path)
    heap = new_heap(log=log)
    busy(heap, 3 * CAPACITY)  # several windows
    seen = Reader(log).read(1 << 20)
    assert len(seen) == log.head > 2 * CAPACITY
    heap.close()
    assert np.array_equal(np.fromfile(tmp_path / "events.bin", EVENT), seen)
    assert log.error == 0


def test_a_file_is_never_overwritten(tmp_path):
    EventLog(CAPACITY, folder=tmp_path).close()
    with pytest.raises(FileExistsError):
        EventLog(CAPACITY, folder=tmp_path)


def test_two_heaps_keep_their_own_logs():
    first, second = new_heap(MIB), new_heap(MIB)
    busy(first, 5)
    assert second.log.head == 0


# ------------------------------------------------------------------------------
# Readers at unusual positions: before the first event, after the last, across the end of a file; and slow readers.


def marked(count, **where):
    heap = new_heap(log=EventLog(64, **where))
    for number in range(count):
        heap.mark("mark", number)
    return heap


def test_it_begins_at_the_oldest_there_is():
    heap = marked(200)
    assert Reader(heap.log).position == 137
    assert Reader(heap.log).read()["size"].tolist() == list(range(137, 200))
    assert Reader(marked(10).log).position == 0


@pytest.mark.parametrize("start", [10, 11, 1000])
def test_behind_the_end_it_waits(start):
    heap = marked(10)
    reader = Reader(heap.log, start)
    assert len(reader.read()) == len(reader.read()) == 0
    assert reader.position == start
    while heap.log.head <= start:
        heap.mark("mark", heap.log.head)
    assert reader.read()["size"].tolist() == [start]


@pytest.mark.parametrize("limit", [0, -5])
def test_asked_for_nothing_it_gives_nothing(limit):
    heap = marked(10)
    reader = Reader(heap.log)
    assert len(reader.read(limit)) == 0
    assert reader.position == 0


def test_what_it_gives_is_a_copy():
    heap = marked(63)
    first = Reader(heap.log).read()
    before = first.copy()
    for number in range(500):
        heap.mark("mark", number)
    assert np.array_equal(first, before)


def test_a_slow_one_is_lapped_again_and_again():
    heap = marked(1)
    reader, seen, gaps = Reader(heap.log), [], []
    for turn in range(50):
        for _ in range(turn * 7 % 200):
            heap.mark("mark", heap.log.head)
        try:
            seen += reader.read(40)["size"].tolist()
        except Lapped as lapped:
            gaps.append((lapped.missed, lapped.resume_at, reader.resync(), reader.position, reader.resync()))
    while len(events := reader.read()):
        seen += events["size"].tolist()
    assert all(missed == skipped > 0 == again for missed, _, skipped, _, again in gaps)
    assert all(resume_at == position for _, resume_at, _, position, _ in gaps)
    assert len(seen) + sum(gap[0] for gap in gaps) == heap.log.head
    assert seen == sorted(set(seen))


def test_a_file_is_read_from_anywhere(tmp_path):
    heap = marked(1000, folder=tmp_path)
    for closed in (False, True):
        for start, limit in ((0, 5000), (63, 2), (64, 64), (999, 5)):
            got = Reader(heap.log, start).read(limit)["size"].tolist()
            assert got == list(range(1000))[start : start + limit]
        if not closed:
            heap.close()


def test_an_observer_gives_time_and_thread():
    log, mine = EventLog(64), number_of_thread()
    assert [log.begin_operation(*given) for given in ((400, mine + 7), (600, 0), (700,))] == [
        mine + 7,
        0,
        mine,
    ]
    for given in ((1 << 60, mine + 7), (1 << 50, 0)):
        log.begin_operation(*given)
        put_mark(log)
    log.begin_operation(1 << 61)
    put_mark(log, by=0)
    put_mark(log, by=mine + 9)
    events = log.copy(0, log.head)
    assert events["by"].tolist() == [mine + 7, 0, 0, mine + 9]
    assert events["time"].tolist() == [1 << 60, 1 << 60, 1 << 61, 1 << 61]


def test_a_reader_that_is_not_lapped_goes_on_where_it_was():
    log = EventLog(64)
    put_mark(log)
    put_mark(log)
    reader = Reader(log, 1)
    assert (reader.resync(), reader.position) == (0, 1)


def put_mark(log, by=-1):
    log.put(Kind.MARK, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, by=by)
