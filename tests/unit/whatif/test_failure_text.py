"""The first failure of a policy as a sentence."""

import pytest
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.events.origin import BEGIN_MARKS, HISTORY_BEGINS
from bfcviz.whatif.comparison import MOST_COUNT, compare, failure_text
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK

REQUESTS = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


def said(policy, *marks, **changed):
    requests = [(MARK, 0, value) for value in marks] + REQUESTS
    (row,) = compare(stream_of(requests), [policy], 10 * MiB, bounds=False).to_arrow().to_pylist()
    return failure_text(row | changed)


def test_free_memory_in_the_pool_and_below_the_limit_are_both_said():
    grown = said("first_fit:granule=4MiB")
    for size in (
        "5.0 MiB asked",
        "free in the pool: 5.0 MiB",
        "3.0 MiB in one chunk",
        "2.0 MiB, 3.0 MiB too",
    ):
        assert size in grown
    assert "whole limit" in said("bfc")


@pytest.mark.parametrize("value", [97, MOST_COUNT - 1])
def test_a_mark_has_its_value_if_it_is_a_count(value):
    assert f"(step {value:,})" in said("bfc", 1, value)
    assert "mark 2 " in said("bfc", 1, value)


@pytest.mark.parametrize("value", [0, MOST_COUNT, 18_204_234_100_953_455_943 - (1 << 64)])
def test_a_number_that_is_no_count_is_not_shown(value):
    assert "(step)" in said("bfc", value)


@pytest.mark.parametrize("value", [None, -1e300, 1e300])
def test_a_measured_value_that_is_no_count_is_not_shown(value):
    assert "(step)" in said("bfc", 1, failed_after_mark_value=value)


@pytest.mark.parametrize("name", BEGIN_MARKS)
def test_the_mark_where_a_history_begins_is_no_moment_of_the_job(name):
    assert name not in said("bfc", 1, failed_after_mark=name)
    assert HISTORY_BEGINS in BEGIN_MARKS


def test_a_trace_that_failed_fails_again_as_recorded():
    assert "as in the trace" in said("bfc", role="as recorded")
