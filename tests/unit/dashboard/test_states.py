"""A dashboard of a file that holds states and no history."""

from dataclasses import replace

from unit.analysis.built import state

from bfcviz.analysis.diagnosis import failure_headline, failure_lines
from bfcviz.analysis.event_text import explain_event, search_of
from bfcviz.analysis.why import diagnose
from bfcviz.dashboard import Inspector
from bfcviz.dashboard.header import header_numbers, totals_line
from bfcviz.events.origin import Pool
from bfcviz.events.trace import Trace
from bfcviz.figures.view_options import Selected
from bfcviz.importers.join_heaps import one_after_another
from bfcviz.model import Model
from bfcviz.model.navigation import end_of_state, first_failure, opening, peak, worst_fragmentation


def two_states():
    """The state of a full heap, then that of a fragmented one, each with its failed request."""
    first, second = state([[10]], asked=1, limit=10), state([[4, -4, 4, -4]], asked=6, limit=16)
    events = one_after_another([first.read(0, len(first)).copy(), second.read(0, len(second)).copy()])
    details = first.origin.details | {"failures": []}
    origin = first.origin.__class__(
        "tensorflow-log",
        "two.log",
        pools=(Pool("a", 10 << 20), Pool("b", 16 << 20)),
        details=details,
    )
    return Trace.from_events(events, first.labels, origin), len(first)


def test_an_inspector_opens_at_the_state_and_not_at_an_empty_heap():
    trace = state([[4, -4, 4, -4]])
    inspector = Inspector(trace)
    assert inspector.step == len(trace)
    assert "no history" in inspector.header.notice.value


def test_another_pool_is_shown_at_its_own_state():
    trace, end = two_states()
    inspector = Inspector(trace, pool=0)
    assert inspector.step == end == end_of_state(trace, 0)
    inspector.pool = 1
    assert inspector.step == len(trace) == end_of_state(trace, 1)
    assert inspector.panel_data.model.stats().bytes_in_use == 8 << 20


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


def test_the_timelines_do_not_claim_a_history():
    inspector = Inspector(state([[4, -4]]), views="everything")
    panels = inspector.panel_data.panels(
        ["stats_timeline", "event_rate", "address_time", "region_map"], inspector.look
    )
    told = {name for name, panel in panels.items() if "no history" in panel.caption}
    assert told == {"stats_timeline", "event_rate", "address_time"}


def test_the_life_of_a_chunk_tells_no_age():
    trace = state([[4, -4]])
    inspector = Inspector(trace)
    chunk = inspector.panel_data.model.chunks()[0]
    inspector.go(look=replace(inspector.look, selected=Selected(int(chunk["address"]), int(chunk["born"]))))
    shown = inspector.chunk.text.value
    assert "4.0 MiB" in shown
    assert "ago" not in shown
    assert "allocated" not in shown


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
