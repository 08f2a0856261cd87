"""The busy window: where a trace begins to use memory."""

import pytest
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.model import Model
from bfcviz.model.navigation import busy_window


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
