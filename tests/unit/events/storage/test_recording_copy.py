import numpy as np
import pytest
from heaps import new_heap
from processes import needs_compiled

from bfcviz.errors import FileError
from bfcviz.events.event_file import RECORD
from bfcviz.events.log_memory import SLOT
from bfcviz.events.origin import Pool, Status
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_copy import CopyPosition, RecordingCopy, read_increment
from bfcviz.events.trace import Trace


class Busy:
    """A recorded heap that allocates under new names."""

    def __init__(self, folder):
        self.recording = Recording(folder, [Pool("busy", 1 << 30)], details={"worker": "a"})
        self.heap = new_heap(1 << 30, log=self.recording.log, labels=self.recording.labels)
        self.count = 0

    def work(self, times):
        for _ in range(times):
            self.count += 1
            self.heap.free(self.heap.allocate(self.count * 100, label=f"tensor {self.count}"))


@pytest.fixture
def busy(tmp_path):
    found = Busy(tmp_path / "original")
    yield found
    found.heap.close()
    found.recording.close()


def copy_all(source, copy, most=1 << 17):
    more = True
    while more:
        increment = read_increment(source, copy.position, most)
        copy.add(increment)
        more = increment.has_more


def same(one, other):
    assert np.array_equal(one.read(0, len(one)), other.read(0, len(other)))
    assert one.labels.names == other.labels.names
    assert (one.origin.pools, one.origin.details) == (other.origin.pools, other.origin.details)


def test_a_copy_grows_as_its_original_does_and_is_equal_at_the_end(busy, tmp_path):
    copy = RecordingCopy(tmp_path / "copy")
    copy_all(busy.recording.folder, copy)
    followed = Trace.open(copy.folder)
    lengths = []
    for _ in range(3):
        busy.work(500)
        copy_all(busy.recording.folder, copy, most=700)
        followed.refresh()
        same(followed, busy.recording.trace())
        lengths.append(len(followed))
        assert (followed.following, followed.origin.status) == (True, Status.RECORDING)
    assert 0 < lengths[0] < lengths[1] < lengths[2]
    busy.heap.close()
    busy.recording.close()
    copy_all(busy.recording.folder, copy)
    followed.refresh()
    assert copy.closed
    assert (followed.following, followed.origin.status) == (False, Status.COMPLETE)
    same(followed, Trace.open(busy.recording.folder))


@needs_compiled
def test_an_original_writes_again_to_the_space_of_what_was_copied(tmp_path):
    with Recording(tmp_path / "original") as recording:
        copy, heap = RecordingCopy(tmp_path / "copy"), new_heap(log=recording.log)
        for _ in range(12):
            for value in range(heap.log.head, heap.log.head + SLOT):
                heap.mark("step", value)
            copy.add(read_increment(recording.folder, copy.position, free=True))
        assert recording.events_path.stat().st_size <= 4 * SLOT * RECORD
        count = heap.log.head
    copy.add(read_increment(recording.folder, copy.position, free=True))
    assert copy.closed
    assert Trace.open(copy.folder).read(0, count)["size"].tolist() == [*range(count)]


def test_a_copy_whose_original_was_lost_did_not_end_cleanly(busy, tmp_path):
    busy.work(100)
    copy = RecordingCopy(tmp_path / "copy")
    copy_all(busy.recording.folder, copy)
    followed = Trace.open(copy.folder)
    copy.close()
    followed.refresh()
    assert (followed.following, followed.origin.status) == (False, Status.TRUNCATED)
    same(followed, busy.recording.trace())


def test_an_increment_that_comes_twice_is_added_once(busy, tmp_path):
    busy.work(10)
    with RecordingCopy(tmp_path / "copy") as copy:
        increment = read_increment(busy.recording.folder, CopyPosition())
        copy.add(increment)
        position = copy.position
        copy.add(increment)
        assert copy.position == position
        same(Trace.open(copy.folder), busy.recording.trace())


def test_a_copy_of_nothing_leaves_an_empty_folder(tmp_path):
    RecordingCopy(tmp_path / "copy").close()
    assert [*(tmp_path / "copy").iterdir()] == []


def test_what_is_no_recording_cannot_be_copied(tmp_path):
    with pytest.raises(FileError, match=r"origin\.json"):
        read_increment(tmp_path, CopyPosition())
