import errno
import os

import numpy as np
import pytest
from heaps import new_heap
from processes import needs_compiled
from unit.events.fabricate import fabricate

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import FileError, TraceError
from bfcviz.events.event_file import RECORD
from bfcviz.events.label_table import Labels
from bfcviz.events.log_memory import SLOT
from bfcviz.events.origin import KnownGaps, Pool, RecordedFailure, Status, recorded_failures
from bfcviz.events.schema import Kind
from bfcviz.events.storage import recording as recording_module
from bfcviz.events.storage.folder import claim_subfolder
from bfcviz.events.storage.recording import CopyPosition, Recording, RecordingCopy, read_increment
from bfcviz.events.trace import Trace

POOLS = (Pool("gpu", 1 << 30, {"allow_growth": True}),)


EVENTS = fabricate(150_000)


def add(recording, start, stop):
    with recording.events_path.open("ab") as file:
        EVENTS[start:stop].tofile(file)


def test_it_can_be_read_from_the_first_moment(tmp_path):
    with Recording(tmp_path / "run", POOLS, details={"bfcviz": "0.1"}) as recording:
        trace = recording.trace()
        assert (len(trace), trace.origin.status) == (0, Status.RECORDING)
        assert (trace.origin.pools, trace.origin.details) == (POOLS, {"bfcviz": "0.1"})
        assert trace.origin.source == "run"
    assert (trace.refresh(), trace.origin.status) == (0, Status.COMPLETE)


@pytest.mark.parametrize(
    ("pools", "limit", "named"),
    [((Pool("gpu"),), 8 << 20, "gpu"), (POOLS, 1 << 30, "gpu")],
    ids=["left open", "given"],
)
def test_the_heap_says_its_limit_and_options_where_the_pool_does_not(tmp_path, pools, limit, named):
    with Recording(tmp_path / "run", pools) as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), "8MiB", log=recording.log, labels=recording.labels)
        for trace in (recording.trace(), Trace.open(tmp_path / "run")):
            (pool,) = trace.origin.pools
            assert (pool.name, pool.limit) == (named, limit)
            assert pool.options == (pools[0].options or vars(heap.options))
        heap.close()
    assert Trace.open(tmp_path / "run").origin.pools == (pool,)


def test_what_is_known_of_failures_is_kept_of_the_first_thousand(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_module, "_MOST_FAILURES", 3)
    failures = [RecordedFailure(event, device_free=10 * event, device_total=100) for event in range(5)]
    with Recording(tmp_path / "run", POOLS) as recording:
        for failure in failures:
            recording.add_failure(failure)
    recording.add_failure(failures[0])  # it has ended
    origin = Trace.open(tmp_path / "run").origin
    assert recorded_failures(origin.details) == failures[:3]
    assert origin.status == Status.COMPLETE


def test_it_is_followed_while_it_grows(tmp_path):
    with Recording(tmp_path / "run", POOLS) as recording:
        trace = recording.trace()
        for number in range(1, 801):
            recording.labels.intern(f"op{number}")
        before = 0
        for stop in (1, 63, 64, 5000, 150_000):
            add(recording, before, stop)
            assert trace.refresh() == stop - before
            assert np.array_equal(trace.read(before, stop), EVENTS[before:stop])
            before = stop
        assert trace.refresh() == 0
        assert trace.labels.name(799) == "op799"
        held = trace.read(0, 64)
    assert trace.refresh() == 0
    assert (len(trace), trace.origin.status, trace.origin.reasons) == (150_000, Status.COMPLETE, ())
    assert np.array_equal(held, EVENTS[:64])


def test_it_goes_on_with_labels_that_are_there(tmp_path):
    labels = Labels()
    known = labels.intern("before", shape="[1]")
    with Recording(tmp_path / "run", labels=labels) as recording:
        new = recording.labels.intern("during")
    assert labels.intern("after") == new + 1
    trace = recording.trace()
    assert (trace.labels.name(known), trace.labels.name(new), len(trace.labels)) == ("before", "during", 3)


def test_its_own_log_is_closed_with_it(tmp_path):
    with Recording(tmp_path / "run") as recording:
        assert recording.log is recording.log
        assert recording.log.path == recording.events_path
        assert recording.trace().origin.status is Status.RECORDING
    assert recording.events_path.stat().st_size == 0
    assert recording.trace().origin.status is Status.COMPLETE


class FullLog:
    """A log on a full disk."""

    error = errno.ENOSPC
    truncated = False
    used_pools = 0
    on_disk = 0

    def __init__(self, folder):
        self.folder = folder

    def close(self):
        self.closed = True


def test_known_gaps_are_in_it_from_the_first_moment(tmp_path):
    gaps = KnownGaps(("a sample", "made up"), ("free_bytes",))
    with Recording(tmp_path / "run", POOLS, details={"way": "observe"}) as recording:
        recording.declare(gaps)
        trace = recording.trace()
        assert (trace.origin.status, trace.origin.reasons) == (Status.RECORDING, gaps.reasons)
    trace.refresh()
    for origin in (trace.origin, Trace.open(tmp_path / "run").origin):
        assert (origin.status, origin.reasons, origin.pools) == (Status.DEGRADED, gaps.reasons, POOLS)
        assert (origin.details["way"], origin.details["facts"]) == ("observe", [{"free_bytes": None}])
        assert origin.has_ended_whole


def test_what_is_lost_is_said_beside_known_gaps(tmp_path, monkeypatch):
    monkeypatch.setattr("bfcviz.events.storage.recording.EventLog", FullLog)
    with Recording(tmp_path / "run") as recording:
        recording.declare(KnownGaps(("a sample",), ("free_bytes",)))
        assert recording.log is not None
    trace = Trace.open(tmp_path / "run")
    trace.save(tmp_path / "saved.parquet")
    assert Trace.open(tmp_path / "saved.parquet").origin.reasons == trace.origin.reasons
    origin = trace.origin
    assert (origin.status, origin.reasons[0], len(origin.reasons)) == (Status.TRUNCATED, "a sample", 2)
    assert not origin.has_ended_whole


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("bfcviz.events.storage.recording.EventLog", FullLog)
    with Recording(tmp_path / "run") as recording:
        log = recording.log
        recording.labels.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add(recording, 0, 10)
    assert log.closed
    origin = Trace.open(tmp_path / "run").origin
    assert origin.status is Status.DEGRADED
    assert [reason.split(" were")[0] for reason in origin.reasons] == ["later events", "later names"]
    assert all("No space left" in reason for reason in origin.reasons)


@pytest.mark.parametrize("is_new", [True, False])
def test_only_its_user_can_read_it(is_new, tmp_path):
    folder = tmp_path / "run"
    if not is_new:  # the folder of a user keeps its permissions, the files in it are private
        folder.mkdir(0o755)
    with Recording(folder) as recording:
        recording.labels.intern("step")
        recording.log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, 1, 0, 0, -1, 0)
    assert folder.stat().st_mode & 0o777 == (0o700 if is_new else 0o755)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    place = claim_subfolder(folder, "rank-1")
    assert place.stat().st_mode & 0o777 == 0o700
    saved = recording.trace().save(tmp_path / "saved.parquet")
    os.umask(mask := os.umask(0))
    assert saved.stat().st_mode & 0o777 == 0o666 & ~mask  # a saved trace is as any file of the user


def test_closing_twice_and_after_an_error(tmp_path):
    recording = Recording(tmp_path / "run")
    add(recording, 0, 10)
    with pytest.raises(ZeroDivisionError), recording:
        raise ZeroDivisionError
    recording.close()
    trace = recording.trace()
    assert (len(trace), trace.origin.status) == (10, Status.COMPLETE)


def test_a_folder_is_used_once(tmp_path):
    (tmp_path / "empty").mkdir()
    Recording(tmp_path / "empty").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="not empty"):
        Recording(tmp_path / "empty")
    with pytest.raises(FileError, match="cannot hold a recording"):
        Recording(tmp_path / "file")
    assert len(Trace.open(tmp_path / "empty")) == 0


def test_what_cannot_be_written_down_leaves_no_folder(tmp_path):
    with pytest.raises(TraceError, match="JSON"):
        Recording(tmp_path / "run", details={"x": float("nan")})
    assert not (tmp_path / "run").exists()


def test_events_of_it_are_not_touched_by_cutting_the_file(tmp_path):
    # What a log does when it is closed: the zeros ahead go while a follower is looking.
    with Recording(tmp_path / "run") as recording:
        add(recording, 0, 100)
        with recording.events_path.open("ab") as file:
            file.write(bytes(1 << 20))
        trace = recording.trace()
        assert len(trace) == 100
        os.truncate(recording.events_path, 100 * 64)
        assert np.array_equal(trace.read(0, 100)["size"], EVENTS["size"][:100])
        assert trace.refresh() == 0


def test_a_heap_records_into_it(tmp_path):
    with Recording(tmp_path / "run", POOLS) as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels)
        trace = recording.trace()
        address = heap.allocate(1000, label="weights")
        assert trace.refresh() == recording.log.head > 0
        (event,) = trace.read(0, len(trace))[trace.read(0, len(trace))["kind"] == Kind.ALLOCATE]
        assert (event["address"], event["requested"]) == (address, 1000)
        assert trace.labels.name(int(event["label"])) == "weights"
        heap.free(address)
        heap.close()
    trace.refresh()
    assert trace.origin.status is Status.COMPLETE
    assert recording.events_path.stat().st_size == len(trace) * 64


def test_one_that_is_discarded_leaves_a_folder_that_can_be_used(tmp_path):
    recording = Recording(tmp_path / "run", POOLS)
    heap = BFCAllocator(SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels)
    heap.allocate(1000, label="weights")
    heap.close()
    recording.discard()
    assert not (tmp_path / "run").exists()
    with Recording(tmp_path / "run", POOLS) as again:
        assert len(again.trace()) == 0


def test_one_that_is_discarded_takes_nothing_else_with_it(tmp_path):
    recording = Recording(tmp_path / "run", POOLS)
    assert recording.log.head == 0
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "more").mkdir()
    recording.discard()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"notes.txt", "more"}


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
