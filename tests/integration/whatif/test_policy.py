"""Every policy on the same streams: what any allocator must do."""

import numpy as np
import pytest
from hypothesis import given, settings
from shared import sample_trace
from unit.whatif.streams import LIMIT, MiB, numbered_stream, streams

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.events.schema import Kind
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, requests_of

CHOICES = [
    *POLICIES,
    "torch:expandable_segments=true",
    "torch:max_split_size=20MiB,garbage_collection_threshold=0.5,roundup_power2_divisions=4",
    "stream_ordered:release_threshold=2MiB,reuse_across_streams=false,segment=2MiB",
]


def assert_outcome_is_possible(outcome):
    """No two blocks in use overlap, sums are right, and the limit holds."""
    live, rows = {}, outcome.stream.rows[: outcome.served]
    in_use = 0
    for at, (row, address, size) in enumerate(
        zip(rows, outcome.address.tolist(), outcome.size.tolist(), strict=True)
    ):
        if row["kind"] == ALLOCATE and address:
            assert size >= row["size"]
            assert all(address + size <= low or high <= address for low, high in live.values())
            live[int(row["block"])] = (address, address + size)
            in_use += size
        elif row["kind"] == FREE:
            low, high = live.pop(int(row["block"]), (0, 0))
            assert (address, size) == (low, high - low)
            in_use -= size
        assert outcome.in_use[at] == in_use
        assert in_use <= outcome.reserved[at]
        assert outcome.limit is None or outcome.reserved[at] <= outcome.limit
    assert (outcome.requested <= outcome.in_use.astype(np.int64)).all()


@pytest.mark.parametrize("name", CHOICES)
@given(stream=streams())
def test_blocks_never_overlap_and_the_limit_holds(name, stream):
    outcome = policy_of(name).serve(stream, LIMIT)
    assert_outcome_is_possible(outcome)
    assert outcome.fits == (not len(outcome.failures))


@pytest.mark.parametrize("name", CHOICES)
@settings(max_examples=15, deadline=None)
@given(stream=streams())
def test_a_recorded_outcome_is_the_same_and_its_trace_agrees(name, stream):
    plain, recorded = policy_of(name).serve(stream, LIMIT), policy_of(name).serve(stream, LIMIT, record=True)
    for column in ("address", "size", "in_use", "reserved"):
        assert (getattr(plain, column) == getattr(recorded, column)).all()
    trace = recorded.trace
    events = trace.read(0, len(trace))
    assert (events["kind"] == Kind.OOM).sum() == len(plain.failures)
    if len(trace):
        model = bfcviz.Model(trace)
        model.seek(len(trace))
        stats = model.stats()
        assert stats.bytes_in_use == plain.in_use[-1]
        assert stats.pool_bytes == plain.reserved[-1]


@pytest.mark.parametrize("name", POLICIES)
def test_it_stops_at_the_first_failure_if_asked(name):
    requests = [(ALLOCATE, 0, MiB), (ALLOCATE, 1, 2 * LIMIT), (FREE, 0, 0), (ALLOCATE, 2, MiB)]
    policy = policy_of(name)
    for record in (False, True):
        whole = policy.serve(numbered_stream(requests), LIMIT, record=record)
        assert whole.failures.tolist() == [1]
        assert (whole.served, whole.fits) == (4, False)
        stopped = policy.serve(numbered_stream(requests), LIMIT, record=record, stop_at_failure=True)
        assert stopped.failures.tolist() == [1]
        assert (stopped.served, stopped.fits) == (2, False)
        if record:
            assert stopped.trace.read(0, len(stopped.trace))["kind"][-1] == Kind.OOM


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("limit", [0, -1, 1 << 63])
def test_an_impossible_limit_is_refused(name, limit):
    with pytest.raises(InvalidRequest, match=str(limit)):
        policy_of(name).serve(numbered_stream([(ALLOCATE, 0, 1)]), limit)


@pytest.mark.parametrize("name", POLICIES)
def test_the_samples_are_served_within_the_limit_that_they_had(name):
    stream = requests_of(sample_trace("lstm"))
    outcome = policy_of(name).serve(stream, stream.limit)
    assert outcome.fits
    assert outcome.peak_in_use >= stream.live_bytes.max()
    assert 0 <= outcome.internal_fragmentation < 1
    assert 0 <= outcome.reserved_not_in_use < 1


@pytest.mark.parametrize(
    "text", ["bfc:allow_growth=true,fragmentation_fraction=0.5", "torch", "xla:fragmentation_fraction=0.5"]
)
def test_a_saved_outcome_opens_again_with_its_options(text, tmp_path):
    policy = policy_of(text)
    outcome = policy.serve(numbered_stream([(ALLOCATE, 0, MiB), (FREE, 0, 0)]), LIMIT, record=True)
    outcome.trace.save(tmp_path / "a.parquet")
    again = bfcviz.open(tmp_path / "a.parquet")
    assert len(again) == len(outcome.trace)
    assert policy.options.items() <= again.origin.pools[0].options.items()
