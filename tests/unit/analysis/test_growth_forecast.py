"""When a heap that grows with every step reaches its limit: compared with the step at which it does."""

from contextlib import suppress

import pytest
from heaps import KIB, MIB, new_heap

from bfcviz.analysis.growth_forecast import limit_forecast
from bfcviz.analysis.leaks import growth_until
from bfcviz.errors import OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of


def step(heap, number):
    """Keep 64 KiB, and need 4 MiB for a moment."""
    heap.mark("step", number)
    heap.free(heap.allocate(4 * MIB, label="forward"))
    heap.allocate(64 * KIB, label="kept")


def forecast_of(trace):
    model = Model(trace)
    found = growth_until(model, len(trace))
    assert found.names[0] == "kept"
    forecast = limit_forecast(model, found, len(trace))
    assert model.step == 0
    return forecast


@pytest.mark.parametrize("seen", [30, 100, 400])
def test_it_is_the_step_at_which_a_request_fails(seen):
    heap, number = new_heap(64 * MIB, log=EventLog(1 << 16)), 0
    for number in range(seen):
        step(heap, number)
    forecast = forecast_of(trace_of(heap))
    failed = 0
    while not failed:
        number += 1
        with suppress(OutOfMemory):
            step(heap, number)
            continue
        failed = number
    assert forecast.steps == pytest.approx(failed - seen, rel=0.02, abs=3)
    assert forecast.limit == 64 * MIB
    assert 0 < forecast.seconds < 60
    assert "64.0 MiB" in forecast.clause


def test_a_cache_that_is_full_grows_no_more():
    heap, forecasts = new_heap(64 * MIB, log=EventLog(1 << 16)), []
    for number in range(150):
        heap.mark("step", number)
        heap.free(heap.allocate(4 * MIB, label="forward"))
        if number < 100:
            heap.allocate(64 * KIB, label="kept")
        if number in (99, 115, 149):
            forecasts.append(forecast_of(trace_of(heap)) is not None)
    assert forecasts == [True, False, False]


def test_what_takes_the_place_of_what_shrinks_reaches_no_limit():
    heap = new_heap(64 * MIB, log=EventLog(1 << 16))
    inputs = [heap.allocate(64 * KIB, label="inputs") for _ in range(200)]
    for number in range(100):
        step(heap, number)
        heap.free(inputs.pop())
    assert forecast_of(trace_of(heap)) is None


def test_a_limit_that_was_passed_is_none_of_this_heap():
    heap = new_heap(64 * MIB, log=EventLog(1 << 16))
    for number in range(100):
        step(heap, number)
    trace = trace_of(heap)
    events = trace.read(0, len(trace))
    for limit, is_known in ((5 * MIB, False), (0, False), (11 * MIB, True)):
        other = Trace.from_events(events, trace.labels, Origin(pools=(Pool("bfc", limit),)))
        assert (forecast_of(other) is not None) is is_known


def test_a_ring_that_dropped_many_events_is_searched_in_those_that_it_has(monkeypatch):
    heap = new_heap(64 * MIB, log=EventLog(1 << 10))
    trace = trace_of(heap, keep=1 << 10)
    for number in range(600):
        step(heap, number)
        trace.refresh()
    monkeypatch.setattr("bfcviz.analysis.leaks._MOST_SEARCHED_FOR_GROWTH", 2000)
    assert trace.first > 2000
    found = growth_until(Model(trace), len(trace))
    assert found.names == ["kept"]
    monkeypatch.setattr("bfcviz.analysis.leaks._MOST_SEARCHED_FOR_GROWTH", 500)
    assert growth_until(Model(trace), len(trace)) is None
