import pytest

from bfcviz.errors import InvalidRequest
from bfcviz.formats.torch import Rules
from bfcviz.whatif.policies.torch_caching import TorchCachingPool
from bfcviz.whatif.simulation import DriverMemory

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
