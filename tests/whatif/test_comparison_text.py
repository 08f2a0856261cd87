"""The comparison as text."""

from whatif.labelled_streams import MiB, stream_of

from bfcviz.whatif.comparison import MEASURES, compare
from bfcviz.whatif.comparison_text import COLUMNS, comparison_text, failures, notes, table_rows
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK

REQUESTS = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


def test_each_policy_has_a_row_and_each_measure_a_definition():
    found = compare(stream_of(REQUESTS), ["bfc", "first_fit"], 64 * MiB, call_cost_us=123, bounds=False)
    text = comparison_text(found)
    rows = table_rows(found)
    assert [row[0] for row in rows] == ["bfc", "first_fit"]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[0][1:4] == ("64.0 MiB", "8.0 MiB", "87.5 %")
    flat = " ".join(text.split())
    assert all(" ".join(what.split()) in flat for what in MEASURES.values())
    assert "123 microseconds" in flat


def test_failures_and_messages_are_sentences():
    found = compare(stream_of(REQUESTS), ["bfc", "bfc:allow_growth=true"], 10 * MiB, bounds=False)
    assert len(failures(found)) == 2
    for word in ("request 3", "5.0 MiB", "block 2", "7.0 MiB"):
        assert word in failures(found)[0]
    unlimited = compare(stream_of(REQUESTS), ["bfc", "first_fit"], None, bounds=False)
    assert [line.partition(":")[0] for line in failures(unlimited)] == ["bfc"]


def test_a_failure_names_the_mark_before_it_with_its_value():
    marked = [REQUESTS[0], (MARK, 0, 97), *REQUESTS[1:]]
    found = compare(stream_of(marked), ["bfc"], 10 * MiB, bounds=False)
    assert "step 97 (mark 1)" in failures(found)[0]


def test_names_from_files_cannot_control_a_terminal():
    found = compare(stream_of(REQUESTS, source="evil\x1b[31m"), ["first_fit"], bounds=False)
    assert "\x1b" not in comparison_text(found)


def test_a_bound_above_the_limit_says_so():
    rows = table_rows(compare(stream_of(REQUESTS), ["first_fit"], 4 * MiB))
    assert [(row[1], "above the limit" in row[-1]) for row in rows[1:]] == [("8.0 MiB", True)] * 2


def test_the_definitions_begin_with_the_words_of_the_columns():
    words = [line.partition(": ")[0] for line in notes(compare(stream_of(REQUESTS), ["first_fit"], None))]
    measured = [name for name in COLUMNS if name not in {"policy", "splits", "merges", "result"}]
    assert words[: len(measured)] == measured
    assert len(words) >= len(MEASURES)
