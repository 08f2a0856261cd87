"""The names of threads: in a live trace, in a recording at work, ended, saved or copied, and in the tables."""

import _thread
import ctypes
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from forks import child_ends_well
from processes import needs_compiled

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.dashboard.chunk_pane import ChunkList
from bfcviz.dashboard.event_list import EventList
from bfcviz.events.origin import Pool, thread_name
from bfcviz.events.schema import Kind
from bfcviz.events.storage.folder import THREADS_FILE, files_of
from bfcviz.events.storage.recording import Recording, RecordingCopy, read_increment
from bfcviz.events.trace import Trace
from bfcviz.live.heap_provider import HeapProvider, ThreadStartHook
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model.model import Model
from bfcviz.model.trace_from_source import trace_of

MIB = 1 << 20


class Source(HeapProvider):
    """Watches nothing: its heap is called by the test."""

    way, title, description, out_of_memory = "observe", "stand-in", "", None

    def __init__(self, recording=None):
        more = {} if recording is None else {"log": recording.log, "labels": recording.labels}
        self.heap = BFCAllocator(SimulatedSubAllocator(), 64 * MIB, **more)

    @property
    def heaps(self):
        return [self.heap]

    def _start(self):
        pass

    def _stop(self, error):
        pass


def allocate_in(heap, name):
    thread = threading.Thread(target=heap.allocate, args=(MIB,), name=name)
    thread.start()
    thread.join()


def names_of_events(trace):
    """The name of the thread of each ALLOCATE."""
    events = trace.read(0, len(trace))
    threads = events["thread"][np.flatnonzero(events["kind"] == Kind.ALLOCATE)]
    return [thread_name(trace.origin.details, number) for number in threads.tolist()]


@pytest.fixture
def recorded(tmp_path):
    """A recording at work with an allocation of this thread and two of others; and the trace that follows it."""
    with Recording(tmp_path / "run", [Pool("bfc")]) as recording, Source(recording) as source:
        followed = recording.trace()
        source.heap.allocate(MIB)
        allocate_in(source.heap, "loader-0")
        allocate_in(source.heap, "loader \udc80\N{SNOWMAN}")
        yield recording, followed
        source.heap.close()


EXPECTED = ["MainThread", "loader-0", "loader \\udc80\N{SNOWMAN}"]


def test_a_live_heap_a_recording_at_work_and_an_ended_one_have_the_same_names(recorded, tmp_path):
    recording, followed = recorded
    followed.refresh()
    assert names_of_events(followed) == EXPECTED
    recording.close()
    for path in (
        recording.folder,
        Trace.open(recording.folder).save(tmp_path / "x.bfc"),
        Trace.open(recording.folder).save(tmp_path / "x.parquet"),
    ):
        assert names_of_events(Trace.open(path)) == EXPECTED
    assert recording.folder / THREADS_FILE in files_of(recording.folder)  # so that --force removes it


def test_a_live_heap_has_the_names_of_threads_that_start_later():
    with Source() as source:
        source.heap.allocate(MIB)
        trace = trace_of(source.heap)
        allocate_in(source.heap, "later")
        trace.refresh()
        assert names_of_events(trace) == ["MainThread", "later"]


def test_a_copy_has_the_names_of_its_original(recorded, tmp_path):
    recording, _ = recorded
    copy = RecordingCopy(tmp_path / "copy")
    copy.add(read_increment(recording.folder, copy.position))
    assert names_of_events(Trace.open(copy.folder)) == EXPECTED
    copy.close()


@needs_compiled
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the name")
def test_a_thread_that_python_did_not_start_has_the_name_of_the_system(tmp_path):
    def work_in_child():
        with Recording(tmp_path / "run", [Pool("bfc")]) as recording, Source(recording) as source:
            for name in (b"pt_autograd_0", None):
                done = threading.Event()

                def work(name=name, done=done):
                    if name is not None:
                        ctypes.CDLL(None).prctl(15, name)  # PR_SET_NAME
                    source.heap.allocate(MIB)
                    done.set()

                _thread.start_new_thread(work, ())
                assert done.wait(10)
            source.heap.close()
        assert names_of_events(Trace.open(tmp_path / "run")) == ["pt_autograd_0", ""]

    assert child_ends_well(work_in_child)  # the system's names are kept for the whole process


@pytest.mark.skipif(
    not Path("/proc/self/comm").exists(), reason="the system does not tell the names of processes"
)
def test_a_thread_without_a_name_has_none_also_after_the_process_was_renamed(tmp_path):
    def work_in_child():
        comm = Path("/proc/self/comm")
        before = comm.read_text()
        with Recording(tmp_path / "run", [Pool("bfc")]) as recording, Source(recording) as source:
            comm.write_text("renamed")
            try:
                done = threading.Event()
                _thread.start_new_thread(lambda: (source.heap.allocate(MIB), done.set()), ())
                assert done.wait(10)
            finally:
                comm.write_text(before)
            source.heap.close()
        assert names_of_events(Trace.open(tmp_path / "run")) == [""]

    assert child_ends_well(work_in_child)  # the system's names are kept for the whole process


def test_damaged_names_are_left_out(recorded):
    recording, _ = recorded
    with (recording.folder / THREADS_FILE).open("ab") as file:
        file.write(
            b'\xff\n7\n{"thread": true, "name": "x"}\n{"thread": 60001}\n{"thread": 60002, "name": 1}\n{"thr'
        )
    trace = recording.trace()
    assert names_of_events(trace) == EXPECTED
    assert {"True", "60001", "60002"}.isdisjoint(trace.origin.details["threads"])


def test_tables_show_the_name_of_a_thread(recorded):
    _, trace = recorded
    trace.refresh()
    event = next(each for each in trace.read(0, len(trace))[::-1] if each["kind"] == Kind.ALLOCATE)
    row = dict(zip(event.dtype.names, event.tolist(), strict=True))
    events = EventList(trace)._row(row, here=False, listed=True)
    model = Model(trace)
    model.seek(len(trace))
    chunk = next(each for each in model.chunks() if each["address"] == event["address"])
    listed = ChunkList(trace)
    listed.show(model)
    for cells in (events.cells, listed._row(chunk).cells):
        assert sum(EXPECTED[2] in cell for cell in cells) == 1


def test_a_thread_may_start_under_two_hooks():
    done = []
    first, second = (ThreadStartHook(lambda: True, lambda n=n: done.append(n)) for n in range(2))
    first.begin()
    second.begin()
    thread = threading.Thread(target=done.append, args=("ran",))
    thread.start()
    thread.join()
    second.end()
    first.end()
    assert (sorted(done[:2]), done[2:]) == ([0, 1], ["ran"])


def test_what_is_reported_late_has_no_thread():
    heap = ObservedHeap()
    heap.grant(0x7000, MIB)
    heap.allocate(0x7000, 512, time=heap.log.head + 1)
    heap.allocate(0x8000, 512)
    threads = [row["thread"] for row in trace_of(heap).read(0, heap.log.head) if row["kind"] == Kind.ALLOCATE]
    assert threads[0] == 0 < threads[1]
