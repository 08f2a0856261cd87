"""A dashboard of a file that holds states and no history."""

from dataclasses import replace

import pytest
import traitlets
from shared import sample_trace
from unit.analysis.built import state, two_states
from unit.dashboard.pages import page
from unit.figures.synthetic import busy_trace

from bfcviz.analysis.diagnosis import failure_headline, failure_lines
from bfcviz.analysis.event_text import explain_event
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.free_chunk_search import search_of
from bfcviz.dashboard.chunk_pane import CHUNK_COLUMNS
from bfcviz.dashboard.event_list import EVENT_COLUMNS
from bfcviz.dashboard.header import header_numbers, totals_line
from bfcviz.dashboard.inspector import Inspector
from bfcviz.events.trace import Trace
from bfcviz.figures.view_options import Selected
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


UNKNOWN = {
    # A log says of each chunk its address, its size and whether it is in use; a memory dump also what was requested.
    "oom_log": {"requested", "waste", "born", "age", "thread", "stream"},
    "oom_dump": {"born", "age", "thread", "stream"},
}


def cells_of(listed):
    """The texts of the rows of a list."""
    return [row["cells"] for row in page(listed).rows]


def columns_of_chunks_in_use(inspector):
    """The texts of each column of the list of chunks, of the chunks in use."""
    inspector.views = "chunk_table"
    names = [column.name for column in CHUNK_COLUMNS]
    rows = [dict(zip(names, each, strict=True)) for each in cells_of(inspector.chunk_list)]
    rows = [each for each in rows if each["state"] == "in use"]
    return {name: {row[name] for row in rows} for name in names}


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_list_of_chunks_has_no_number_that_the_file_does_not_have(name):
    columns = columns_of_chunks_in_use(Inspector(sample_trace(name)))
    numbers = {"requested", "waste", "born", "age", "thread", "stream"}
    assert {each for each in numbers if columns[each] == {"-"}} == UNKNOWN[name]
    assert all("-" not in columns[each] for each in numbers - UNKNOWN[name])


def test_the_list_of_events_has_none_of_them_but_what_the_failed_request_asked_for():
    trace = sample_trace("oom_log")
    inspector = Inspector(trace, views="event_table")
    names = [column.name for column in EVENT_COLUMNS]
    rows = [dict(zip(names, each, strict=True)) for each in cells_of(inspector.event_list)]
    assert {row["kind"] for row in rows} >= {"ALLOCATE", "OOM"}
    for row in rows:
        assert row["thread"] == row["stream"] == "-"
        assert (row["requested"] == "-") == (row["kind"] != "OOM")


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_pane_of_a_chunk_has_none_of_them(name):
    trace = sample_trace(name)
    inspector = Inspector(trace)
    chunks = inspector.panel_data.model.chunks()
    inspector.look = replace(inspector.look, selected=Selected.of(chunks[chunks["in_use"]][0]))
    text = inspector.chunk.text.value
    assert "unknown, stream unknown" in text
    assert ("requested" in text) == (name == "oom_dump")


@pytest.mark.parametrize("name", UNKNOWN)
def test_colours_by_what_the_file_does_not_have_are_not_offered(name):
    inspector = Inspector(sample_trace(name))
    offered = {each for _, each in inspector.toolbar.colour.options}
    refused = {"age", "step", "thread", "stream"} | ({"waste"} if name == "oom_log" else set())
    assert {"holder", "state", "size"} <= offered
    assert not offered & refused
    assert ("waste" in offered) == (name == "oom_dump")
    for colour in refused:
        with pytest.raises(traitlets.TraitError, match=colour):
            inspector.colour = colour
    inspector.colour = "size"
    assert inspector.toolbar.colour.value == "size"


def test_streams_that_a_state_has_stay():
    trace = state([[4, -4], [2, 6]], framework="torch", streams=(3, 4))
    inspector = Inspector(trace)
    assert columns_of_chunks_in_use(inspector)["stream"] == {"3", "4"}
    inspector.colour = "stream"
    assert inspector.toolbar.colour.value == "stream"


def test_the_header_says_which_numbers_and_names_of_chunks_the_file_lacks():
    def lacks(trace):
        return Inspector(trace).header.notice.value

    facts = {"requested_bytes_in_use": None}
    assert all(
        word in lacks(sample_trace("oom_log")) for word in ("requested size", "name", "thread", "stream")
    )
    assert "requested size" not in lacks(state([[4, -4]]))
    assert "name" not in lacks(state([[4, -4]], facts=facts))
    assert "name" in lacks(state([[4, -4]], facts=facts, names=False))
    assert "stream" not in lacks(state([[4, -4]], facts=facts, framework="torch"))
    for trace in (sample_trace("lstm"), busy_trace(60)):
        assert not any(word in lacks(trace) for word in ("requested size", "thread"))
