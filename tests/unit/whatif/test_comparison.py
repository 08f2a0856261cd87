"""The table of several policies on one stream."""

import pytest
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif import comparison as comparison_module
from bfcviz.whatif.comparison import MEASURES, compare
from bfcviz.whatif.policy_table import AS_RECORDED, BOUNDS, PLANS, OwnRules, policy_of
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
    assert row["reserved_not_in_use"] == 1 - 8 / 64
    assert row["internal_fragmentation"] == 0
    # Most is in use after the last request: 3 MiB are free below block 1, 53 MiB above block 2.
    assert row["external_fragmentation"] == 1 - 53 / 56
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
    assert row["failure_external_fragmentation"] == pytest.approx(1 - 4 / 7)


def test_a_policy_that_cannot_serve_is_a_row_with_a_message():
    found = compare(stream_of(REQUESTS), NAMES, None)
    row = rows_of(found)["bfc"]
    assert "limit" in row["message"]
    assert (row["peak_reserved"], row["fits"]) == (None, None)
    assert rows_of(found)["first_fit"]["fits"]


def test_an_impossible_limit_is_a_message_in_each_row():
    rows = compare(stream_of(REQUESTS), NAMES, -5, bounds=False).to_arrow().to_pylist()
    assert [("-5" in row["message"], row["fits"]) for row in rows] == [(True, None)] * 3


def test_plan_and_bound_come_last():
    found = compare(stream_of(REQUESTS), NAMES, 64 * MiB)
    assert [result.name for result in found.results] == [*NAMES, *PLANS, *BOUNDS]
    rows = rows_of(found)
    assert [rows[name]["kind"] for name in (NAMES[0], "packed", "live_bytes")] == [
        "allocator",
        "plan",
        "bound",
    ]
    assert all(
        rows["live_bytes"]["peak_reserved"] <= rows[name]["peak_reserved"] for name in (*NAMES, "packed")
    )
    without = compare(stream_of(REQUESTS), NAMES, MiB, bounds=False).results
    assert all(result.is_allocator for result in without)


def test_no_allocator_beats_the_bound_but_one_may_beat_a_plan():
    asked = stream_of([(ALLOCATE, 0, 100), (ALLOCATE, 1, 100)])
    rows = rows_of(compare(asked, ["exact_size:unit=1", "live_bytes:unit=512"], 200))
    fits = {name: (row["kind"], row["fits"]) for name, row in rows.items()}
    assert fits == {
        "exact_size:unit=1": ("allocator", True),
        "live_bytes:unit=512": ("plan", False),
        "packed": ("plan", False),
        "live_bytes": ("bound", True),
    }


def test_an_empty_stream_has_a_row_for_each():
    rows = compare(stream_of([]), NAMES, MiB, bounds=False).to_arrow().to_pylist()
    assert [(row["fits"], row["peak_in_use"]) for row in rows] == [(True, 0)] * 3


def test_a_stream_too_long_to_record_has_only_what_needs_no_events(monkeypatch):
    monkeypatch.setattr(comparison_module, "MOST_RECORDED", 2)
    found = compare(stream_of(REQUESTS), NAMES, 64 * MiB, bounds=False)
    rows = rows_of(found)
    assert (rows["first_fit"]["splits"], rows["first_fit"]["external_fragmentation"]) == (None, 1 - 3 / 4)
    assert rows["bfc"]["external_fragmentation"] == 1 - 53 / 56  # the heap itself says it
    with pytest.raises(InvalidRequest, match="not known"):
        found.first_difference("bfc", "first_fit")


class Unrecorded:
    """A user's policy that never makes a trace."""

    name, options = "unrecorded", {}

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        return policy_of("first_fit").serve(stream, limit, stop_at_failure=stop_at_failure)


def test_the_reason_why_places_are_not_known_is_the_one_that_is_true():
    found = compare(stream_of(REQUESTS), ["first_fit", "bfc", Unrecorded()])
    for name, true in (("unrecorded", "record=True"), ("packed", "a plan"), ("bfc", "allow_growth")):
        with pytest.raises(InvalidRequest) as raised:
            found.first_difference("first_fit", name)
        others = {"record=True", "a plan", "allow_growth"} - {true}
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


def test_plan_and_bound_show_what_is_needed_also_above_the_limit():
    asked = stream_of(REQUESTS)
    for limit, fits in ((MiB, False), (8 * MiB, True)):
        rows = rows_of(compare(asked, ["first_fit"], limit))
        needed = [rows[name] for name in (*PLANS, *BOUNDS)]
        assert [row["peak_reserved"] for row in needed] == [8 * MiB] * 2
        assert [(row["fits"], row["limit"], row["failed_request"]) for row in needed] == [
            (fits, limit, None)
        ] * 2


def test_a_failure_says_what_is_free_and_what_the_limit_leaves():
    found = compare(stream_of(REQUESTS), ["bfc", "first_fit:granule=4MiB"], 10 * MiB, bounds=False)
    fields = ("failure_free_bytes", "failure_largest_free_bytes", "failure_room_bytes")
    rows = rows_of(found)
    assert [rows["bfc"][name] for name in fields] == [7 * MiB, 4 * MiB, 0]
    assert [rows["first_fit:granule=4MiB"][name] for name in fields] == [5 * MiB, 3 * MiB, 2 * MiB]


def test_own_rules_have_their_role_and_their_own_limit():
    own = OwnRules(policy_of("bfc"), 16 * MiB, AS_RECORDED, "because")
    found = compare(stream_of(REQUESTS), [own, "first_fit"], None)
    row = found.to_arrow().to_pylist()[0]
    assert (row["policy"], row["role"], row["limit"], row["fits"]) == ("bfc", AS_RECORDED, 16 * MiB, True)
    assert found.own is own
    assert found["bfc"].title == f"{AS_RECORDED}: bfc"


def test_a_policy_of_a_user_that_raises_is_a_row_with_a_message():
    class Own:
        name, options = "own", {}

        def serve(self, *_, **__):
            raise RuntimeError("no rules yet")

    found = compare(stream_of(REQUESTS), [Own(), "first_fit"], 64 * MiB, bounds=False)
    assert "no rules yet" in found["own"].message
    assert found["first_fit"].outcome.fits
