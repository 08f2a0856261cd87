"""The settings of a trace's own heap serve its requests as the trace has them."""

import numpy as np
import pytest
from shared import needs_shared, sample_trace
from unit.whatif.golden import Golden, golden_files, shared_files

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_table import own_policy, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream, requests_of

MiB = 1 << 20


def served_again(trace):
    stream = requests_of(trace)
    policy, limit = own_policy(stream)
    return policy.serve(stream, limit)


def assert_golden(path):
    golden = Golden.of(path)
    outcome = served_again(golden.recorded())
    events = outcome.stream.rows["event"]
    freed_at_once = np.concatenate(([False], events[1:] == events[:-1]))  # after a failure
    rows, operations = np.flatnonzero(~freed_at_once), golden.with_events()
    assert len(rows) == np.count_nonzero(operations)
    assert golden.differences(outcome, rows, operations) == 0
    before = np.cumsum(operations)
    rows_before = np.where(before > 0, rows[np.maximum(before - 1, 0)] + 1, 0)
    compared, wrong = golden.total_differences(outcome, rows_before)
    assert compared > 0
    assert wrong == 0


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_golden_traces_recorded_and_served_again(path):
    assert_golden(path)


@needs_shared
def test_all_golden_traces_recorded_and_served_again():
    files = shared_files()
    assert len(files) == 32
    for path in files:
        assert_golden(path)


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_tensorflow_profiles_have_no_difference(name):
    trace = sample_trace(name)
    outcome = served_again(trace)
    assert outcome.fits
    rows = outcome.stream.rows
    asked = np.isin(rows["kind"], (ALLOCATE, FREE))
    events = trace.read(0, len(trace))[rows["event"][asked]]
    assert np.isin(events["kind"], (Kind.ALLOCATE, Kind.FREE)).all()
    assert (outcome.address[asked] == events["address"]).all()
    assert (outcome.size[asked] == events["size"]).all()
    assert len(events) > 20_000


def test_the_regions_of_a_profile_decide_ties_of_equal_chunks():
    stream = requests_of(sample_trace("conv"))
    exact = own_policy(stream).policy.serve(stream, stream.limit)
    recorded = policy_of("bfc:allow_growth=true,regions=recorded").serve(stream, stream.limit)
    elsewhere = policy_of("bfc:allow_growth=true").serve(stream, stream.limit)
    assert (recorded.address == exact.address).all()
    assert (elsewhere.in_use == exact.in_use).mean() < 1 or (elsewhere.size != exact.size).any()


def test_a_heap_that_collects_and_fails_is_served_again_with_its_failures():
    memory = bfcviz.SimulatedSubAllocator("gapped", capacity="24MiB")
    options = bfcviz.AllocatorOptions(allow_growth=True, garbage_collection=True)
    heap = bfcviz.BFCAllocator(memory, "64MiB", options)
    first = [heap.allocate(size * MiB) for size in (2, 4, 8)]
    for address in first:
        heap.free(address)
    heap.allocate(20 * MiB)
    assert heap.try_allocate(8 * MiB) is None
    outcome = served_again(trace_of(heap))
    assert outcome.policy == "bfc"
    assert len(outcome.failures) == 1
    assert outcome.driver_calls.releases == 3
    trace = trace_of(heap)
    events = trace.read(0, len(trace))
    made = events[events["kind"] == Kind.ALLOCATE]
    rows = outcome.stream.rows
    kept = np.isin(rows["event"], made["seq"].astype(np.int64))
    assert outcome.address[kept].tolist() == made["address"].tolist()


def test_the_trace_of_an_outcome_has_its_settings():
    stream = requests_of(sample_trace("lstm"))
    first = policy_of("bfc:version=1.0,allow_growth=true").serve(stream, 64 * MiB, record=True)
    again = served_again(first.trace)
    assert (again.address == first.address).all()
    assert again.options["first_region"] == MiB


@pytest.mark.parametrize("name", ["oom_dump", "oom_log"])
def test_a_dump_of_one_moment_takes_its_regions_by_size(name):
    settings = own_policy(requests_of(sample_trace(name)))
    assert settings.policy.options["regions"] == "recorded"


def test_a_heap_of_another_allocator_is_refused():
    stream = RequestStream(np.zeros(0, STREAM_ROW), Labels(), "snapshot", options={"max_split_size": -1})
    with pytest.raises(InvalidRequest, match="max_split_size"):
        own_policy(stream)


def test_options_of_a_damaged_origin_are_left_out_or_named():
    rows = np.zeros(0, STREAM_ROW)
    odd = {"allow_growth": True, "fragmentation_fraction": [1], "first_region": 1.5}
    options = own_policy(RequestStream(rows, Labels(), options=odd)).policy.options
    assert "fragmentation_fraction" not in options
    assert "first_region" not in options
    with pytest.raises(InvalidRequest, match="perhaps"):
        own_policy(RequestStream(rows, Labels(), options={"allow_growth": "perhaps"}))
