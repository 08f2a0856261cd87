from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from bench.policy_speed import training_like
from shared import needs_shared, sample_file, sample_trace, snapshot_trace
from unit.whatif.golden import Golden, golden_files, shared_files
from unit.whatif.streams import MiB, holes, numbered_stream, stream_of

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import Kind
from bfcviz.formats.tensorflow import VERSIONS
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.own_rules import (
    AS_RECORDED,
    GROWING_BFC,
    OWN_RULES,
    USUAL,
    own_or_bfc_rules,
    own_policy,
    own_rules,
    usual_policies,
)
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.policy_table import (
    MEANINGS,
    POLICIES,
    XLA_MEANINGS,
    meaning_of,
    other_than_default,
    policy_key,
    policy_of,
    policy_text,
)
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream, requests_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import searchable
from bfcviz.whatif.smallest_limit import smallest_limit


def test_a_text_names_a_policy_and_its_options():
    policy = policy_of("bfc:allow_growth=true,fragmentation_fraction=0.25,capacity=1GiB")
    assert policy.name == "bfc"
    assert policy.options == {"allow_growth": True, "fragmentation_fraction": 0.25, "capacity": 1 << 30}
    assert policy_of("first_fit", granule=512).options == {"granule": 512}
    assert policy_of(policy) is policy
    assert policy_of("torch:max_split_size=none").options == {"max_split_size": None}


@pytest.mark.parametrize(
    "text",
    [
        "worst_fit",
        "bfc:growth=true",
        "bfc:allow_growth=perhaps",
        "first_fit:granule=much",
        "first_fit:granule=0",
        "bfc:fragmentation_fraction=nan",
        "torch:roundup_power2_divisions=[1:3]",
        "torch:max_split_size=[1:4]",
    ],
)
def test_what_is_wrong_is_named(text):
    with pytest.raises(InvalidRequest) as caught:
        policy_of(text)
    assert text.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_serves_the_options_of_the_table(name):
    entry = POLICIES[name]
    given = {key: value for key, value in entry.options.items() if value is not None}
    assert policy_of(name, **given).options == given


@pytest.mark.parametrize(
    "text",
    [
        "first_fit:granule=1MiB",
        "bfc",
        "bfc:allow_growth=true,fragmentation_fraction=0.25,capacity=3GiB",
        "torch:max_split_size=20971521,roundup_power2_divisions=16",
        "torch:roundup_power2_divisions=[256:1,512:2,>:8],expandable_segments=true",
    ],
)
def test_a_policy_is_written_as_it_is_read(text):
    policy = policy_of(text)
    assert policy_text(policy.name, policy.options) == text


class Nameless:
    options: ClassVar = {}

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        raise NotImplementedError


class WithoutOptions(Nameless):
    name, options = "mine", None


class CannotServe(Nameless):
    name, serve = "mine", None


@pytest.mark.parametrize(
    ("given", "missing"),
    [(Nameless(), "name"), (WithoutOptions(), "options"), (CannotServe(), "serve"), (3, "name")],
)
def test_an_object_that_is_no_policy_is_refused_by_what_it_lacks(given, missing):
    with pytest.raises(InvalidRequest, match=f"is no policy.*{missing}"):
        policy_of(given)
    with pytest.raises(InvalidRequest, match=f"is no policy.*{missing}"):
        policy_key(given)


def test_one_policy_has_one_key():
    text = "bfc:allow_growth=true,capacity=4KiB"
    assert policy_key(text) == policy_key("bfc:capacity=4096,allow_growth=true") == text
    assert policy_key(policy_of("bfc", allow_growth=True, capacity=4096)) == text
    assert policy_key("first_fit") == "first_fit"
    assert policy_key("bfc:version=1.0") == "bfc:version=1.0"


def test_defaults_are_left_out_where_they_are_those_of_the_table():
    given = {"expandable_segments": False, "max_split_size": None, "roundup_power2_divisions": 4}
    assert other_than_default("torch", given) == {"roundup_power2_divisions": 4}
    versioned = {"version": "1.10", "allow_growth": False}
    assert other_than_default("bfc", versioned) == versioned


@pytest.mark.parametrize(
    ("text", "nearest"), [("torch:max_split_size_mb=64", "'max_split_size'?"), ("torhc", "'torch'?")]
)
def test_a_wrong_name_has_a_hint_at_the_nearest(text, nearest):
    with pytest.raises(InvalidRequest) as caught:
        policy_of(text)
    assert nearest in str(caught.value)


# ------------------------------------------------------------------------------
# Each option of each policy is explained, with the values that it takes.


@pytest.mark.parametrize("name", POLICIES)
def test_each_option_has_a_meaning(name):
    assert all(meaning_of(name, option) for option in POLICIES[name].options)


def test_no_meaning_is_of_an_option_that_is_gone():
    options = {option for entry in POLICIES.values() for option in entry.options}
    assert {*MEANINGS, *XLA_MEANINGS} <= options


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("regions", ["simulated", "recorded", "exact"]),
        ("mode", ["gapped", "contiguous", "descending"]),
        ("version", list(VERSIONS)),
    ],
)
def test_the_words_that_an_option_takes_are_named(option, values):
    for value in values:
        assert value in meaning_of("bfc", option)
        assert policy_of("bfc", **{option: value}).options == {option: value}


# ------------------------------------------------------------------------------
# What is known of caching allocators holds in real histories, and in the bundled samples.


SNAPSHOTS = {
    "code_location": ("torch_code_location_2.6M", (0, 1, 2)),
    "octree": ("torch_octree_nca_67k", (0,)),
    "cs336": ("torch_cs336_ctx128_fullstep", (0,)),
}
DEVICES = [(name, device) for name, (_, devices) in SNAPSHOTS.items() for device in devices]


@cache
def recorded(name, device):
    return requests_of(snapshot_trace(SNAPSHOTS[name][0]), device)


@cache
def sampled(name):
    return requests_of(sample_trace(name))


def peak(stream, policy):
    return policy_of(policy).serve(stream).peak_reserved


@needs_shared
@pytest.mark.parametrize(("name", "device"), DEVICES)
def test_expandable_segments_reserve_less_in_histories(name, device):
    stream = recorded(name, device)
    assert stream.live_bytes.max() <= peak(stream, "torch:expandable_segments=true") < peak(stream, "torch")


def test_expandable_segments_reserve_less_in_samples():
    assert peak(sampled("conv"), "torch:expandable_segments=true") < peak(sampled("conv"), "torch")
    for name in ("lstm", "transformer"):
        assert peak(sampled(name), "torch:expandable_segments=true") <= peak(sampled(name), "torch")


@needs_shared
@pytest.mark.parametrize(("name", "device"), [("code_location", 0), ("cs336", 0)])
def test_exact_sizes_lose_in_histories_of_many_sizes(name, device):
    stream = recorded(name, device)
    assert peak(stream, "exact_size") > peak(stream, "torch")
    assert peak(stream, "exact_size") > peak(stream, "cupy")


def test_exact_sizes_lose_on_lengths_that_vary():
    for stream in (training_like(20_000), sampled("conv"), sampled("transformer")):
        most = peak(stream, "exact_size")
        assert most > 1.5 * peak(stream, "cupy")
        assert most > 1.5 * peak(stream, "torch")


@needs_shared
@pytest.mark.parametrize(("device", "share"), [(0, 1.02), (1, 1.01), (2, 1.01)])
def test_a_borderline_job_runs_with_a_max_split_size(device, share):
    """As PyTorch's notes on CUDA say of `max_split_size_mb`."""
    stream = recorded("code_location", device)
    limit = int(stream.live_bytes.max() * share)
    assert not policy_of("torch").serve(stream, limit).fits
    assert policy_of("torch:max_split_size=20MiB").serve(stream, limit).fits


@needs_shared
@pytest.mark.parametrize(("name", "device"), [("code_location", 0), ("cs336", 0)])
def test_with_a_max_split_size_and_no_limit_more_is_reserved(name, device):
    stream = recorded(name, device)
    assert peak(stream, "torch:max_split_size=20MiB") > peak(stream, "torch")


def test_with_a_max_split_size_and_no_limit_more_is_reserved_in_a_sample():
    stream = sampled("conv")
    assert peak(stream, "torch:max_split_size=20MiB") > peak(stream, "torch")


# ------------------------------------------------------------------------------
# The settings of a trace's own heap serve its requests as the trace has them.


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


# ------------------------------------------------------------------------------
# Which rules are served by if none is named.


def torch_stream(**settings):
    return RequestStream(np.zeros(0, STREAM_ROW), Labels(), "snapshot", options=settings, family="torch")


@pytest.fixture(scope="module")
def requests():
    return requests_of(sample_trace("lstm"))


def test_the_recorded_heap_is_the_first_row_under_its_own_limit(requests):
    for limit in (None, requests.limit):
        own, *others = usual_policies(requests, limit)
        assert (own.role, own.limit) == (AS_RECORDED, requests.limit)
        assert tuple(others) == USUAL
    outcome = own.policy.serve(requests, own.limit)
    granted = requests.regions["size"]
    assert outcome.fits
    assert outcome.peak_reserved == granted.sum()  # of this run no region was released


def test_another_limit_has_the_same_rules_with_a_simulated_driver(requests):
    own, *others = usual_policies(requests, 8 * MiB)
    assert (own.role, own.limit, own.text) == (OWN_RULES, 8 * MiB, GROWING_BFC)
    assert tuple(others) == tuple(name for name in USUAL if name != GROWING_BFC)
    assert own.policy.serve(requests, 8 * MiB).peak_reserved <= 8 * MiB


def test_what_the_file_says_of_garbage_collection_wins():
    rows = numbered_stream([(ALLOCATE, 0, MiB)]).rows
    for told, expected in (({}, True), ({"garbage_collection": False}, False)):
        stream = RequestStream(rows, Labels(), options={"allow_growth": True, **told})
        own = own_rules(stream, 4 * MiB)
        assert own.policy.options.get("garbage_collection", False) is expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "torch"),
        ({"expandable_segments": True, "max_split_size": -1}, "torch:expandable_segments=true"),
        ({"expandable_segments": False, "max_split_size": 64 * MiB}, "torch:max_split_size=64MiB"),
        ({"max_split_size": (1 << 63) - 1, "garbage_collection_threshold": 0.0}, "torch"),
        ({"garbage_collection_threshold": 0.8}, "torch:garbage_collection_threshold=0.8"),
        ({"roundup_power2_divisions": {"1": 4, "2": 4}}, "torch:roundup_power2_divisions=4"),
        ({"roundup_power2_divisions": {"1": 4, "2": 8}}, "torch:roundup_power2_divisions=[1:4,>:8]"),
        (
            {"roundup_power2_divisions": {"1": 0, "2": 4, "4": 8, "8": 8}, "max_split_size": 64 * MiB},
            "torch:max_split_size=64MiB,roundup_power2_divisions=[1:1,2:4,>:8]",
        ),
        ({"max_split_size": 1, "expandable_segments": "yes", "roundup_power2_divisions": -4}, "torch"),
    ],
)
def test_pytorch_has_the_options_of_its_snapshot(settings, text):
    own = own_rules(torch_stream(**settings), None)
    assert (own.text, own.role) == (text, OWN_RULES)
    assert policy_of(own.text).options == own.policy.options


def test_rules_that_are_not_known_are_none():
    plain = numbered_stream([(ALLOCATE, 0, MiB)])
    assert own_rules(plain, None) is None
    assert usual_policies(plain, None) == USUAL
    assert own_or_bfc_rules(plain).text == "bfc"
    strange = RequestStream(plain.rows, plain.labels, options={"allow_growth": "perhaps"})
    assert own_rules(strange, None) is None


def test_a_limit_is_searched_with_a_simulated_driver(requests):
    assert own_or_bfc_rules(requests).text == GROWING_BFC
    assert own_or_bfc_rules(torch_stream(expandable_segments=True)).text == "torch:expandable_segments=true"


def test_a_heap_whose_beginning_is_missing_is_simulated(requests):
    rows = requests.rows.copy()
    rows["event"][0] = -1
    late = RequestStream(
        rows, requests.labels, limit=requests.limit, options=requests.options, regions=requests.regions
    )
    assert own_rules(late, requests.limit).role == OWN_RULES


def test_a_path_a_trace_and_a_stream_give_the_same():
    path = sample_file("lstm")
    trace = bfcviz.open(path)
    found = [replay(source, "bfc:allow_growth=true", "12MiB") for source in (path, trace, stream_from(trace))]
    assert {(each.fits, each.peak_reserved, each.limit) for each in found} == {
        (True, found[0].peak_reserved, 12 * MiB)
    }


def test_options_limits_and_records_are_passed_on():
    outcome = replay(holes(), "first_fit", 5 * MiB, granule="1MiB", record=True)
    assert outcome.options == {"granule": MiB}
    assert outcome.failures.tolist() == [3]
    assert replay(outcome.trace, "first_fit", "6MiB", granule=MiB).fits


@pytest.mark.parametrize("pool", [-1, 1])
def test_a_heap_that_is_not_there_is_refused(pool):
    with pytest.raises(InvalidRequest, match=str(pool)):
        replay(sample_trace("lstm"), "bfc", "1GiB", pool=pool)


def test_the_free_of_a_request_that_failed_in_the_trace_does_not_count():
    stream = stream_of(("a", 3), ("a", 4), -1)
    assert searchable(stream) is stream
    stream.rows["event"][2] = stream.rows["event"][1]
    with pytest.raises(InvalidRequest, match="2 allocations"):
        searchable(stream)


@pytest.mark.parametrize(
    ("stream", "number"), [(stream_of(), "no allocation"), (stream_of(("a", 3), ("a", 4)), "7.0 MiB")]
)
def test_a_stream_without_allocations_or_frees_is_not_searched(stream, number):
    with pytest.raises(InvalidRequest, match=number):
        searchable(stream)


@pytest.mark.parametrize("limit", ["much", 0, -1, 1.5, [1]])
def test_a_wrong_limit_is_refused_by_name(limit):
    with pytest.raises(InvalidRequest, match="limit="):
        replay(holes(), "first_fit", limit)
    with pytest.raises(InvalidRequest, match="at_most="):
        smallest_limit(holes(), "first_fit", at_most=limit)
    with pytest.raises(InvalidRequest, match="granule="):
        smallest_limit(holes(), "first_fit", granule=limit)
