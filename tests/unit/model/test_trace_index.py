"""The index of a trace says what a scan of all its events says."""

import gc
import weakref

import numpy as np
import pytest
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.timelines import measure_history
from bfcviz.model import Model, timeline
from bfcviz.model.navigation import busy_window, events_of, failures, peak, worst_fragmentation
from bfcviz.model.occupancy import byte_steps
from bfcviz.model.trace_index import index_of, known_index


def answers(trace, pool):
    """What is found by a scan of the events, or in the index where it was made."""
    return {
        "window": busy_window(trace, pool),
        "failures": failures(trace, None),
        "label": byte_steps(trace, pool, "label").tolist(),
        "events": [
            events_of(trace, kinds, of, min(trace.first + 1, len(trace))).tolist()
            for kinds in ([Kind.OOM], [Kind.MARK], [Kind.OOM, Kind.MARK], [Kind.FREE])
            for of in (None, 0, 1)
        ],
    }


def check(trace, pool):
    """Compare the two, and the extremes of every series with those of the exact timeline."""
    assert known_index(trace) is None
    expected = answers(trace, pool)
    index = index_of(trace, pool)
    assert index is not None
    assert answers(trace, pool) == expected
    whole, rows = timeline(trace, pool, points=1), index.rolling.series
    for field in (name for name in whole.dtype.names if name.endswith("_max")):
        if len(rows):
            assert rows[field].max() == whole[field][0]
            assert rows[field.replace("_max", "_min")].min() == whole[field.replace("_max", "_min")][0]
    for found_step, field in (
        (peak(trace, pool), "bytes_in_use_max"),
        (worst_fragmentation(trace, pool), "external_fragmentation_max"),
    ):
        highest = whole[field][0] if len(whole) else 0
        assert found_step == (int(whole[f"{field}_step"][0]) if highest else trace.first)
    allocations = [events_of(trace, [Kind.ALLOCATE], pool)[name] for name in ("thread", "stream")]
    varied = {
        name for name, values in zip(("thread", "stream"), allocations, strict=True) if len(set(values)) > 1
    }
    assert index.varied == varied


@given(operations(), st.sampled_from([0, 1]))
def test_it_says_what_a_scan_says(steps, pool):
    check(run(steps).trace(), pool)


@pytest.mark.parametrize("name", ["conv"])
def test_it_says_what_a_scan_of_a_real_run_says(name):
    check(bfcviz.open(bfcviz.sample(name)), 0)


@given(operations(), st.integers(0, 10_000))
def test_a_model_that_seeks_from_its_states_is_the_same(steps, place):
    trace = run(steps).trace()
    index = index_of(trace, 0)
    step = place % (len(trace) + 1)
    models = Model(trace, 0), Model(trace, 0, index.snapshots())
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
