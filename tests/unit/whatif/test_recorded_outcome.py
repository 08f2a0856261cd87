"""The state after a request, and where each block lies."""

import numpy as np
import pytest
from unit.whatif.labelled_streams import MiB, stream_of

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.events.schema import Kind
from bfcviz.whatif.outcome import FreeMemory, RecordedOutcome
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
    return RecordedOutcome(policy_of(name).serve(stream_of(requests), limit, record=True))


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
        RecordedOutcome(policy_of("first_fit").serve(stream_of(REQUESTS)))


def test_nothing_free_is_not_scattered():
    assert FreeMemory(0, 0).scattered_share == 0
    assert FreeMemory(100, 25).scattered_share == 0.75
