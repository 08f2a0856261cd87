"""Searches in words, to the letter."""

from dataclasses import replace

import pytest

from bfcviz.model.explain.search import Cut, Search, Taken
from bfcviz.model.explain.text.search import search_words

KiB, MiB = 1 << 10, 1 << 20
TAKEN = Taken(0x7F1234567800, 40 * KiB, 7, 0, 38 * KiB, split=True, cut=Cut.HALVES)
SEARCH = Search(
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
SPLIT = "It was split, being at least twice the request: 38.0 KiB stay free."
PLACE = "0x…34567800 (40.0 KiB)"
FROM_BIN_3 = "Looked for 2.0 KiB from bin 3 up"


def told(**changes):
    return search_words(replace(SEARCH, **changes))


def test_bins_below_that_hold_nothing():
    text = f"{FROM_BIN_3}: nothing is free in bins 3 to 6; it took the best fit of 3 free chunks in bin 7, {PLACE}."
    assert told() == f"{text} {SPLIT}"
    assert "nothing is free in bin 6; it took the one free chunk in bin 7, 0x" in told(
        first_bin=6, free_chunks=(0, 1)
    )


def test_bins_below_that_hold_too_little():
    assert "all 4 free chunks in bins 3 to 6 are too small;" in told(free_chunks=(4, 0, 0, 0, 3), too_small=4)
    assert "the one free chunk in bin 6 is too small;" in told(first_bin=6, free_chunks=(1, 3), too_small=1)


def test_the_first_bin_has_it():
    here = {"last_bin": 3, "taken": replace(TAKEN, bin=3)}
    assert told(**here, free_chunks=(12,), too_small=4) == (
        f"{FROM_BIN_3}: it took the best fit of 12 free chunks in that bin, {PLACE}, 4 of them too small. {SPLIT}"
    )
    assert told(**here, free_chunks=(1,)).startswith(
        f"{FROM_BIN_3}: it took the one free chunk in that bin, "
    )


def test_what_was_asked_for_is_told_where_it_was_rounded():
    assert told(requested=1900).startswith("Looked for 2.0 KiB (1.9 KiB, rounded up) from bin 3 up:")
    assert told(requested=2047).startswith("Looked for 2.0 KiB (1 B less, rounded up) from bin 3 up:")


def test_the_pool_grew():
    grown = {"last_bin": 20, "extended": 4 * MiB}
    assert told(**grown, free_chunks=(5, *[0] * 17), too_small=5) == (
        f"{FROM_BIN_3}: all 5 free chunks there are too small; the pool grew by 4.0 MiB; then it took {PLACE}, in "
        f"bin 7. {SPLIT}"
    )
    text = told(**grown, free_chunks=(0,) * 18, released=2)
    assert (
        "nothing is free there; 2 wholly free regions went back to the sub-allocator; the pool grew" in text
    )
    assert "; 1 wholly free region went back" in told(**grown, free_chunks=(0,) * 18, released=1)


def test_a_request_that_failed():
    failed = {"last_bin": 20, "taken": None, "free_chunks": (2, *[0] * 17), "too_small": 2}
    assert told(**failed) == f"{FROM_BIN_3}: all 2 free chunks there are too small; the pool did not grow."
    assert told(**failed, extended=MiB).endswith("; the pool grew by 1.0 MiB; still nothing fits.")


def test_chunks_passed_over():
    text = told(free_chunks=(3, 0, 0, 1, 3), too_small=2, passed_over=2)
    assert "none of the 4 free chunks in bins 3 to 6 was taken; it took" in text
    assert (
        "2 free chunks that fit were passed over: an alignment or a timestamp can rule them out. It was"
        in text
    )
    text = told(first_bin=6, free_chunks=(1, 3), passed_over=1)
    assert "the one free chunk in bin 6 was not taken;" in text
    assert "1 free chunk that fits was passed over: an alignment or a timestamp can rule it out." in text


@pytest.mark.parametrize(
    ("taken", "text"),
    [
        (
            replace(TAKEN, padding=512),
            f"512 B of alignment padding stay free before it. {SPLIT}",
        ),
        (replace(TAKEN, rest=0, split=False, cut=Cut.EXACT), "Nothing is left over to split off."),
        (
            replace(TAKEN, rest=130 * MiB, cut=Cut.WASTE),
            "It was split: the 130.0 MiB left over reach the limit for waste, 128.0 MiB.",
        ),
        (
            replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE),
            "It was not split: the 1.0 KiB left over are less than the request and the limit for waste, 128.0 MiB.",
        ),
        (
            replace(TAKEN, rest=1024, cut=Cut.NOT_SHOWN),
            "It was split, with 1.0 KiB left over; the events do not show why.",
        ),
        (
            replace(TAKEN, rest=1024, split=False, cut=Cut.NOT_SHOWN),
            "It was not split, with 1.0 KiB left over; the events do not show why.",
        ),
    ],
)
def test_why_it_was_split_or_not(taken, text):
    assert told(taken=taken).endswith(f". {text}")


def test_a_limit_that_is_not_known_is_not_told():
    taken = replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE)
    assert told(taken=taken, max_waste=None).endswith("the 1.0 KiB left over are less than the request.")
