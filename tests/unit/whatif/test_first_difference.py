"""The first request that two policies place differently."""

import pytest
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.outcome import RecordedOutcome, first_difference
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE

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
    stream = stream_of(TWO_HOLES)
    found = first_difference(served(stream, "bfc"), served(stream, "first_fit"), ("best", "first"))
    assert (found.request, found.size, found.label, found.event) == (6, 2 * MiB, "block 4", 6)
    best, first = found.places
    assert (best.region, best.offset, best.below) == (0, 7 * MiB, 1)
    assert (first.region, first.offset, first.below) == (0, 0, -1)
    assert found.neighbours == ("1.0 MiB for block 1", "")
    for word in ("block 4", "2.0 MiB", "best", "first", "block 1"):
        assert word in str(found)


def test_the_same_rules_have_no_difference():
    stream = stream_of(TWO_HOLES)
    assert first_difference(served(stream, "bfc"), served(stream, "bfc")) is None


def test_other_sizes_of_blocks_are_no_difference():
    stream = stream_of([(ALLOCATE, 0, 300), (ALLOCATE, 1, 300), (ALLOCATE, 2, 300)])
    torch = served(stream, "torch")
    bfc = served(stream, "bfc")
    assert (torch.offsets != bfc.offsets).any() or (torch.outcome.size == bfc.outcome.size).all()
    assert first_difference(bfc, torch) is None


def test_a_request_that_only_one_serves_is_a_difference():
    stream = stream_of([(ALLOCATE, 0, 5 * MiB), (FREE, 0, 0), (ALLOCATE, 1, 6 * MiB)])
    found = first_difference(served(stream, "bfc"), served(stream, "exact_size"))
    limited = first_difference(served(stream, "bfc", 6 * MiB), served(stream, "bfc", 5 * MiB))
    assert found is None or found.request == 2
    assert (limited.request, limited.places[1].region) == (2, -1)
    assert "fails" in str(limited)


def test_a_new_region_is_a_difference():
    stream = stream_of([(ALLOCATE, 0, 2 * MiB), (ALLOCATE, 1, 30 * MiB)])
    found = first_difference(
        served(stream, "bfc", 64 * MiB), served(stream, "bfc:allow_growth=true", 64 * MiB)
    )
    assert found.request == 1
    assert found.places[1].granted > 0
    assert found.places[1].below == -1


def test_regions_that_differ_only_by_what_is_unmapped_later_are_no_difference():
    blocks = [(ALLOCATE, 0, 40), (ALLOCATE, 1, 60), (FREE, 0, 0), (ALLOCATE, 2, 10)]
    stream = stream_of([(kind, block, size * MiB) for kind, block, size in [*blocks, (ALLOCATE, 3, 120)]])
    unmaps, whole = (served(stream, "torch:expandable_segments=true", limit * MiB) for limit in (130, 400))
    assert unmaps.outcome.driver_calls.releases == 1
    found = first_difference(unmaps, whole)
    assert (found.request, [place.region for place in found.places]) == (4, [-1, 0])


def test_the_other_end_of_an_empty_region_is_a_difference():
    stream = stream_of([(ALLOCATE, 0, MiB), (ALLOCATE, 1, 2 * MiB)])
    found = first_difference(
        served(stream, "xla"), served(stream, "xla:collective_from=1,collective_alignment=256")
    )
    assert found.request == 0
    assert [place.offset for place in found.places] == [0, LIMIT - MiB]


def test_another_offset_above_blocks_of_other_sizes_is_no_difference():
    stream = stream_of([(ALLOCATE, 0, 3 * MiB), (ALLOCATE, 1, 2 * MiB)])
    buddy, fitted = served(stream, "buddy"), served(stream, "first_fit")
    assert [recorded.offsets[1] for recorded in (buddy, fitted)] == [4 * MiB, 3 * MiB]
    assert first_difference(buddy, fitted) is None


def test_outcomes_of_different_streams_are_refused():
    with pytest.raises(InvalidRequest, match="different streams"):
        first_difference(served(stream_of(TWO_HOLES), "bfc"), served(stream_of(TWO_HOLES), "bfc"))
