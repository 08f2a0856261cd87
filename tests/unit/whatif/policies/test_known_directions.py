"""What is known of caching allocators holds in real histories, and in the bundled samples."""

from functools import cache

import pytest
from bench.policy_speed import training_like
from shared import needs_shared, sample_trace, snapshot_trace

from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import requests_of

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
