"""The table of several policies on one stream."""

import re

import pytest
from unit.whatif.streams import MiB, numbered_stream

from bfcviz import policy_comparison
from bfcviz.errors import InvalidRequest
from bfcviz.policy_comparison import (
    COLUMNS,
    MEASURES,
    compare,
    comparison_html,
    comparison_text,
    failures,
    notes,
    table_rows,
    verdict_text,
)
from bfcviz.whatif.own_rules import AS_RECORDED, OwnRules
from bfcviz.whatif.policy_table import BOUNDS, PLANS, policy_of
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
    row = rows_of(compare(numbered_stream(REQUESTS), NAMES, 64 * MiB))["bfc"]
    assert (row["fits"], row["requests_served"], row["message"]) == (True, 6, "")
    assert (row["peak_reserved"], row["peak_in_use"]) == (64 * MiB, 8 * MiB)
    assert row["reserved_not_in_use"] == 1 - 8 / 64
    assert row["internal_fragmentation"] == 0
    # Most is in use after the last request: 3 MiB are free below block 1, 53 MiB above block 2.
    assert row["external_fragmentation"] == 1 - 53 / 56
    assert (row["driver_grants"], row["driver_refusals"], row["driver_releases"]) == (1, 0, 0)
    assert (row["extends"], row["releases"]) == (1, 0)
    assert row["stall_s"] == policy_comparison.CALL_COST_US / 1e6
    assert row["failed_request"] is None


def test_a_policy_that_fails_ends_there():
    row = rows_of(compare(numbered_stream([*REQUESTS, (FREE, 1, 0)]), NAMES, 10 * MiB))["bfc"]
    assert (row["fits"], row["requests_served"]) == (False, 6)
    assert (row["failed_request"], row["failed_event"]) == (5, 5)
    assert (row["failed_size"], row["failed_label"]) == (5 * MiB, "block 2")
    assert (row["failed_after_mark"], row["marks_before_failure"]) == ("step", 2)
    assert row["failure_free_bytes"] == 7 * MiB
    assert row["failure_external_fragmentation"] == pytest.approx(1 - 4 / 7)


def test_a_policy_that_cannot_serve_is_a_row_with_a_message():
    found = compare(numbered_stream(REQUESTS), NAMES, None)
    row = rows_of(found)["bfc"]
    assert "limit" in row["message"]
    assert (row["peak_reserved"], row["fits"]) == (None, None)
    assert rows_of(found)["first_fit"]["fits"]


def test_an_impossible_limit_is_a_message_in_each_row():
    rows = compare(numbered_stream(REQUESTS), NAMES, -5, bounds=False).to_arrow().to_pylist()
    assert [("-5" in row["message"], row["fits"]) for row in rows] == [(True, None)] * 3


def test_plan_and_bound_come_last():
    found = compare(numbered_stream(REQUESTS), NAMES, 64 * MiB)
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
    without = compare(numbered_stream(REQUESTS), NAMES, MiB, bounds=False).results
    assert all(result.is_allocator for result in without)


def test_no_allocator_beats_the_bound_but_one_may_beat_a_plan():
    asked = numbered_stream([(ALLOCATE, 0, 100), (ALLOCATE, 1, 100)])
    rows = rows_of(compare(asked, ["exact_size:unit=1", "live_bytes:unit=512"], 200))
    fits = {name: (row["kind"], row["fits"]) for name, row in rows.items()}
    assert fits == {
        "exact_size:unit=1": ("allocator", True),
        "live_bytes:unit=512": ("plan", False),
        "packed": ("plan", False),
        "live_bytes": ("bound", True),
    }


def test_an_empty_stream_has_a_row_for_each():
    rows = compare(numbered_stream([]), NAMES, MiB, bounds=False).to_arrow().to_pylist()
    assert [(row["fits"], row["peak_in_use"]) for row in rows] == [(True, 0)] * 3


def test_a_stream_too_long_to_record_has_only_what_needs_no_events(monkeypatch):
    monkeypatch.setattr(policy_comparison, "MOST_RECORDED", 2)
    found = compare(numbered_stream(REQUESTS), NAMES, 64 * MiB, bounds=False)
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
    found = compare(numbered_stream(REQUESTS), ["first_fit", "bfc", Unrecorded()])
    for name, true in (("unrecorded", "record=True"), ("packed", "a plan"), ("bfc", "allow_growth")):
        with pytest.raises(InvalidRequest) as raised:
            found.first_difference("first_fit", name)
        others = {"record=True", "a plan", "allow_growth"} - {true}
        assert true in str(raised.value)
        assert not any(other in str(raised.value) for other in others)


def test_results_are_found_by_name():
    found = compare(
        numbered_stream(REQUESTS), ["bfc", policy_of("bfc:allow_growth=true")], 64 * MiB, bounds=False
    )
    assert found["bfc:allow_growth=true"].outcome.fits
    assert found.first_difference("bfc", "bfc:allow_growth=true").request == 2
    with pytest.raises(InvalidRequest, match="bfc"):
        found["buddy?"]


def test_a_policy_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="twice"):
        compare(numbered_stream(REQUESTS), ["bfc", "bfc"], MiB)


def test_each_measure_of_the_table_has_a_definition():
    columns = set(compare(numbered_stream([]), [], bounds=False).to_arrow().column_names)
    assert set(MEASURES) - {"driver_calls"} <= columns


def test_plan_and_bound_show_what_is_needed_also_above_the_limit():
    asked = numbered_stream(REQUESTS)
    for limit, fits in ((MiB, False), (8 * MiB, True)):
        rows = rows_of(compare(asked, ["first_fit"], limit))
        needed = [rows[name] for name in (*PLANS, *BOUNDS)]
        assert [row["peak_reserved"] for row in needed] == [8 * MiB] * 2
        assert [(row["fits"], row["limit"], row["failed_request"]) for row in needed] == [
            (fits, limit, None)
        ] * 2


def test_a_failure_says_what_is_free_and_what_the_limit_leaves():
    found = compare(numbered_stream(REQUESTS), ["bfc", "first_fit:granule=4MiB"], 10 * MiB, bounds=False)
    fields = ("failure_free_bytes", "failure_largest_free_bytes", "failure_room_bytes")
    rows = rows_of(found)
    assert [rows["bfc"][name] for name in fields] == [7 * MiB, 4 * MiB, 0]
    assert [rows["first_fit:granule=4MiB"][name] for name in fields] == [5 * MiB, 3 * MiB, 2 * MiB]


def test_own_rules_have_their_role_and_their_own_limit():
    own = OwnRules(policy_of("bfc"), 16 * MiB, AS_RECORDED, "because")
    found = compare(numbered_stream(REQUESTS), [own, "first_fit"], None)
    row = found.to_arrow().to_pylist()[0]
    assert (row["policy"], row["role"], row["limit"], row["fits"]) == ("bfc", AS_RECORDED, 16 * MiB, True)
    assert found.own is own
    assert found["bfc"].title == f"{AS_RECORDED}: bfc"


def test_a_policy_of_a_user_that_raises_is_a_row_with_a_message():
    class Own:
        name, options = "own", {}

        def serve(self, *_, **__):
            raise RuntimeError("no rules yet")

    found = compare(numbered_stream(REQUESTS), [Own(), "first_fit"], 64 * MiB, bounds=False)
    assert "no rules yet" in found["own"].message
    assert found["first_fit"].outcome.fits


# ------------------------------------------------------------------------------
# The comparison as text.


TEXT_REQUESTS = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


def test_each_policy_has_a_row_and_each_measure_a_definition():
    found = compare(
        numbered_stream(TEXT_REQUESTS), ["bfc", "first_fit"], 64 * MiB, call_cost_us=123, bounds=False
    )
    text = comparison_text(found)
    rows = table_rows(found)
    assert [row[0] for row in rows] == ["bfc", "first_fit"]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[0][1:5] == ("fits", "64.0 MiB", "8.0 MiB", "87.5 %")
    flat = " ".join(text.split())
    of_failures = [name for name in MEASURES if name.startswith("failure")]
    defined = [name for name in MEASURES if " ".join(MEASURES[name].split()) in flat]
    assert defined == [name for name in MEASURES if name not in of_failures]
    failing = " ".join(comparison_text(compare(numbered_stream(TEXT_REQUESTS), ["bfc"], 10 * MiB)).split())
    assert all(MEASURES[name] in failing for name in of_failures)
    assert "123 microseconds" in flat


def test_failures_and_messages_are_sentences():
    found = compare(numbered_stream(TEXT_REQUESTS), ["bfc", "bfc:allow_growth=true"], 10 * MiB, bounds=False)
    assert len(failures(found)) == 2
    for word in ("request 3", "5.0 MiB", "block 2", "7.0 MiB"):
        assert word in failures(found)[0]
    unlimited = compare(numbered_stream(TEXT_REQUESTS), ["bfc", "first_fit"], None, bounds=False)
    assert [line.partition(":")[0] for line in failures(unlimited)] == ["bfc"]


def test_html_keeps_a_number_and_its_unit_in_one_line():
    html = comparison_html(compare(numbered_stream(TEXT_REQUESTS), ["bfc"], 64 * MiB, bounds=False))
    cells = html.partition("<tbody>")[2].partition("</tbody>")[0]
    assert re.search('white-space:nowrap">64.0 MiB</td>', cells)
    assert re.search('white-space:nowrap">87.5 %</td>', cells)
    assert re.search('overflow-wrap:anywhere">bfc</td>', cells)


def test_names_from_files_cannot_control_a_terminal():
    found = compare(numbered_stream(TEXT_REQUESTS, source="evil\x1b[31m"), ["first_fit"], bounds=False)
    assert "\x1b" not in comparison_text(found)


def test_plan_and_bound_above_the_limit_say_so():
    rows = table_rows(compare(numbered_stream(TEXT_REQUESTS), ["first_fit"], 4 * MiB))
    assert [(row[2], "above limit" in row[1]) for row in rows[1:]] == [("8.0 MiB", True)] * 2


def test_the_definitions_begin_with_the_words_of_the_columns():
    words = [
        line.partition(": ")[0]
        for line in notes(compare(numbered_stream(TEXT_REQUESTS), ["first_fit"], None))
    ]
    measured = [name for name in COLUMNS if name not in {"policy", "result"}]
    assert words[: len(measured)] == measured


@pytest.mark.parametrize("explain", [False, True])
def test_a_text_is_at_most_80_columns_wide(explain):
    asked = ["bfc:allow_growth=true,garbage_collection=true,fragmentation_fraction=0.25", "torch"]
    text = comparison_text(compare(numbered_stream(TEXT_REQUESTS), asked, 4 * MiB), explain=explain)
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in asked)
    assert ("splits" in text.split()) == explain


def test_wide_sizes_leave_less_room_for_names():
    text = comparison_text(compare(numbered_stream([(ALLOCATE, 0, 1010 * MiB)]), ["stream_ordered"], 4 * MiB))
    assert max(map(len, text.splitlines())) <= 80
    assert "1010.0 MiB  1010.0 MiB" in text
    assert "bound: above limit" in text


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["first_fit", "11.0 MiB"]),
        (12 * MiB, ["first_fit", "1 of 2", "12.0 MiB"]),
        (4 * MiB, ["All 2"]),
    ],
)
def test_the_verdict_names_the_least_memory_and_how_many_fail(limit, expected):
    names = ["first_fit:granule=1MiB", "torch"]
    said = verdict_text(compare(numbered_stream(TEXT_REQUESTS), names, limit))
    assert all(word in said for word in expected)


def test_what_is_not_known_of_a_long_stream_is_named(monkeypatch):
    monkeypatch.setattr(policy_comparison, "MOST_RECORDED", 2)
    found = compare(numbered_stream(TEXT_REQUESTS), ["first_fit"], None)
    (line,) = [line for line in notes(found) if line.startswith("not known")]
    assert "splits, merges" in line
    assert "external" not in line  # the pools say it themselves
