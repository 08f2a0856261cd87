from bfcviz.whatif.policies.exact_size import ExactSizePool
from bfcviz.whatif.simulation import DriverMemory

KiB, MiB = 1 << 10, 1 << 20


def test_only_the_same_size_and_stream_reuses_a_block():
    pool = ExactSizePool(DriverMemory(1 << 30))
    first = pool.allocate(1_000, 0)
    pool.free(first)
    assert pool.allocate(500, 0) != first
    assert pool.allocate(1_000, 1) != first
    assert pool.allocate(513, 0) == first
    assert pool.driver.reserved == 512 + 2 * KiB


def test_lengths_that_vary_leave_every_block_unused():
    pool = ExactSizePool(DriverMemory(1 << 30))
    for length in range(1, 101):
        pool.free(pool.allocate(length * KiB, 0))
    assert pool.driver.reserved == sum(range(1, 101)) * KiB
    coarse = ExactSizePool(DriverMemory(1 << 30), unit=128 * KiB)
    for length in range(1, 101):
        coarse.free(coarse.allocate(length * KiB, 0))
    assert coarse.driver.reserved == 128 * KiB


def test_free_blocks_are_returned_before_a_request_fails():
    pool = ExactSizePool(DriverMemory(4 * MiB))
    kept, free = pool.allocate(MiB, 0), pool.allocate(2 * MiB, 0)
    pool.free(free)
    assert pool.allocate(3 * MiB, 0)
    assert (pool.driver.releases, pool.driver.reserved) == (1, 4 * MiB)
    assert pool.allocate(2 * MiB, 0) == 0
    pool.free(kept)
    assert pool.allocate(MiB, 0) == kept


def test_a_request_above_all_devices_is_refused():
    pool = ExactSizePool(DriverMemory(1 << 62))
    assert pool.allocate(1 << 46, 65_535)
    assert pool.allocate((1 << 46) + 1, 0) == pool.allocate(1 << 62, 0) == 0
