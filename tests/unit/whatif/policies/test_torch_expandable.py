from bfcviz.whatif.policies.torch_caching import TorchCachingPool
from bfcviz.whatif.simulation import DriverMemory

KiB, MiB = 1 << 10, 1 << 20


def pool_of(limit=1 << 36):
    return TorchCachingPool(DriverMemory(limit), expandable_segments=True)


def test_a_segment_grows_in_place_by_whole_granules():
    pool = pool_of()
    first = pool.allocate(30 * MiB, 0)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(15 * MiB, 0) == first + 30 * MiB  # 10 MiB are there, 20 MiB are mapped
    assert pool.driver.reserved == 60 * MiB
    small = pool.allocate(KiB, 0)
    assert pool.driver.reserved == 62 * MiB
    assert not first <= small < first + 60 * MiB


def test_a_block_that_can_grow_is_the_last_choice():
    pool = pool_of()
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
    pool = pool_of(100 * MiB)
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
    pool = pool_of(60 * MiB)
    first, second, third = (pool.allocate(size * MiB, 0) for size in (15, 30, 15))
    pool.free(second)
    assert pool.allocate(35 * MiB, 0) == 0
    assert pool.driver.releases == 1  # [15, 45) has one whole granule
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(29 * MiB, 0) == first + 15 * MiB
    assert third == first + 45 * MiB
