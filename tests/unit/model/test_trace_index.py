"""The index of a trace says what a scan of all its events says."""

import gc
import weakref

import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import busy_trace
from unit.model.index_answers import check, fresh

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.timeline_parts import measure_history
from bfcviz.model import Model
from bfcviz.model.bytes_by_label import byte_steps
from bfcviz.model.find_steps import events_of, peak, worst_fragmentation
from bfcviz.model.trace_index import index_of


@given(seeded_operations(), st.sampled_from([0, 1]))
def test_it_says_what_a_scan_says(steps, pool):
    check(run(steps).trace(), pool)


@pytest.mark.parametrize("name", ["conv"])
def test_it_says_what_a_scan_of_a_real_run_says(name):
    check(fresh(sample_trace(name)), 0)


@given(seeded_operations(), st.integers(0, 10_000))
def test_a_model_that_seeks_from_its_states_is_the_same(steps, place):
    trace = run(steps).trace()
    index = index_of(trace, 0)
    step = place % (len(trace) + 1)
    models = Model(trace, 0), Model(trace, 0, index.rolling.snapshots())
    for model in models:
        model.seek(step)
    assert np.array_equal(*(model.chunks() for model in models))
    assert models[0].stats() == models[1].stats()


def test_two_histories_of_one_trace_do_not_share_what_they_measure():
    trace = busy_trace()
    one, other = measure_history(trace), measure_history(trace)
    assert np.array_equal(one.series, other.series)
    assert one.running is not other.running


def test_events_are_read_once(monkeypatch):
    trace = busy_trace()
    read, counts = Trace.read, []
    monkeypatch.setattr(
        Trace, "read", lambda self, start, stop: counts.append(stop - start) or read(self, start, stop)
    )
    index_of(trace)
    peak(trace), worst_fragmentation(trace), events_of(trace, [Kind.MARK]), byte_steps(trace, 0, "label")
    assert sum(counts) == len(trace)


def test_it_does_not_keep_the_trace_alive():
    trace = busy_trace()
    index_of(trace)
    gone = weakref.ref(trace)
    del trace
    gc.collect()
    assert gone() is None
