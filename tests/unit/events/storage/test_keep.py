"""A drain that keeps only the newest events: the rest opens as it is in a recording of all of them."""

from itertools import count

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap
from unit.model.index_answers import check

import bfcviz
from bfcviz.cli.info import info
from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Pool, Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage import blocks as blocks_module
from bfcviz.events.storage import drain as drain_module
from bfcviz.events.storage.blocks import MAGIC, BlockFile
from bfcviz.events.storage.drain import Drain, FolderDrain, check_can_free_space
from bfcviz.events.storage.folder import BLOCKS_FILE
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.model import Model, trace_index
from bfcviz.model.trace_index import IndexBuilder

SIZE = 1024
KEEP = 32 * KIB


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    try:
        check_can_free_space(tmp_path, "keep")
    except FileError:
        pytest.skip("no holes in files here")
    monkeypatch.setattr(drain_module, "MOST_EVENTS", SIZE)
    monkeypatch.setattr(
        trace_index, "FINE_ROWS", trace_index.ROWS
    )  # blocks so small would have more index than events


class Job:
    """A recorded job of one or two heaps that is drained as it works."""

    def __init__(self, folder):
        self.recording = Recording(folder / "run", [Pool("gpu")], details={"keep_bytes": KEEP})
        self.random = np.random.default_rng(5)
        self.held = []
        self.heaps = []
        self.add_heap()
        self.drain = Drain(self.recording.folder, IndexBuilder, KEEP)

    def add_heap(self):
        self.heaps.append(new_heap(64 * MIB, log=self.recording.log, labels=self.recording.labels))
        self.held.append([])

    def work(self, blocks):
        """Write so many blocks of events; the drain packs each."""
        log = self.recording.log
        stop = log.head + blocks * SIZE
        for number in count():
            if log.head >= stop:
                break
            heap, held = self.heaps[number % len(self.heaps)], self.held[number % len(self.heaps)]
            if len(held) > 40:
                heap.free(held.pop(self.random.integers(len(held))))
            else:
                held.append(heap.allocate(int(self.random.integers(1, 90 * KIB)), label=f"op{number % 7}"))
            if number % SIZE == 0:
                self.drain.step()
        self.drain.step()

    @property
    def folder(self):
        return self.recording.folder

    @property
    def used(self):
        """Bytes of disk that the blocks take."""
        return (self.folder / BLOCKS_FILE).stat().st_blocks * 512

    def assert_reads_right(self, trace=None):
        trace = bfcviz.open(self.folder) if trace is None else trace
        assert len(trace) == self.recording.log.head
        events = trace.read(trace.first, len(trace))
        assert np.array_equal(events["seq"], np.arange(trace.first, len(trace)))
        for pool, heap in enumerate(self.heaps):
            model = Model(trace, pool)
            model.seek(len(trace))
            shown = model.chunks()[["address", "size", "in_use"]].tolist()
            assert shown == heap.moment().chunks[["address", "size", "in_use"]].tolist()
            stats, found = heap.stats(), model.stats()
            assert (found.num_allocs, found.bytes_in_use) == (stats.num_allocs, stats.bytes_in_use)
            assert found.peak_bytes_in_use == stats.peak_bytes_in_use
            model.seek(trace.first)
            model.seek(len(trace))
            assert model.stats() == found
        return trace

    def end(self):
        self.recording.close()
        assert self.drain.step() is True
        self.drain.close()


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.recording.close()
    job.drain.close()


def test_a_long_job_takes_no_more_and_says_what_was_dropped(job):
    for _ in range(6):
        job.work(5)
        assert job.used <= KEEP + 8 * KIB
        job.assert_reads_right()
    job.end()
    trace = job.assert_reads_right()
    assert SIZE <= trace.first < len(trace) - SIZE
    origin = trace.origin
    assert origin.status is Status.TRUNCATED
    (reason,) = origin.reasons
    assert f"{trace.first:,} events" in reason
    assert "32.0 KiB" in reason
    assert origin.has_ended_whole  # as it was asked
    with pytest.raises(TraceError):
        trace.read(trace.first - 1, len(trace))


def test_a_view_follows_while_the_last_events_are_packed(job):
    job.work(12)
    trace = bfcviz.open(job.folder)
    job.recording.close()
    trace.refresh()
    before = trace.first
    assert job.drain.step() is True
    trace.refresh()
    job.assert_reads_right(trace)
    assert trace.following
    job.drain.close()
    trace.refresh()
    assert trace.first >= before
    assert not trace.following
    job.assert_reads_right(trace)


def test_a_state_too_large_for_a_block_drops_nothing_before_it(job, monkeypatch):
    monkeypatch.setattr(blocks_module, "_MOST_KEYFRAME", 100)
    job.work(12)
    job.end()
    trace = bfcviz.open(job.folder)
    assert trace.first == 0
    job.assert_reads_right(trace)


def test_the_rest_has_an_index_that_says_what_a_scan_says(job, monkeypatch):
    monkeypatch.setattr(trace_index, "LEAST_EVENTS", 0)
    job.work(8)
    job.add_heap()
    job.work(30)
    job.end()
    read, of_file = [], BlockFile.read
    monkeypatch.setattr(BlockFile, "read", lambda *asked: read.append(asked[2] - asked[1]) or of_file(*asked))
    for pool in range(2):
        trace = bfcviz.open(job.folder)
        assert trace.first > 0
        check(trace, pool)
        read.clear()
        assert trace_index.index_of(bfcviz.open(job.folder), pool) is not None
        assert max(read) == 1  # the first event, for its time


def test_a_recording_that_fits_is_whole(job):
    job.work(2)
    job.end()
    trace = job.assert_reads_right()
    assert trace.first == 0
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())


def test_a_job_that_was_killed_opens_at_its_end(job):
    job.work(20)
    job.recording.labels.append_to(None)
    job.recording._lock.close()  # as the kernel does
    assert bfcviz.open(job.folder).following  # a drain is there
    job.drain.close()
    trace = job.assert_reads_right()
    assert trace.first > 0
    assert trace.origin.status is Status.TRUNCATED
    assert not trace.origin.has_ended_whole


def test_a_view_follows_and_what_it_has_not_read_is_refused_when_it_is_gone(job):
    job.work(4)
    followed = Trace.open(job.folder)
    first = followed.first
    job.work(20)
    with pytest.raises(FileError, match="no longer kept"):
        followed.read(first + SIZE, first + 2 * SIZE)
    followed.refresh()
    assert followed.first > first
    assert followed.origin.status is Status.RECORDING
    job.assert_reads_right(followed)


def test_a_heap_that_was_made_later_has_keyframes_too(job):
    job.work(3)
    job.add_heap()
    job.work(2)
    early = bfcviz.open(job.folder)
    assert early.keyframe_before(3 * SIZE) is not None
    job.assert_reads_right(early)
    job.work(20)
    assert job.used <= KEEP + 8 * KIB
    job.end()
    assert job.assert_reads_right().first > 5 * SIZE


def test_the_beginning_is_dropped_after_a_full_disk_too(job, monkeypatch):
    job.work(3)

    class FullDisk:
        def __getattr__(self, name):
            return getattr(out, name)

        def write(self, data):
            out.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

    out = job.drain._out
    with monkeypatch.context() as patch:
        patch.setattr(job.drain, "_out", FullDisk())
        with pytest.raises(FileError):
            job.work(2)
        job.assert_reads_right()
    job.work(20)
    assert job.used <= KEEP + 8 * KIB
    job.end()
    assert job.assert_reads_right().first > 5 * SIZE


def test_a_drain_that_goes_on_after_another_loses_nothing(job):
    job.work(12)
    job.drain.close()
    job.drain = Drain(job.folder, IndexBuilder, KEEP)
    job.work(6)
    trace = job.assert_reads_right()
    assert trace.keyframe_before(trace.first)[0] == trace.first


def test_where_events_contradict_each_other_nothing_more_is_dropped_and_that_is_said_once(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(drain_module, "SAMPLE_EVERY_S", 0.001)
    with Recording(tmp_path / "run", [Pool("gpu")], details={"keep_bytes": KEEP}) as recording:
        heap = new_heap(64 * MIB, log=recording.log, labels=recording.labels)
        drain = FolderDrain(recording.folder, IndexBuilder, KEEP)
        for _ in range(SIZE):
            heap.free(heap.allocate(100))
        contradiction = recording.log.head
        recording.log.put(Kind.FREE, 7, 0, 0x1234, 512, 0, 0, 0, 0, 0, -1, 0)
        for _ in range(40 * SIZE):
            heap.free(heap.allocate(100))
        heap.close()
    drain.end()
    said = [line for line in capfd.readouterr().err.splitlines() if str(recording.folder) in line]
    assert len(said) == 1
    assert "--on-oom" in said[0]
    trace = Trace.open(recording.folder)
    (reason,) = [each for each in info(trace)["reasons"] if "none are dropped" in each]
    first = contradiction // SIZE * SIZE
    assert f"{first:,}" in reason
    assert f"{first:,}" in said[0]
    assert trace.first <= first
    assert (recording.folder / BLOCKS_FILE).stat().st_blocks * 512 > KEEP


def test_a_copy_without_holes_begins_at_the_same_event(job, tmp_path):
    job.work(20)
    path, copy = job.folder / BLOCKS_FILE, tmp_path / "copy.bfc"
    copy.write_bytes(path.read_bytes())
    assert copy.read_bytes()[: len(MAGIC)] == bytes(len(MAGIC))
    assert copy.stat().st_blocks > path.stat().st_blocks
    assert BlockFile(copy).first == BlockFile(path).first > 0
