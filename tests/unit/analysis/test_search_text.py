"""Searches in sentences: numbers and verdicts."""

from dataclasses import replace

import pytest
from unit.analysis.facts import has_facts

from bfcviz.analysis.event_text import Cut, EventSearch, Taken, search_words

KiB, MiB = 1 << 10, 1 << 20
TAKEN = Taken(0x7F1234567800, 40 * KiB, 7, 0, 38 * KiB, split=True, cut=Cut.HALVES)
SEARCH = EventSearch(
    event=9,
    requested=2 * KiB,
    rounded=2 * KiB,
    first_bin=3,
    last_bin=7,
    free_chunks=(0, 0, 0, 0, 3),
    too_small=0,
    passed_over=0,
    extended=0,
    released=0,
    max_waste=128 * MiB,
    taken=TAKEN,
)
PLACE = "0x…34567800 (40.0 KiB)"


def sentences(**changes):
    return search_words(replace(SEARCH, **changes))


def test_lower_bins_without_a_free_chunk():
    facts = ("2.0 KiB", "bin 3", "bins 3 to 6", "no free chunk", "best fit of 3", "bin 7", PLACE, "38.0 KiB")
    assert has_facts(sentences(), *facts)
    facts = ("bin 6 has no free chunk", "only free chunk in bin 7", "0x")
    assert has_facts(sentences(first_bin=6, free_chunks=(0, 1)), *facts)


def test_lower_bins_with_chunks_that_are_too_small():
    text = sentences(free_chunks=(4, 0, 0, 0, 3), too_small=4)
    assert has_facts(text, "all 4", "bins 3 to 6", "too small;")
    text = sentences(first_bin=6, free_chunks=(1, 3), too_small=1)
    assert has_facts(text, "only free chunk in bin 6", "too small;")


def test_the_first_bin_has_the_chunk():
    here = {"last_bin": 3, "taken": replace(TAKEN, bin=3)}
    text = sentences(**here, free_chunks=(12,), too_small=4)
    assert has_facts(text, "bin 3:", "best fit of 12", "bin 3", PLACE, "4 of them too small", "38.0 KiB")
    assert has_facts(sentences(**here, free_chunks=(1,)), "bin 3:", "only free chunk in bin 3")


def test_the_size_before_rounding_is_said():
    assert has_facts(sentences(requested=1900), "2.0 KiB", "1.9 KiB rounded up", "bin 3")
    assert has_facts(sentences(requested=2047), "2.0 KiB", "2,047 B rounded up", "bin 3")
    assert "rounded" not in sentences()


def test_the_pool_grew():
    grown = {"last_bin": 20, "extended": 4 * MiB}
    text = sentences(**grown, free_chunks=(5, *[0] * 17), too_small=5)
    assert has_facts(
        text, "all 5", "bins 3 to 20", "too small", "grew by 4.0 MiB", PLACE, "bin 7", "38.0 KiB"
    )
    text = sentences(**grown, free_chunks=(0,) * 18, released=2)
    assert has_facts(text, "no free chunk", "released 2 free regions", "grew by 4.0 MiB")
    assert "released 1 free region " in sentences(**grown, free_chunks=(0,) * 18, released=1)
    last = sentences(first_bin=20, last_bin=20, extended=MiB, free_chunks=(0,))
    assert has_facts(last, "bin 20 has no free chunk", "grew by 1.0 MiB")


def test_a_request_that_failed():
    failed = {"last_bin": 20, "taken": None, "free_chunks": (2, *[0] * 17), "too_small": 2}
    assert has_facts(sentences(**failed), "all 2", "bins 3 to 20", "too small", "did not grow")
    assert has_facts(sentences(**failed, extended=MiB), "grew by 1.0 MiB", "still no chunk fits")


def test_chunks_that_the_search_skipped():
    text = sentences(free_chunks=(3, 0, 0, 1, 3), too_small=2, passed_over=2)
    assert has_facts(
        text, "none of the 4", "bins 3 to 6", "2 free chunks", "skipped", "alignment", "timestamp"
    )
    text = sentences(first_bin=6, free_chunks=(1, 3), passed_over=1)
    assert has_facts(text, "only free chunk in bin 6", "not taken", "1 free chunk", "skipped")


@pytest.mark.parametrize(
    ("taken", "facts"),
    [
        (replace(TAKEN, padding=512), ("512 B of alignment padding", "was split", "twice", "38.0 KiB")),
        (replace(TAKEN, rest=0, split=False, cut=Cut.EXACT), ("exactly", "not split")),
        (replace(TAKEN, rest=130 * MiB, cut=Cut.WASTE), ("was split", "130.0 MiB", "128.0 MiB")),
        (
            replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE),
            ("not split", "1.0 KiB", "less than the request", "128.0 MiB"),
        ),
        (replace(TAKEN, rest=1024, cut=Cut.NOT_SHOWN), ("was split", "1.0 KiB", "not show why")),
        (replace(TAKEN, rest=1024, split=False, cut=Cut.NOT_SHOWN), ("not split", "1.0 KiB", "not show why")),
    ],
)
def test_why_the_chunk_was_split_or_not(taken, facts):
    assert has_facts(sentences(taken=taken), PLACE, *facts)


def test_an_unknown_limit_is_not_mentioned():
    taken = replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE)
    assert "limit" not in sentences(taken=taken, max_waste=None)
