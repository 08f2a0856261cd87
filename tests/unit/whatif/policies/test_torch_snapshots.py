"""The policy `torch` decides as PyTorch did, in the histories of real snapshots."""

from functools import cache

import pytest
from bench import torch_policy
from shared import SHARED, needs_shared

FOLDER = SHARED / "real" / "snapshots"

pytestmark = needs_shared


@cache
def compared(name):
    return torch_policy.compared(FOLDER / f"{name}.pickle")


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        (
            "torch_code_location_2.6M",
            [2434, 199, 392],
        ),  # expandable segments; the second one runs out of memory
        ("torch_octree_nca_67k", [77]),
        ("torch_cs336_ctx128_fullstep", [6770]),
    ],
)
def test_reserved_memory_is_the_same_after_every_request(name, devices):
    found = compared(name)
    assert [device.blocks for device in found] == devices
    for device in found:
        assert (device.worst, device.our_peak) == (0, device.real_peak)
        assert device.same_failures


@pytest.mark.parametrize("name", ["torch_code_location_2.6M", "torch_octree_nca_67k"])
def test_every_block_lies_where_pytorch_put_it(name):
    for device in compared(name):
        assert device.same_size == device.same_segment == device.same_place == device.blocks > 0


def test_where_the_driver_chose_addresses_nearly_every_block_lies_in_a_segment_of_the_same_kind():
    (device,) = compared("torch_cs336_ctx128_fullstep")
    assert device.before > 0  # their segments are not known as they were made
    assert device.same_size > 0.999 * device.blocks
    assert device.same_segment > 0.998 * device.blocks


def test_without_a_history_blocks_in_use_need_at_most_what_was_reserved():
    (kept,) = compared("torch_oom_snapshot_llminf")
    assert kept.our_peak == kept.real_peak
    (cached,) = compared("torch_select_n_10k")
    assert 0 < cached.our_peak < cached.real_peak
    assert cached.blocks == 0
