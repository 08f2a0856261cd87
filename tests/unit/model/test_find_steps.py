import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog
from bfcviz.events.marks import BEGINS, ENDS, Phase, PhaseEnd, phase_ends
from bfcviz.events.origin import HISTORY_BEGINS, Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.find_steps import (
    busy_window,
    failures,
    history_begins,
    next_step,
    peak,
    phases,
    previous_step,
    worst_fragmentation,
)
from bfcviz.model.timelines import timeline
from bfcviz.model.trace_index import index_of

_LABELLED = {Kind.ALLOCATE, Kind.FREE, Kind.OOM, Kind.MARK}


def about(record, chunk):
    """Whether an event is about the chunk with this handle, by the event record's own table."""
    kind = record["kind"]
    handles = [] if kind in (Kind.OOM, Kind.MARK) else [record["chunk"]]
    return chunk in handles + ([record["other"]] if kind in (Kind.SPLIT, Kind.MERGE) else [])


@given(
    seeded_operations(),
    st.sets(st.sampled_from(Kind), min_size=1),
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1]),
    st.fixed_dictionaries(
        {"chunk": st.sampled_from([None, 0, 1, 2, 5]), "label": st.sampled_from([None, None, 0, 1, 3])}
    ),
)
def test_finders_find_the_nearest_event_of_a_chunk_or_label(steps, kinds, place, pool, asked):
    heap = run(steps)
    trace = heap.trace()
    chunk, label = asked["chunk"], asked["label"]
    step = place % (len(trace) + 1)
    hits = [
        record["seq"] + 1
        for record in heap.records
        if record["kind"] in kinds
        and pool in (None, record["pool"])
        and (chunk is None or about(record, chunk))
        and (label is None or (record["kind"] in _LABELLED and record.get("label", 0) == label))
    ]
    assert next_step(trace, step, kinds, pool, **asked) == min((h for h in hits if h > step), default=None)
    assert previous_step(trace, step, kinds, pool, **asked) == max(
        (h for h in hits if h < step), default=None
    )


def test_an_allocation_id_is_not_mistaken_for_a_chunk():
    heap = PlainHeap(MiB)
    heap.allocate(256)
    trace = heap.trace()
    allocated = trace.read(2, 3)[0]
    assert next_step(trace, 0, Kind, chunk=int(allocated["chunk"])) == 1
    assert next_step(trace, 2, Kind, chunk=int(allocated["other"])) is None


def test_no_more_is_read_than_it_takes(monkeypatch):
    trace = busy_trace()
    read = []
    plain = trace.read
    monkeypatch.setattr("bfcviz.events.event_source.Source.block", 64)
    monkeypatch.setattr("bfcviz.model.find_steps.BLOCK", 64)
    monkeypatch.setattr(trace, "read", lambda start, stop: read.append((start, stop)) or plain(start, stop))
    assert next_step(trace, 10, [Kind.ALLOCATE]) < 64
    assert read == [(10, 64)]
    read.clear()
    assert previous_step(trace, 200, [Kind.ALLOCATE]) > 192
    assert read == [(192, 199)]


def test_a_step_that_is_not_there_is_refused():
    trace = busy_trace()
    for find in (next_step, previous_step):
        with pytest.raises(TraceError, match=f"step {len(trace) + 1} "):
            find(trace, len(trace) + 1, Kind)


def test_only_a_request_that_is_not_served_after_all_has_failed():
    heap = BFCAllocator(SimulatedSubAllocator(), 1 << 20, log=EventLog(1 << 10))
    held = heap.allocate(700_000)
    for size in (500_000, 600_000):
        heap.try_allocate(size)
    late = heap.log.head
    heap.try_allocate(400_000)  # no room, and then it is made
    heap.free(held)
    heap.allocate(400_000)
    events = heap.log.copy(0, heap.log.head)
    trace = Trace.from_events(events, heap.labels, Origin(pools=(Pool("gpu"),)))
    ooms = (np.flatnonzero(events["kind"] == Kind.OOM) + 1).tolist()
    assert len(ooms) == 3
    assert ooms[-1] > late
    assert failures(trace) == ooms[:2]
    assert failures(trace, most=1) == ooms[:1]


@pytest.mark.parametrize("indexed", [True, False])
def test_peak_and_worst_are_sought_where_the_history_has_begun(indexed):
    heap = PlainHeap(8 * MiB)
    first, second, _ = (heap.allocate(size * MiB) for size in (3, 2, 1))
    heap.free(first)
    heap.free(second)
    first = heap.allocate(4 * MiB)
    heap.mark(HISTORY_BEGINS)
    begins = len(heap.events)
    heap.free(first)
    kept = heap.allocate(MiB)
    heap.free(kept)
    trace = heap.trace()
    if indexed:
        assert index_of(trace, 0) is not None
    assert history_begins(trace) == begins - 1
    series = timeline(trace, 0, begins - 1, points=len(trace))
    for find, name in ((peak, "bytes_in_use"), (worst_fragmentation, "external_fragmentation")):
        highest = series[f"{name}_max"]
        assert find(trace) == int(series["step"][highest.argmax()]) >= begins
        before = timeline(trace, 0, 0, begins - 1, points=len(trace))[f"{name}_max"]
        assert before.max() >= highest.max()


# ------------------------------------------------------------------------------
# The busy window: where a trace begins to use memory.


def trace_with_set_up(small, large):
    """So many small allocations and frees, then large ones; the large ones begin after 2 * `small` + 3 events."""
    heap = PlainHeap(64 * MiB)
    held = heap.allocate(4096)
    for _ in range(small):
        heap.free(heap.allocate(256))
    begin = len(heap.events)
    for _ in range(large):
        heap.free(heap.allocate(32 * MiB))
    assert held
    return heap.trace(), begin


def test_a_long_set_up_is_left_out():
    trace, begin = trace_with_set_up(500, 100)
    first, last = busy_window(trace)
    assert last == len(trace)
    assert begin - 0.05 * (last - begin) < first <= begin


@pytest.mark.parametrize(("small", "large"), [(10, 100), (0, 50), (200, 0)])
def test_without_a_long_set_up_there_is_no_window(small, large):
    assert busy_window(trace_with_set_up(small, large)[0]) is None


def test_events_of_one_moment_are_set_up():
    trace = busy_trace()
    events = trace.read(0, len(trace)).copy()
    events["time"][:400] = 0
    built = bfcviz.Trace.from_events(events, trace.labels, trace.origin)
    first, _ = busy_window(built)
    assert 380 < first <= 400
    events["time"] = 0  # a file without times
    assert busy_window(bfcviz.Trace.from_events(events, trace.labels, trace.origin)) is None


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_the_bundled_runs_begin_with_set_up(name):
    trace = sample_trace(name)
    first, last = busy_window(trace)
    model = Model(trace)
    model.seek(first)
    assert model.stats().peak_bytes_in_use < 0.5 * max(peak_of(trace), 1)
    assert first <= bfcviz.peak(trace) <= last


def peak_of(trace):
    model = Model(trace)
    model.seek(len(trace))
    return model.stats().peak_bytes_in_use


def test_a_file_of_states_has_no_history_to_leave_out():
    assert busy_window(sample_trace("oom_log")) is None


# ------------------------------------------------------------------------------
# Phases: pairs of marks of a heap.


def test_pairs_are_found_by_name_and_value_and_ends_may_be_missing():
    heap = PlainHeap(MiB)
    heap.mark("early ends", 1, ends="early")
    heap.mark("epoch begins", 2, begins="epoch")
    heap.mark("forward begins", 3, begins="forward")
    heap.allocate(KiB)  # EXTEND, SPLIT, ALLOCATE
    heap.mark("forward begins", 4, begins="forward")
    heap.mark("forward ends", 3, ends="forward")
    heap.mark("forward ends", 4, ends="forward")
    assert phases(heap.trace()) == [
        Phase("early", None, 0, 0),
        Phase("forward", 2, 7, 0),
        Phase("forward", 6, 8, 0),
        Phase("epoch", 1, None, 0),
    ]
    assert phases(heap.trace(pools=2), pool=1) == []


def test_a_plain_mark_is_no_phase():
    heap = PlainHeap(MiB)
    heap.mark("step", 1)
    heap.mark("a begins", 2, begins="a")
    heap.mark("a ends", 2, ends="a")
    trace = heap.trace()
    assert phase_ends(trace.read(0, 3), trace.labels) == [None, PhaseEnd(BEGINS, "a"), PhaseEnd(ENDS, "a")]
