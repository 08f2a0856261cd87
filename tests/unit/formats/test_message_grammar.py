"""The tables of texts: templates, sizes, and that every entry has its rule, its advice and its place in the page."""

import re

import pytest
from shared import ROOT

from bfcviz.analysis.message_advice import advise
from bfcviz.analysis.message_verdict import StatedCause, judge, judge_soft
from bfcviz.formats.message_grammar import Role, StatedFailure, messages_of, template
from bfcviz.formats.message_tables import ENTRIES, TABLES, counts, page
from bfcviz.importers.message_reader import stated_size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "unit", "value", "slack"),
    [
        ("0 bytes", "", 0, 0),
        ("25,600,000 bytes", "", 25_600_000, 0),
        ("9029127168", "", 9_029_127_168, 0),
        ("4.22 GiB", "", round(4.22 * GIB), GIB // 200 + 1),
        ("530.00M", "", 530 << 20, (1 << 20) // 200 + 1),
        ("0B", "", 0, 0),
        ("1062 MB", "", 1062 << 20, (1 << 19) + 1),
        ("1,02GiB", "", round(1.02 * GIB), GIB // 200 + 1),  # a system with a decimal comma
        ("14825", "M", 14825 << 20, (1 << 19) + 1),
        ("0x4000", "", 16 << 10, 0),
        ("-0.3 GiB", "", round(-0.3 * GIB), GIB // 20 + 1),
    ],
)
def test_sizes_as_frameworks_print_them(text, unit, value, slack):
    found = stated_size(text, unit)
    assert (found.value, found.slack) == (value, pytest.approx(slack, abs=1))


@pytest.mark.parametrize("text", ["", "GiB", "1,2,3", "1,02 and", "0xGiB"])
def test_what_is_no_size(text):
    assert stated_size(text) is None


def test_a_template_matches_wherever_the_text_was_wrapped():
    pattern = template("of which {size} is free")
    for text in ("of which 3.71 GiB is free", "of\n  which 3.71\nGiB is\tfree", "ofwhich 3.71 GiB isfree"):
        assert pattern.search(text)[1].split() == ["3.71", "GiB"]


@pytest.mark.parametrize("entry", TABLES, ids=[entry.name for entry in TABLES])
def test_each_text_has_a_verdict_and_advice_without_numbers_too(entry):
    found = StatedFailure(entry.name, entry.framework)
    if entry.role in {Role.SOFT, Role.BEFORE, Role.REPORT} or entry.name == "nvidia-smi":
        assert judge_soft(found).cause is StatedCause.NOT_A_FAILURE
    if entry.role in {Role.FAILURE, Role.REPORT}:
        judged = judge(found)
        assert judged.sentence
        assert judged.cause is not StatedCause.NOT_A_FAILURE
        assert advise(found, judged)


def test_entries_are_one_of_a_name_and_say_what_they_mean():
    assert len(ENTRIES) == len(TABLES)
    assert all(entry.means and entry.source and entry.begins for entry in TABLES)
    for entry in TABLES:
        for number in entry.numbers:
            assert number.patterns
            assert counts(entry.name, number.name)


def test_the_page_is_in_the_guide_and_names_every_number():
    text = page()
    assert text in (ROOT / "notebooks" / "README.md").read_text()
    for entry in TABLES:
        assert entry.source in text
        for number in entry.numbers:
            assert f"`{number.name}`" in text
    assert not re.search(r"\{\w+\}", text)


@pytest.mark.parametrize(
    "line",
    [
        'mrk host <- "host memory"',
        'devices <- "on {number}"',
        'requested bytes <- "asked {size}"',
        'requested[B]: bytes <- "asked {size}"',
        "requested: bytes",
    ],
)
def test_a_line_of_no_known_kind_in_a_table_is_an_error(line):
    table = f"a-pool | A\n    = It is full.\n    in a.cc\n    > A is full\n    {line}\n"
    with pytest.raises(ValueError, match="a-pool: a line of the table is of no known kind"):
        messages_of(table)
