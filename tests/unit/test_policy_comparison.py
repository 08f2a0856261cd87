"""`bfcviz.compare_policies`: table, text, figures."""

import pytest
from shared import short_file, short_trace
from unit.whatif.streams import MiB, numbered_stream

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.whatif import tie_breaking
from bfcviz.whatif.own_rules import AS_RECORDED, USUAL
from bfcviz.whatif.requests import ALLOCATE, FREE

REQUESTS = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


@pytest.fixture(autouse=True)
def few_orders(monkeypatch):
    """The other orders of ties have tests of their own."""
    monkeypatch.setattr(tie_breaking, "MOST_REQUESTS", 20_000)


@pytest.fixture(scope="module")
def compared():
    return bfcviz.compare_policies(
        numbered_stream(REQUESTS, "<b>job"), ["bfc", "bfc:allow_growth=true"], "10MiB"
    )


def test_a_sample_is_compared_under_the_usual_policies():
    found = bfcviz.compare_policies(short_file("lstm"))
    allocators = [row for row in found.table.to_pylist() if row["kind"] == "allocator"]
    assert allocators[0]["role"] == AS_RECORDED
    assert [row["policy"] for row in allocators[1:]] == list(USUAL)
    least = found.comparison.stream.live_bytes.max()
    assert all(row["fits"] and row["peak_reserved"] >= row["peak_in_use"] >= least for row in allocators)
    named = " ".join(note.title for note in found.figure().notes)
    assert all(name[:10] in named for name in USUAL)


def test_a_failure_is_in_table_text_and_figures(compared):
    assert [row["failed_request"] for row in compared.table.to_pylist()[:2]] == [3, 3]
    assert "block 2" in str(compared)
    assert len(compared.figure("dark").notes) == 4
    assert len(compared.curves().notes) == 2
    assert str(compared.first_difference("bfc", "bfc:allow_growth=true"))


def test_text_from_a_file_is_escaped(compared):
    assert "<b>job" not in compared._repr_html_()
    assert "<b>job" not in compared.figure().facts
    assert "<b>job" not in compared.maps().facts


def test_maps_show_the_last_moment_that_all_reach_or_the_one_asked_for(compared):
    table = compared.maps(names=["bfc"]).table.to_pandas()
    assert table["size"].sum() == 10 * MiB
    after_first = compared.maps(0).table.to_pandas()
    assert set(after_first["policy"]) == {"bfc", "bfc:allow_growth=true"}
    assert (after_first["state"] == "in use").sum() == 2
    with pytest.raises(InvalidRequest, match="give one of 0 to 3"):
        compared.maps(4)
    with pytest.raises(InvalidRequest, match="heap to draw"):
        compared.maps(names=[])


def test_the_outcome_of_a_policy_has_its_events(compared):
    assert bfcviz.why(compared.outcome("bfc").trace).requested == 5 * MiB
    unlimited = bfcviz.compare_policies(numbered_stream(REQUESTS), ["bfc"])
    with pytest.raises(InvalidRequest, match="limit"):
        unlimited.outcome("bfc")


def test_no_request_is_no_map():
    with pytest.raises(InvalidRequest, match="no request"):
        bfcviz.compare_policies(numbered_stream([]), ["first_fit"]).maps()


def test_one_text_is_one_policy():
    found = bfcviz.compare_policies(numbered_stream(REQUESTS), "torch")
    assert [row["policy"] for row in found.table.to_pylist() if row["kind"] == "allocator"] == ["torch"]


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1])
def test_a_driver_call_that_takes_no_time_in_numbers_is_refused(cost):
    with pytest.raises(InvalidRequest, match="call_cost_us"):
        bfcviz.compare_policies(numbered_stream(REQUESTS), "torch", call_cost_us=cost)


@pytest.mark.parametrize("limit", ["much", 0, -1, 1.5, True, 1 << 62])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(InvalidRequest, match="limit"):
        bfcviz.compare_policies(numbered_stream(REQUESTS), "torch", limit)


def test_a_heap_has_a_name_and_a_stream_has_one_only():
    trace = short_trace("lstm")
    name = trace.origin.pools[0].name
    by_name = bfcviz.compare_policies(trace, "torch", pool=name)
    assert by_name.table.equals(bfcviz.compare_policies(trace, "torch").table)
    with pytest.raises(InvalidRequest, match="no_such_heap.*" + name):
        bfcviz.compare_policies(trace, "torch", pool="no_such_heap")
    for pool in (1, name):
        with pytest.raises(InvalidRequest, match="one heap"):
            bfcviz.compare_policies(numbered_stream(REQUESTS), "torch", pool=pool)
