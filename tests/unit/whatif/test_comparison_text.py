"""The comparison as text."""

import pytest
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.whatif import comparison
from bfcviz.whatif import comparison as comparison_text_module
from bfcviz.whatif.comparison import (
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
from bfcviz.whatif.requests import ALLOCATE, FREE

REQUESTS = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


def test_each_policy_has_a_row_and_each_measure_a_definition():
    found = compare(stream_of(REQUESTS), ["bfc", "first_fit"], 64 * MiB, call_cost_us=123, bounds=False)
    text = comparison_text(found)
    rows = table_rows(found)
    assert [row[0] for row in rows] == ["bfc", "first_fit"]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[0][1:4] == ("64.0 MiB", "8.0 MiB", "87.5 %")
    flat = " ".join(text.split())
    of_failures = [name for name in MEASURES if name.startswith("failure")]
    defined = [name for name in MEASURES if " ".join(MEASURES[name].split()) in flat]
    assert defined == [name for name in MEASURES if name not in of_failures]
    failing = " ".join(comparison_text(compare(stream_of(REQUESTS), ["bfc"], 10 * MiB)).split())
    assert all(MEASURES[name] in failing for name in of_failures)
    assert "123 microseconds" in flat


def test_failures_and_messages_are_sentences():
    found = compare(stream_of(REQUESTS), ["bfc", "bfc:allow_growth=true"], 10 * MiB, bounds=False)
    assert len(failures(found)) == 2
    for word in ("request 3", "5.0 MiB", "block 2", "7.0 MiB"):
        assert word in failures(found)[0]
    unlimited = compare(stream_of(REQUESTS), ["bfc", "first_fit"], None, bounds=False)
    assert [line.partition(":")[0] for line in failures(unlimited)] == ["bfc"]


def test_html_keeps_a_number_and_its_unit_in_one_line():
    html = comparison_html(compare(stream_of(REQUESTS), ["bfc"], 64 * MiB, bounds=False))
    cells = html.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "<td>64.0\N{NO-BREAK SPACE}MiB</td>" in cells
    assert "87.5\N{NO-BREAK SPACE}%" in cells


def test_names_from_files_cannot_control_a_terminal():
    found = compare(stream_of(REQUESTS, source="evil\x1b[31m"), ["first_fit"], bounds=False)
    assert "\x1b" not in comparison_text(found)


def test_plan_and_bound_above_the_limit_say_so():
    rows = table_rows(compare(stream_of(REQUESTS), ["first_fit"], 4 * MiB))
    assert [(row[1], "above limit" in row[-1]) for row in rows[1:]] == [("8.0 MiB", True)] * 2


def test_the_definitions_begin_with_the_words_of_the_columns():
    words = [line.partition(": ")[0] for line in notes(compare(stream_of(REQUESTS), ["first_fit"], None))]
    measured = [name for name in COLUMNS if name not in {"policy", "result"}]
    assert words[: len(measured)] == measured


@pytest.mark.parametrize("explain", [False, True])
def test_a_text_is_at_most_80_columns_wide(explain):
    asked = ["bfc:allow_growth=true,garbage_collection=true,fragmentation_fraction=0.25", "torch"]
    text = comparison_text(compare(stream_of(REQUESTS), asked, 4 * MiB), explain=explain)
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in asked)
    assert ("splits" in text.split()) == explain


def test_wide_sizes_leave_less_room_for_names():
    text = comparison_text(compare(stream_of([(ALLOCATE, 0, 1010 * MiB)]), ["stream_ordered"], 4 * MiB))
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
    said = verdict_text(compare(stream_of(REQUESTS), names, limit))
    assert all(word in said for word in expected)


def test_what_is_not_known_of_a_long_stream_is_named(monkeypatch):
    for module in (comparison, comparison_text_module):
        monkeypatch.setattr(module, "MOST_RECORDED", 2)
    found = compare(stream_of(REQUESTS), ["first_fit"], None)
    (line,) = [line for line in notes(found) if line.startswith("not known")]
    assert "splits, merges" in line
    assert "external" not in line  # the pools say it themselves
