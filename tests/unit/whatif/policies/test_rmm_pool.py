from bfcviz.whatif.policies.rmm_pool import RmmPool
from bfcviz.whatif.simulation import DriverMemory

MiB = 1 << 20


def test_the_pool_doubles_and_keeps_its_blocks():
    pool = RmmPool(DriverMemory(1 << 40))
    blocks = [pool.allocate(MiB, 0) for _ in range(5)]
    assert pool.driver.reserved == 8 * MiB
    assert pool.driver.grants == 4
    for block in blocks:
        pool.free(block)
    assert (pool.in_use, pool.driver.reserved, pool.driver.releases) == (0, 8 * MiB, 0)


def test_an_initial_size_is_one_block_whose_parts_merge():
    pool = RmmPool(DriverMemory(1 << 40), initial_pool_size=8 * MiB)
    blocks = [pool.allocate(2 * MiB, 0) for _ in range(4)]
    for block in blocks:
        pool.free(block)
    assert pool.allocate(8 * MiB, 0) == blocks[0]
    assert pool.driver.grants == 1


def test_the_smallest_block_serves_and_is_cut_to_the_rounded_size():
    pool = RmmPool(DriverMemory(1 << 40), initial_pool_size=16 * MiB)
    large, _, small, _ = (pool.allocate(size * MiB, 0) for size in (4, 1, 2, 9))
    pool.free(large)
    pool.free(small)
    assert pool.allocate(MiB - 255, 0) == small
    assert pool.allocate(MiB, 0) == small + MiB


def test_where_the_driver_refuses_the_pool_asks_for_half_as_much_down_to_the_request():
    pool = RmmPool(DriverMemory(11 * MiB))
    assert pool.allocate(8 * MiB, 0)
    assert pool.allocate(2 * MiB, 0)
    assert pool.driver.reserved == 10 * MiB
    assert pool.allocate(2 * MiB, 0) == 0
    assert pool.allocate(MiB, 0)


def test_an_initial_size_above_the_memory_serves_nothing():
    pool = RmmPool(DriverMemory(MiB), initial_pool_size=2 * MiB)
    assert pool.allocate(1, 0) == pool.allocate(1, 0) == 0
