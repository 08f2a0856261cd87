"""Another process truncates events.bin: the recorded program continues, and the recording says what is lost."""

import os

import numpy as np
import pytest
from heaps import new_heap
from unit.events.fabricate import fabricate

from bfcviz.errors import FileError, Lapped
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Status
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

CAPACITY = 1024  # 16 pages


def marks(log, start, stop):
    return [*map(int, log.copy(start, stop)["size"])]


@pytest.mark.parametrize("kept", [0, 1, 64 * 100, 64 * 300 + 7, 64 * 1000])
@pytest.mark.parametrize("more", [10, 5000])
def test_a_heap_goes_on_when_its_file_is_truncated(kept, more, tmp_path):
    log = EventLog(CAPACITY, folder=tmp_path)
    heap = new_heap(log=log)
    for number in range(500):
        heap.mark("mark", number)
    os.truncate(tmp_path / "events.bin", kept)
    for number in range(500, 500 + more):
        heap.mark("mark", number)
    heap.check_invariants()
    log.close()
    lost = kept < 64 * 500 or more > CAPACITY
    assert log.truncated == (kept < 64 * (500 + more))
    assert (log.error, log.head) == (0, 500 + more)
    assert log.truncated or not lost
    whole = min(kept // 64, log.head)
    found = np.fromfile(tmp_path / "events.bin", np.uint8)
    assert len(found) == 64 * whole
    assert (
        log.oldest == (log.on_disk if more == 10 or not lost else log.head - CAPACITY + 1)
        or not log.truncated
    )
    assert marks(log, log.oldest, log.head) == [*range(log.oldest, log.head)]
    heap.mark("mark", log.head)
    assert marks(log, log.head - 1, log.head) == [log.head - 1]


def test_a_reader_of_a_truncated_log_raises_lapped(tmp_path):
    log = EventLog(CAPACITY, folder=tmp_path)
    heap = new_heap(log=log)
    for number in range(500):
        heap.mark("mark", number)
    reader = Reader(log)
    os.truncate(tmp_path / "events.bin", 0)
    with pytest.raises(Lapped):
        reader.read()
    assert reader.resync() == 500
    heap.mark("mark", 500)
    assert reader.read()["size"].tolist() == [500]
    assert log.truncated


def test_a_recording_says_that_it_was_truncated(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = new_heap(log=recording.log, labels=recording.labels)
        for _ in range(500):
            heap.mark("mark")
        os.truncate(recording.events_path, 64 * 100)
        for _ in range(20_000):
            heap.mark("mark")
    trace = Trace.open(tmp_path / "run")
    assert (len(trace), trace.origin.status) == (100, Status.TRUNCATED)
    assert len(trace.origin.reasons) == 1
    assert "truncated" in trace.origin.reasons[0]
    assert "20500 events" in trace.origin.reasons[0]


def test_many_logs_of_which_one_is_truncated(tmp_path):
    logs = []
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        logs.append(EventLog(CAPACITY, folder=tmp_path / str(number)))
    heaps = [new_heap(log=log) for log in logs]
    for heap in heaps:
        heap.mark("mark")
    logs[3].close()
    os.truncate(tmp_path / "7" / "events.bin", 0)
    for heap in heaps:
        for _ in range(CAPACITY + 1):
            heap.mark("mark")
    for log in logs:
        log.close()
    assert [number for number, log in enumerate(logs) if log.truncated] == [7]
    assert all(log.on_disk == CAPACITY + 2 for number, log in enumerate(logs) if number not in {3, 7})


@pytest.mark.parametrize("kept", [0, 64 * 10 + 3])
def test_a_trace_of_a_folder_that_is_truncated_is_an_error_that_says_so(kept, tmp_path):
    with Recording(tmp_path / "run") as recording:
        fabricate(5000).tofile(recording.events_path)
        trace = recording.trace()
        assert len(trace) == 5000
        os.truncate(recording.events_path, kept)
        assert len(trace.read(0, kept // 64)) == kept // 64
        for start, stop in ((0, 5000), (4999, 5000)):
            with pytest.raises(FileError, match="shorter"):
                trace.read(start, stop)
        assert trace.refresh() == 0
        assert "shorter" in "; ".join(trace.origin.reasons)
        assert trace.origin.status is Status.DEGRADED
