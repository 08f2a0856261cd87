import random
from functools import cache

import pytest
from bench import torch_policy
from naive_expandable import NaiveExpandable
from shared import SHARED, needs_shared

from bfcviz.errors import InvalidRequest
from bfcviz.formats.torch import Rules
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.torch_caching import TorchCachingPool

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30


def pool_of(limit=64 * GiB, **options):
    return TorchCachingPool(DriverMemory(limit), **options)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (1, 2 * MiB),
        (MiB, 2 * MiB),
        (MiB + 1, 20 * MiB),
        (10 * MiB - 512, 20 * MiB),
        (10 * MiB, 10 * MiB),
        (10 * MiB + 1, 12 * MiB),
        (99 * MiB, 100 * MiB),
    ],
)
def test_the_size_decides_on_the_segment(size, segment):
    pool = pool_of()
    assert pool.allocate(size, 0)
    assert pool.driver.reserved == segment


def test_small_and_large_requests_and_streams_have_segments_of_their_own():
    pool = pool_of()
    small, large = pool.allocate(KiB, 0), pool.allocate(2 * MiB, 0)
    assert pool.allocate(KiB, 0) == small + KiB
    assert pool.allocate(2 * MiB, 0) == large + 2 * MiB
    assert pool.driver.reserved == 22 * MiB
    pool.allocate(KiB, 7)
    assert pool.driver.reserved == 24 * MiB
    pool.free(small)
    assert pool.allocate(KiB, 7) != small
    assert pool.allocate(KiB, 0) == small


def test_a_rest_of_up_to_1_mib_is_not_split_off_a_large_block():
    pool = pool_of()
    first = pool.allocate(19 * MiB, 0)
    pool.free(first)
    assert pool.allocate(19 * MiB, 0) == first
    assert (pool.driver.reserved, pool.block_size) == (20 * MiB, 20 * MiB)
    pool.free(first)
    assert pool.allocate(19 * MiB - 512, 0) == first
    assert pool.block_size == 19 * MiB - 512
    rest = pool.allocate(MiB + 512, 0)
    assert rest == first + 19 * MiB - 512


@pytest.mark.parametrize("divisions", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("size", [1, 511, 512, 513, 1200, 4095, 5000, 70_001, MiB + 1, 3 * MiB, 33 * MiB + 5])
def test_sizes_are_rounded_as_in_recorded_histories(size, divisions):
    pool = pool_of(roundup_power2_divisions=divisions)
    pool.allocate(256 * MiB, 0)
    pool.free(pool.allocate(size, 0))
    rounded = Rules(divisions=(divisions,)).round_up(size)
    small = rounded <= MiB
    assert pool.block_size == rounded or (not small and rounded < pool.block_size <= rounded + MiB)
    assert Rules(divisions=(divisions,)).block(size, 2 * MiB if small else 256 * MiB) == rounded


@pytest.mark.parametrize("size", [MiB + 1, 3 * MiB, 5 * MiB + 1, 33 * MiB + 5])
def test_divisions_may_depend_on_the_size(size):
    pool = pool_of(roundup_power2_divisions="[1:2,4:8,>:4]", expandable_segments=True)
    pool.allocate(size, 0)
    assert pool.block_size == Rules(divisions=(2, 1, 8, *[4] * 13)).round_up(size)


def test_all_cached_segments_are_returned_before_a_request_fails():
    pool = pool_of(100 * MiB)
    kept = [pool.allocate(20 * MiB, 0) for _ in range(4)]
    pool.allocate(KiB, 0)
    for address in kept[:3]:
        pool.free(address)
    assert pool.allocate(70 * MiB, 0)
    assert (pool.driver.releases, pool.driver.refusals) == (3, 1)
    assert pool.driver.reserved == 92 * MiB
    assert pool.allocate(30 * MiB, 0) == 0
    assert pool.allocate(KiB, 0)


def test_a_segment_with_a_block_in_use_is_not_returned():
    pool = pool_of(40 * MiB)
    first, second = pool.allocate(2 * MiB, 0), pool.allocate(15 * MiB, 0)
    third = pool.allocate(4 * MiB, 0)
    pool.free(first)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(20 * MiB, 0) == 0
    pool.free(third)
    assert pool.allocate(20 * MiB, 0)
    assert second


def test_oversize_blocks_are_neither_split_nor_given_to_much_smaller_requests():
    pool = pool_of(max_split_size=64 * MiB)
    large = pool.allocate(100 * MiB, 0)
    pool.free(large)
    assert pool.allocate(30 * MiB, 0) != large  # smaller than the limit: it gets a segment of its own
    assert pool.allocate(79 * MiB, 0) != large  # more than 20 MiB smaller
    assert pool.allocate(90 * MiB, 0) == large
    assert pool.block_size == 100 * MiB


def test_how_much_of_an_oversize_block_may_be_wasted_is_a_setting():
    pool = pool_of(max_split_size=64 * MiB, max_non_split_rounding=40 * MiB)
    large = pool.allocate(120 * MiB, 0)
    pool.free(large)
    assert pool.allocate(80 * MiB, 0) != large
    assert pool.allocate(81 * MiB, 0) == large
    with pytest.raises(InvalidRequest, match="max_non_split_rounding"):
        pool_of(max_non_split_rounding=19 * MiB)
    with pytest.raises(InvalidRequest, match="max_split_size"):
        pool_of(max_split_size=32 * MiB, large_segment_size=64 * MiB)


@pytest.mark.parametrize(
    ("segment", "rounding", "most"), [(20, None, 19), (64, None, 63), (12, None, 11), (12, 30, 29)]
)
def test_what_may_be_left_of_an_oversize_block_follows_the_size_of_large_segments(segment, rounding, most):
    given = None if rounding is None else rounding * MiB
    served = []
    for left in range(1, 80, 2):  # as PyTorch 2.11 was asked
        pool = pool_of(
            max_split_size=100 * MiB, large_segment_size=segment * MiB, max_non_split_rounding=given
        )
        first = pool.allocate(200 * MiB, 0)
        pool.free(first)
        if pool.allocate((200 - left) * MiB, 0) == first:
            served.append(left)
    assert max(served) == most


# What PyTorch 2.11 reserved, in MiB, on the stand-in driver.
@pytest.mark.parametrize(
    ("segment", "expandable", "sizes", "reserved"),
    [
        (12, False, [9, 9, 15, 30], [12, 24, 40, 70]),
        (31, False, [9, 9, 15, 30], [31, 31, 47, 77]),
        (64, False, [9, 15, 30, 9], [64, 64, 64, 64]),
        (12, True, [5, 9, 9, 15, 30, 70], [12, 24, 24, 48, 72, 144]),
        (64, True, [5, 9, 9, 15, 30, 70], [64, 64, 64, 64, 128, 192]),
    ],
)
def test_the_size_of_large_segments_is_a_setting(segment, expandable, sizes, reserved):
    pool = pool_of(large_segment_size=segment * MiB, expandable_segments=expandable)
    found = []
    for size in sizes:
        pool.allocate(size * MiB, 0)
        found.append(pool.driver.reserved // MiB)
    assert found == reserved


@pytest.mark.parametrize(("segment", "expandable"), [(10, False), (4, False), (31, True)])
def test_a_size_of_large_segments_that_pytorch_or_the_driver_refuses(segment, expandable):
    with pytest.raises(InvalidRequest, match="large_segment_size"):
        pool_of(large_segment_size=segment * MiB, expandable_segments=expandable)


def test_oversize_segments_are_returned_until_the_request_fits_and_others_stay():
    pool = pool_of(300 * MiB, max_split_size=64 * MiB)
    cached = [pool.allocate(size * MiB, 0) for size in (20, 70, 80, 100)]
    for address in cached:
        pool.free(address)
    assert pool.allocate(120 * MiB, 0)
    assert pool.driver.releases == 2  # 100 and 80 MiB are enough
    assert pool.allocate(20 * MiB, 0) == cached[0]
    assert pool.allocate(70 * MiB, 0) == cached[1]


def test_garbage_collection_returns_the_segments_that_waited_longest():
    pool = pool_of(200 * MiB, garbage_collection_threshold=0.5)
    old, young = pool.allocate(50 * MiB, 0), pool.allocate(60 * MiB, 0)
    pool.free(old)
    for _ in range(9):
        pool.free(young)
        assert pool.allocate(60 * MiB, 0) == young
    pool.free(young)
    assert pool.driver.releases == 0
    assert pool.allocate(70 * MiB, 0)
    assert pool.driver.releases == 1
    assert pool.allocate(60 * MiB, 0) == young
    without = pool_of(200 * MiB)
    without.free(without.allocate(110 * MiB, 0))
    without.allocate(80 * MiB, 0)
    assert without.driver.releases == 0


@pytest.mark.parametrize(
    "option",
    [
        {"max_split_size": 8 << 20},
        {"garbage_collection_threshold": 1e18},
        {"garbage_collection_threshold": -0.5},
        {"roundup_power2_divisions": 3},
        {"roundup_power2_divisions": 12},
        {"roundup_power2_divisions": "[1:3]"},
    ],
)
def test_options_that_pytorch_refuses(option):
    (name,) = option
    with pytest.raises(InvalidRequest, match=name):
        TorchCachingPool(DriverMemory(64 << 20), **option)


def expandable_pool(limit=1 << 36, device=None):
    return TorchCachingPool(DriverMemory(limit), expandable_segments=True, device=device)


def test_a_segment_grows_in_place_by_whole_granules():
    pool = expandable_pool()
    first = pool.allocate(30 * MiB, 0)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(15 * MiB, 0) == first + 30 * MiB  # 10 MiB are there, 20 MiB are mapped
    assert pool.driver.reserved == 60 * MiB
    small = pool.allocate(KiB, 0)
    assert pool.driver.reserved == 62 * MiB
    assert not first <= small < first + 60 * MiB


def test_a_block_that_can_grow_is_the_last_choice():
    pool = expandable_pool()
    first = pool.allocate(16 * MiB, 0)
    second = pool.allocate(8 * MiB, 0)  # 16 MiB remain at the end
    pool.free(first)
    assert pool.allocate(15 * MiB, 0) == first
    assert second == first + 16 * MiB
    pool.free(first)
    third = pool.allocate(20 * MiB, 0)
    assert third == second + 8 * MiB
    assert pool.driver.reserved == 60 * MiB
    pool.free(third)
    pool.allocate(10 * MiB, 0)
    assert pool.allocate(6 * MiB, 0) == first + 10 * MiB


def test_before_a_failure_free_granules_are_unmapped_and_mapped_at_the_lowest_place_that_has_room():
    pool = expandable_pool(100 * MiB, device=1 << 30)  # so that there are addresses enough
    blocks = [pool.allocate(20 * MiB, 0) for _ in range(5)]
    pool.free(blocks[1])
    pool.free(blocks[3])
    assert pool.allocate(40 * MiB, 0) == blocks[4] + 20 * MiB
    assert (pool.driver.releases, pool.driver.reserved) == (2, 100 * MiB)
    assert pool.allocate(MiB, 0) == 0
    pool.free(blocks[4])
    assert pool.allocate(20 * MiB, 0) == blocks[4]
    pool.free(blocks[0])
    pool.free(blocks[2])
    assert pool.allocate(60 * MiB, 0) == 0  # 40 MiB at most can be mapped again
    assert pool.allocate(40 * MiB, 0) == blocks[0]


def test_granules_with_blocks_in_use_stay_mapped():
    pool = expandable_pool(60 * MiB)
    first, second, third = (pool.allocate(size * MiB, 0) for size in (15, 30, 15))
    pool.free(second)
    assert pool.allocate(35 * MiB, 0) == 0
    assert pool.driver.releases == 1  # [15, 45) has one whole granule
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(29 * MiB, 0) == first + 15 * MiB
    assert third == first + 45 * MiB


def churn(seed, count, live, largest):
    """Requests of sizes between 512 bytes and `largest`, on two streams: (name, size, stream), or a name to free."""
    draw, names = random.Random(seed), []
    for name in range(count):
        if names and (len(names) >= live or draw.random() < 0.45):
            yield names.pop(draw.randrange(len(names)))
        size = int(512 * (largest / 512) ** draw.random())
        names.append(name)
        yield name, size, draw.randrange(2)


@pytest.mark.parametrize("meaning", ["device", "fraction", "fraction of a device that is little larger"])
@pytest.mark.parametrize("share", [1.0, 0.9, 0.7, 0.5])
@pytest.mark.parametrize(
    ("seed", "live", "largest"), [(1, 60, 200 * MiB), (2, 200, 4 * MiB), (3, 25, 40 * MiB)]
)
def test_each_step_is_that_of_the_plain_rules(meaning, share, seed, live, largest):
    requests = list(churn(seed, 800, live, largest))
    in_use, most, sizes = 0, 0, {}
    for request in requests:
        if isinstance(request, tuple):
            sizes[request[0]] = request[1]
            in_use += request[1]
        else:
            in_use -= sizes[request]
        most = max(most, in_use)
    limit = int(most * share) // (2 * MiB) * 2 * MiB + 4 * MiB
    device = {"device": None, "fraction": 64 << 30}.get(meaning, limit + 6 * MiB)
    naive = NaiveExpandable(limit if device is None else device, None if device is None else limit)
    pool = TorchCachingPool(DriverMemory(limit), expandable_segments=True, device=device)
    at, failed = {}, 0
    for request in requests:
        if isinstance(request, tuple):
            name, size, stream = request
            address = pool.allocate(size, stream)
            assert bool(address) == naive.allocate(name, size, stream)
            failed += not address
            if address:
                at[name] = address
        elif request in at:
            pool.free(at.pop(request))
            naive.free(request)
        assert (pool.driver.reserved, pool.in_use) == (naive.reserved, naive.in_use)
    assert failed or share > 0.5


def test_where_addresses_run_out_another_segment_begins():
    pool = expandable_pool(160 * MiB)  # 180 MiB of addresses
    blocks = [pool.allocate(20 * MiB, 0) for _ in range(8)]
    for block in blocks[::2]:
        pool.free(block)
    other = pool.allocate(30 * MiB, 0)  # holes of 20 MiB, and 20 MiB at the end
    assert not blocks[0] <= other < blocks[0] + 180 * MiB
    assert pool.driver.reserved == 120 * MiB


def test_a_fraction_refuses_a_whole_segment_and_lets_granules_exceed_it():
    pool = expandable_pool(50 * MiB, device=1 << 30)
    assert pool.allocate(30 * MiB, 0)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(11 * MiB, 0) == 0  # 12 MiB more than 40: only 1 MiB would have to be mapped
    assert pool.allocate(10 * MiB, 0)
    assert pool.allocate(MiB, 0)
    large = expandable_pool(70 * MiB, device=1 << 30)
    assert large.allocate(64 * MiB, 0)
    assert large.driver.reserved == 80 * MiB  # four granules, above the 70 MiB that the fraction allows


def test_the_default_allocator_keeps_to_the_fraction():
    pool = TorchCachingPool(DriverMemory(50 * MiB), device=1 << 30)
    assert pool.allocate(40 * MiB, 0)
    assert pool.allocate(11 * MiB, 0) == 0
    assert pool.allocate(10 * MiB, 0)


# ------------------------------------------------------------------------------
# The policy `torch` decides as PyTorch did, in the histories of real snapshots.


FOLDER = SHARED / "real" / "snapshots"


@cache
def compared(name):
    return torch_policy.compared(FOLDER / f"{name}.pickle")


@needs_shared
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


@needs_shared
@pytest.mark.parametrize("name", ["torch_code_location_2.6M", "torch_octree_nca_67k"])
def test_every_block_lies_where_pytorch_put_it(name):
    for device in compared(name):
        assert device.same_size == device.same_segment == device.same_place == device.blocks > 0


@needs_shared
def test_where_the_driver_chose_addresses_nearly_every_block_lies_in_a_segment_of_the_same_kind():
    (device,) = compared("torch_cs336_ctx128_fullstep")
    assert device.before > 0  # their segments are not known as they were made
    assert device.same_size > 0.999 * device.blocks
    assert device.same_segment > 0.998 * device.blocks


@needs_shared
def test_without_a_history_blocks_in_use_need_at_most_what_was_reserved():
    (kept,) = compared("torch_oom_snapshot_llminf")
    assert kept.our_peak == kept.real_peak
    (cached,) = compared("torch_select_n_10k")
    assert 0 < cached.our_peak < cached.real_peak
    assert cached.blocks == 0
