"""A dashboard of a file that holds states and no history."""

from unit.analysis.built import state, two_states

from bfcviz.analysis.diagnosis import failure_headline, failure_lines
from bfcviz.analysis.event_text import explain_event
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.free_chunk_search import search_of
from bfcviz.dashboard.header import header_numbers, totals_line
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.find_steps import first_failure, opening, peak, worst_fragmentation


def test_the_peak_and_the_worst_fragmentation_are_those_of_the_state():
    # While the state is built, the heap is more fragmented than at its end.
    trace = state([[1, -8, 1, -8, 1, 8, 8, 8]])
    assert peak(trace) == worst_fragmentation(trace) == len(trace)


def test_no_search_and_no_history_is_told_of_the_events_that_build_a_state():
    trace = state([[4, -4, 4, -4]], asked=6, limit=16)
    for event in range(len(trace) - 1):
        assert search_of(trace, event) is None
        assert "only build the state" in explain_event(trace, event)
    assert search_of(trace, len(trace) - 1) is not None  # the failed request did search
    assert "fragmented" in explain_event(trace, len(trace) - 1)


def test_numbers_that_the_file_does_not_know_are_unknown():
    facts = {"requested_bytes_in_use": None, "peak_bytes_in_use": 12 << 20, "bytes_limit": None}
    text = totals_line(header_numbers(Model(state([[4, -4]], facts=facts))))
    assert "internal unknown" in text
    facts = {"free_bytes": None, "largest_free_chunk": None, "chunks_free": None}
    text = totals_line(header_numbers(Model(state([[4, -4]], facts=facts))))
    assert "free unknown, largest unknown" in text
    assert "external fragmentation unknown" in text


def test_the_peak_that_the_file_states_is_shown():
    trace = state([[4, -4]], facts={"peak_bytes_in_use": 12 << 20})
    model = Model(trace)
    model.seek(len(trace))
    assert "(peak 12.0 MiB)" in totals_line(header_numbers(model))


def test_a_view_opens_at_the_pool_that_failed():
    trace, end = two_states()
    assert opening(trace) == (0, end)
    without = trace.read(0, len(trace))
    without = without[[*range(end - 1), *range(end, len(trace))]].copy()
    without["seq"] = range(len(without))
    trace = Trace.from_events(without, trace.labels, trace.origin)
    assert opening(trace) == (1, len(trace))


def test_a_failure_with_its_heap_comes_before_one_without():
    trace, _ = two_states()
    events = trace.read(0, len(trace))
    bare = trace.origin.__class__(
        trace.origin.format,
        trace.origin.source,
        pools=trace.origin.pools,
        details=trace.origin.details | {"failures": [{"event": opening(trace)[1] - 1, "has_heap": False}]},
    )
    marked = Trace.from_events(events, trace.labels, bare)
    assert opening(marked) == first_failure(marked) == (1, len(trace))
    assert first_failure(marked, 7) is None


def test_pytorch_searches_by_other_rules():
    trace = state([[4, -4]], asked=6, framework="torch")
    assert search_of(trace, len(trace) - 1) is None


def test_a_request_of_unknown_size_is_not_a_request_of_0_bytes():
    trace = state([], asked=0, has_heap=False)
    found = diagnose(trace, 0)
    assert "does not say how many bytes" in failure_headline(found)
    assert "does not say how many bytes" in failure_lines(found)[0]
    assert "0 B" not in explain_event(trace, 0)
