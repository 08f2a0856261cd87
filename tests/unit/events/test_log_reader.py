"""Readers at unusual positions: before the first event, after the last, across the end of a file; and slow readers."""

import numpy as np
import pytest
from heaps import new_heap

from bfcviz.errors import Lapped
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader


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
