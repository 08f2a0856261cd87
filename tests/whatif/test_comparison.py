"""The table of several policies on one stream."""

import pytest
from whatif.labelled_streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif import comparison as comparison_module
from bfcviz.whatif.comparison import BOUNDS, MEASURES, compare
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK

REQUESTS = [
    (MARK, 0, 1),
    (ALLOCATE, 0, 3 * MiB),
    (ALLOCATE, 1, 3 * MiB),
    (FREE, 0, 0),
    (MARK, 0, 2),
    (ALLOCATE, 2, 5 * MiB),
]
NAMES = ["bfc", "bfc:allow_growth=true", "first_fit"]


def rows_of(found):
    return {row["policy"]: row for row in found.to_arrow().to_pylist()}


def test_a_policy_that_fits_has_all_measures():
    row = rows_of(compare(stream_of(REQUESTS), NAMES, 64 * MiB))["bfc"]
    assert (row["fits"], row["requests_served"], row["message"]) == (True, 6, "")
    assert (row["peak_reserved"], row["peak_in_use"]) == (64 * MiB, 8 * MiB)
    assert row["unused_share"] == 1 - 8 / 64
    assert row["rounding_share"] == 0
    # Most is in use after the last request: 3 MiB are free below block 1, 53 MiB above block 2.
    assert row["scattered_share"] == 1 - 53 / 56
    assert (row["driver_grants"], row["driver_refusals"], row["driver_releases"]) == (1, 0, 0)
    assert (row["extends"], row["releases"]) == (1, 0)
    assert row["stall_s"] == comparison_module.CALL_COST_US / 1e6
    assert row["failed_request"] is None


def test_a_policy_that_fails_ends_there():
    row = rows_of(compare(stream_of([*REQUESTS, (FREE, 1, 0)]), NAMES, 10 * MiB))["bfc"]
    assert (row["fits"], row["requests_served"]) == (False, 6)
    assert (row["failed_request"], row["failed_event"]) == (5, 5)
    assert (row["failed_size"], row["failed_label"]) == (5 * MiB, "block 2")
    assert (row["failed_after_mark"], row["marks_before_failure"]) == ("step", 2)
    assert row["failure_free_bytes"] == 7 * MiB
    assert row["failure_scattered_share"] == pytest.approx(1 - 4 / 7)


def test_a_policy_that_cannot_serve_is_a_row_with_a_message():
    found = compare(stream_of(REQUESTS), NAMES, None)
    row = rows_of(found)["bfc"]
    assert "limit" in row["message"]
    assert (row["peak_reserved"], row["fits"]) == (None, None)
    assert rows_of(found)["first_fit"]["fits"]


def test_an_impossible_limit_is_a_message_in_each_row():
    rows = compare(stream_of(REQUESTS), NAMES, -5, bounds=False).to_arrow().to_pylist()
    assert [("-5" in row["message"], row["fits"]) for row in rows] == [(True, None)] * 3


def test_lower_bounds_come_last():
    known = [name for name in BOUNDS if name in POLICIES]
    found = compare(stream_of(REQUESTS), NAMES, 64 * MiB)
    assert [result.name for result in found.results] == [*NAMES, *known]
    for name in known:
        row = rows_of(found)[name]
        assert row["bound"]
        assert row["peak_reserved"] <= min(rows_of(found)[each]["peak_reserved"] for each in NAMES)
    assert not any(
        result.is_bound for result in compare(stream_of(REQUESTS), NAMES, MiB, bounds=False).results
    )


def test_an_empty_stream_has_a_row_for_each():
    rows = compare(stream_of([]), NAMES, MiB, bounds=False).to_arrow().to_pylist()
    assert [(row["fits"], row["peak_in_use"]) for row in rows] == [(True, 0)] * 3


def test_a_stream_too_long_to_record_has_only_what_needs_no_events(monkeypatch):
    monkeypatch.setattr(comparison_module, "MOST_RECORDED", 2)
    found = compare(stream_of(REQUESTS), NAMES, 64 * MiB, bounds=False)
    rows = rows_of(found)
    assert (rows["first_fit"]["splits"], rows["first_fit"]["scattered_share"]) == (None, 1 - 3 / 4)
    assert rows["bfc"]["scattered_share"] == 1 - 53 / 56  # the heap itself says it
    with pytest.raises(InvalidRequest, match="not known"):
        found.first_difference("bfc", "first_fit")


class Unrecorded:
    """A user's policy that never makes a trace."""

    name, options = "unrecorded", {}

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        return policy_of("first_fit").serve(stream, limit, stop_at_failure=stop_at_failure)


def test_the_reason_why_places_are_not_known_is_the_one_that_is_true():
    found = compare(stream_of(REQUESTS), ["first_fit", "bfc", Unrecorded()])
    for name, true in (("unrecorded", "record=True"), ("packed", "lower bound"), ("bfc", "allow_growth")):
        with pytest.raises(InvalidRequest) as raised:
            found.first_difference("first_fit", name)
        others = {"record=True", "lower bound", "allow_growth"} - {true}
        assert true in str(raised.value)
        assert not any(other in str(raised.value) for other in others)


def test_results_are_found_by_name():
    found = compare(stream_of(REQUESTS), ["bfc", policy_of("bfc:allow_growth=true")], 64 * MiB, bounds=False)
    assert found["bfc:allow_growth=true"].outcome.fits
    assert found.first_difference("bfc", "bfc:allow_growth=true").request == 2
    with pytest.raises(InvalidRequest, match="bfc"):
        found["buddy?"]


def test_a_policy_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="twice"):
        compare(stream_of(REQUESTS), ["bfc", "bfc"], MiB)


def test_each_measure_of_the_table_has_a_definition():
    columns = set(compare(stream_of([]), [], bounds=False).to_arrow().column_names)
    assert set(MEASURES) - {"driver_calls"} <= columns


def test_a_bound_shows_what_is_needed_at_least_also_above_the_limit():
    asked = stream_of(REQUESTS)
    for limit, fits in ((MiB, False), (8 * MiB, True)):
        rows = rows_of(compare(asked, ["first_fit"], limit))
        bounds = [rows[name] for name in BOUNDS]
        assert [row["peak_reserved"] for row in bounds] == [8 * MiB] * 2
        assert [(row["fits"], row["limit"], row["failed_request"]) for row in bounds] == [
            (fits, limit, None)
        ] * 2
