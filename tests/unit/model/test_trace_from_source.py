import gc
import weakref

import numpy as np
import pytest
from heaps import BASE, MIB, new_heap

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool, Status
from bfcviz.events.storage.recording import Recording
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model import Model
from bfcviz.model.trace_from_source import beginning, source_name, trace_of


def same(one, other):
    return np.array_equal(one.read(one.first, len(one)), other.read(other.first, len(other)))


def test_a_heap_with_a_ring():
    heap = new_heap(allow_growth=True)
    heap.allocate(1000, label="a")
    trace = trace_of(heap)
    assert (len(trace), trace.following, source_name(heap, trace)) == (3, True, "bfc")
    pool = trace.origin.pools[0]
    assert (pool.limit, pool.options["allow_growth"]) == (MIB, True)
    heap.allocate(2000)
    assert trace.refresh() == 2
    assert trace.labels.name(int(trace.read(2, 3)["label"][0])) == "a"


def test_a_heap_whose_ring_has_lost_its_beginning():
    heap = new_heap(log=EventLog(64))
    held = [heap.allocate(300 + number, label=f"op{number}") for number in range(100)]
    heap.free(held[0])
    assert heap.try_allocate(1 << 40) is None
    trace = trace_of(heap)
    model = Model(trace)
    assert model.stats().ooms == 0  # they count from where it begins
    model.seek(len(trace))
    assert model.stats().ooms == 1
    assert trace.first > 0
    assert len(trace) == heap.log.head
    chunks, theirs = model.chunks(), heap.memory_map()
    assert np.array_equal(chunks["address"], theirs["address"])
    used = theirs["in_use"]
    assert np.array_equal(chunks["born"][used], theirs["born"][used])


def test_the_heap_is_not_kept_alive():
    heap = new_heap(log=EventLog(64))
    trace = trace_of(heap)
    log, gone = heap.log, weakref.ref(heap)
    for number in range(200):
        heap.mark("mark", number)
    del heap
    gc.collect()
    assert gone() is None
    assert trace.refresh() == 0
    assert (trace.following, trace.origin.status) == (False, Status.DEGRADED)
    assert log.head == 200


def test_a_recording_in_all_its_forms(tmp_path):
    with Recording(tmp_path / "run", [Pool("gpu", MIB)]) as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), MIB, log=recording.log, labels=recording.labels)
        heap.allocate(1000, label="a")
        forms = [heap, recording, recording.log, tmp_path / "run", str(tmp_path / "run"), recording.trace()]
        traces = [trace_of(each) for each in forms]
        heap.allocate(2000)
        for trace in traces:
            assert (trace.refresh(), len(trace), trace.first) == (2, 5, 0)
            assert same(trace, traces[0])
        assert [source_name(each, trace) for each, trace in zip(forms, traces, strict=True)] == ["bfc"] + [
            "run"
        ] * 5
        heap.close()
    for trace in traces:
        trace.refresh()
        assert (trace.following, trace.origin.status) == (False, Status.COMPLETE)


def test_a_recording_that_has_no_event_yet_is_one_all_the_same(tmp_path):
    with Recording(tmp_path / "run", [Pool("gpu", MIB)]) as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), MIB, log=recording.log, labels=recording.labels)
        assert [trace_of(each).path for each in (heap, recording.log)] == [tmp_path / "run"] * 2


def test_a_log_alone_has_no_names():
    heap = new_heap()
    heap.allocate(1000, label="a")
    trace = trace_of(heap.log)
    model = Model(trace)
    model.seek(len(trace))
    assert trace.read(0, 3)["label"].tolist() == [0, 0, 0]
    assert model.stats().chunks_in_use == 1


@pytest.mark.parametrize("what", [7, None, object()])
def test_anything_else_is_refused(what):
    with pytest.raises(BfcvizError, match=type(what).__name__):
        trace_of(what)


# ------------------------------------------------------------------------------
# The start of a window, where the log has lost events.


def test_where_nothing_is_left_of_the_events_before_it_it_is_the_beginning():
    heap = new_heap(log=EventLog(64))
    heap.allocate(1000)
    moment = heap.moment()
    for number in range(200):
        heap.mark("mark", number)
    first, _, events = beginning(moment, heap.log)
    assert (first, len(events)) == (moment.step, 0)


def test_a_reader_that_comes_late_begins_where_the_heap_is():
    heap = ObservedHeap(EventLog(64))
    heap.grant(BASE, MIB)
    for number in range(200):
        heap.allocate(BASE + number * 512, 256, label=f"op{number % 5}")
    found = beginning(heap.moment(), heap.log)
    assert found.first > 0
    assert found.first + len(found.events) == heap.log.head
