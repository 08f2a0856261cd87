"""The state after a request, and where each block lies."""

import numpy as np
import pytest
from unit.whatif.streams import MiB, numbered_stream

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.events.origin import BEGIN_MARKS, HISTORY_BEGINS
from bfcviz.events.schema import Kind
from bfcviz.policy_comparison import MOST_COUNT, compare, failure_text
from bfcviz.whatif.outcome import FreeMemory, RecordedOutcome, first_difference
from bfcviz.whatif.policy_table import BOUNDS, POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK

ALLOCATORS = [
    *(name for name in POLICIES if name not in BOUNDS),
    "bfc:allow_growth=true",
    "torch:expandable_segments=true",
]

REQUESTS = [
    (ALLOCATE, 0, 3 * MiB),
    (ALLOCATE, 1, 0),
    (ALLOCATE, 2, 5 * MiB),
    (MARK, 0, 1),
    (FREE, 0, 0),
    (ALLOCATE, 3, 200),
    (FREE, 1, 0),
    (ALLOCATE, 4, 30 * MiB),
    (FREE, 2, 0),
    (FREE, 3, 0),
]


def recorded(name, limit=None, requests=REQUESTS):
    return RecordedOutcome(policy_of(name).serve(numbered_stream(requests), limit, record=True))


@pytest.mark.parametrize("name", ALLOCATORS)
def test_the_state_after_each_request_has_the_bytes_of_the_outcome(name):
    found = recorded(name, 40 * MiB)
    model = bfcviz.Model(found.trace)
    for request in range(found.outcome.served):
        model.seek(found.step_after(request))
        stats = model.stats()
        assert stats.bytes_in_use == found.outcome.in_use[request]
        assert stats.pool_bytes == found.outcome.reserved[request]
        free = found.free_memory(request)
        assert free.total == stats.pool_bytes - stats.bytes_in_use
        # Free neighbours that are no buddies are one chunk of the trace, and two of the pool.
        assert free.largest == stats.largest_free_chunk or (
            name == "buddy" and free.largest < stats.largest_free_chunk
        )


def test_segments_that_the_next_request_returns_are_still_there_after_a_request():
    blocks = [(ALLOCATE, 0, 30), (ALLOCATE, 1, 12), (ALLOCATE, 2, 12), (FREE, 1, 0), (FREE, 2, 0)]
    blocks += [(ALLOCATE, 3, 40), (ALLOCATE, 4, 60)]
    found = recorded("torch", 100 * MiB, [(kind, block, size * MiB) for kind, block, size in blocks])
    assert found.outcome.failures.tolist() == [6]
    assert found.free_memory(5) == FreeMemory(24 * MiB, 12 * MiB)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_blocks_have_a_region_and_an_offset_in_it(name):
    found = recorded(name, 64 * MiB)
    placed = found.outcome.address != 0
    assert (found.regions[~placed] == -1).all()
    assert (found.offsets[~placed] == -1).all()
    assert (found.regions[placed] >= 0).all()
    base = found.outcome.address[placed].astype(np.int64) - found.offsets[placed]
    assert len({*zip(found.regions[placed].tolist(), base.tolist(), strict=True)}) == len({*base.tolist()})


# [0, 40) and [40, 100) are mapped; one free block of 40 MiB; then a failure unmaps parts of it.
UNMAPPED_LATER = [
    *((ALLOCATE, 0, 40 * MiB), (ALLOCATE, 1, 60 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 10 * MiB)),
    *((ALLOCATE, 3, 100 * MiB), (ALLOCATE, 4, 25 * MiB)),
]


@pytest.mark.parametrize("length", range(4, len(UNMAPPED_LATER) + 1))
def test_the_measures_of_a_moment_do_not_depend_on_what_is_unmapped_later(length):
    found = recorded("torch:expandable_segments=true", 100 * MiB, UNMAPPED_LATER[:length])
    assert found.free_memory(2) == FreeMemory(40 * MiB, 40 * MiB)
    assert found.free_memory(3) == FreeMemory(30 * MiB, 30 * MiB)
    assert found.regions[:4].tolist() == [0, 0, 0, 0]
    assert found.offsets[:4].tolist() == [0, 40 * MiB, 0, 0]


@pytest.mark.parametrize("name", ALLOCATORS)
def test_extends_and_releases_are_calls_to_the_driver(name):
    found = recorded(name, 100 * MiB, UNMAPPED_LATER)
    assert found.counts["extend"] == found.outcome.driver_calls.grants
    assert found.counts["release"] == found.outcome.driver_calls.releases
    if name != "torch:expandable_segments=true":  # its driver takes back parts of what it granted
        kinds = found.trace.read(0, len(found.trace))["kind"]
        assert found.counts["extend"] == (kinds == Kind.EXTEND).sum()
        assert found.counts["release"] == (kinds == Kind.RELEASE).sum()


def test_events_are_counted_by_kind():
    counts = recorded("first_fit").counts
    assert (counts["allocate"], counts["free"], counts["mark"], counts["oom"]) == (4, 3, 1, 0)


def test_an_outcome_without_a_trace_is_refused():
    with pytest.raises(InvalidRequest, match="record=True"):
        RecordedOutcome(policy_of("first_fit").serve(numbered_stream(REQUESTS)))


def test_nothing_free_is_not_scattered():
    assert FreeMemory(0, 0).scattered_share == 0
    assert FreeMemory(100, 25).scattered_share == 0.75


# ------------------------------------------------------------------------------
# The first request that two policies place differently.


# Best fit takes the hole of block 4 (2 MiB), first fit the larger one of block 0 below it.
TWO_HOLES = [
    (ALLOCATE, 0, 6 * MiB),
    (ALLOCATE, 1, MiB),
    (ALLOCATE, 2, 2 * MiB),
    (ALLOCATE, 3, MiB),
    (FREE, 0, 0),
    (FREE, 2, 0),
    (ALLOCATE, 4, 2 * MiB),
    (FREE, 4, 0),
]
LIMIT = 64 * MiB


def served(stream, name, limit=LIMIT):
    return RecordedOutcome(policy_of(name).serve(stream, limit, record=True))


def test_best_fit_and_first_fit_choose_different_holes():
    stream = numbered_stream(TWO_HOLES)
    found = first_difference(served(stream, "bfc"), served(stream, "first_fit"), ("best", "first"))
    assert (found.request, found.size, found.label, found.event) == (6, 2 * MiB, "block 4", 6)
    best, first = found.places
    assert (best.region, best.offset, best.below) == (0, 7 * MiB, 1)
    assert (first.region, first.offset, first.below) == (0, 0, -1)
    assert found.neighbours == ("1.0 MiB for block 1", "")
    for word in ("block 4", "2.0 MiB", "best", "first", "block 1"):
        assert word in str(found)


def test_the_same_rules_have_no_difference():
    stream = numbered_stream(TWO_HOLES)
    assert first_difference(served(stream, "bfc"), served(stream, "bfc")) is None


def test_other_sizes_of_blocks_are_no_difference():
    stream = numbered_stream([(ALLOCATE, 0, 300), (ALLOCATE, 1, 300), (ALLOCATE, 2, 300)])
    torch = served(stream, "torch")
    bfc = served(stream, "bfc")
    assert (torch.offsets != bfc.offsets).any() or (torch.outcome.size == bfc.outcome.size).all()
    assert first_difference(bfc, torch) is None


def test_a_request_that_only_one_serves_is_a_difference():
    stream = numbered_stream([(ALLOCATE, 0, 5 * MiB), (FREE, 0, 0), (ALLOCATE, 1, 6 * MiB)])
    found = first_difference(served(stream, "bfc"), served(stream, "exact_size"))
    limited = first_difference(served(stream, "bfc", 6 * MiB), served(stream, "bfc", 5 * MiB))
    assert found is None or found.request == 2
    assert (limited.request, limited.places[1].region) == (2, -1)
    assert "fails" in str(limited)


def test_a_new_region_is_a_difference():
    stream = numbered_stream([(ALLOCATE, 0, 2 * MiB), (ALLOCATE, 1, 30 * MiB)])
    found = first_difference(
        served(stream, "bfc", 64 * MiB), served(stream, "bfc:allow_growth=true", 64 * MiB)
    )
    assert found.request == 1
    assert found.places[1].granted > 0
    assert found.places[1].below == -1


def test_regions_that_differ_only_by_what_is_unmapped_later_are_no_difference():
    blocks = [(ALLOCATE, 0, 40), (ALLOCATE, 1, 60), (FREE, 0, 0), (ALLOCATE, 2, 10)]
    stream = numbered_stream(
        [(kind, block, size * MiB) for kind, block, size in [*blocks, (ALLOCATE, 3, 120)]]
    )
    unmaps, whole = (served(stream, "torch:expandable_segments=true", limit * MiB) for limit in (130, 400))
    assert unmaps.outcome.driver_calls.releases == 1
    found = first_difference(unmaps, whole)
    assert (found.request, [place.region for place in found.places]) == (4, [-1, 0])


def test_the_other_end_of_an_empty_region_is_a_difference():
    stream = numbered_stream([(ALLOCATE, 0, MiB), (ALLOCATE, 1, 2 * MiB)])
    found = first_difference(
        served(stream, "xla"), served(stream, "xla:collective_from=1,collective_alignment=256")
    )
    assert found.request == 0
    assert [place.offset for place in found.places] == [0, LIMIT - MiB]


def test_another_offset_above_blocks_of_other_sizes_is_no_difference():
    stream = numbered_stream([(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 2 * MiB)])
    buddy, fitted = served(stream, "buddy"), served(stream, "first_fit")
    assert [recorded.offsets[1] for recorded in (buddy, fitted)] == [4 * MiB, 3 * MiB]
    assert first_difference(buddy, fitted) is None


def test_outcomes_of_different_streams_are_refused():
    with pytest.raises(InvalidRequest, match="different streams"):
        first_difference(served(numbered_stream(TWO_HOLES), "bfc"), served(numbered_stream(TWO_HOLES), "bfc"))


# ------------------------------------------------------------------------------
# The first failure of a policy as a sentence.


FAILING = [(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 3 * MiB), (FREE, 0, 0), (ALLOCATE, 2, 5 * MiB)]


def said(policy, *marks, **changed):
    requests = [(MARK, 0, value) for value in marks] + FAILING
    (row,) = compare(numbered_stream(requests), [policy], 10 * MiB, bounds=False).to_arrow().to_pylist()
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
