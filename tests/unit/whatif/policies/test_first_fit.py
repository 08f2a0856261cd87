from bfcviz.whatif.policies.first_fit import FirstFitPool
from bfcviz.whatif.simulation import DriverMemory

KiB, MiB = 1 << 10, 1 << 20


def test_it_takes_the_lowest_block_that_is_large_enough_though_another_fits_better():
    pool = FirstFitPool(DriverMemory(1 << 40))
    large, kept, small, _ = (pool.allocate(size, 0) for size in (100 * KiB, KiB, 10 * KiB, KiB))
    pool.free(large)
    pool.free(small)
    assert pool.allocate(10 * KiB, 0) == large
    assert pool.allocate(90 * KiB, 0) == large + 10 * KiB
    assert kept == large + 100 * KiB


def test_it_grows_by_granules_and_by_less_where_the_limit_is_near():
    pool = FirstFitPool(DriverMemory(5 * MiB), granule=2 * MiB)
    assert pool.allocate(MiB, 0)
    assert pool.driver.reserved == 2 * MiB
    assert pool.allocate(3 * MiB, 0)
    assert pool.driver.reserved == 4 * MiB
    assert pool.allocate(MiB, 0)
    assert pool.driver.reserved == 5 * MiB
    assert pool.allocate(1, 0) == 0
    assert (pool.driver.grants, pool.driver.refusals) == (3, 1)


def test_neighbours_merge():
    pool = FirstFitPool(DriverMemory(4 * MiB), granule=MiB)
    blocks = [pool.allocate(MiB, 0) for _ in range(4)]
    for block in (blocks[0], blocks[2], blocks[1], blocks[3]):
        pool.free(block)
    assert pool.in_use == 0
    assert pool.allocate(4 * MiB, 0) == blocks[0]
