from bfcviz.whatif.policies.stream_ordered import StreamOrderedPool
from bfcviz.whatif.simulation import DriverMemory

MiB = 1 << 20


def test_a_block_serves_other_streams_only_if_it_may():
    for shared in (True, False):
        pool = StreamOrderedPool(DriverMemory(1 << 30), reuse_across_streams=shared)
        first = pool.allocate(MiB, 1)
        pool.free(first)
        assert (pool.allocate(MiB, 2) == first) == shared
        assert pool.driver.reserved == (32 if shared else 64) * MiB


def test_memory_beyond_the_threshold_is_returned_and_no_other():
    pool = StreamOrderedPool(DriverMemory(1 << 30), release_threshold=64 * MiB)
    blocks = [pool.allocate(size * MiB, 0) for size in (32, 32, 60, 2)]
    assert pool.driver.reserved == 128 * MiB
    pool.free(blocks[2])
    assert pool.driver.reserved == 128 * MiB  # its segment has another block
    pool.free(blocks[3])
    assert pool.driver.reserved == 64 * MiB
    pool.free(blocks[0])
    assert (pool.driver.reserved, pool.driver.releases) == (64 * MiB, 1)
    everything = StreamOrderedPool(DriverMemory(1 << 30), release_threshold=0)
    everything.free(everything.allocate(MiB, 0))
    assert everything.driver.reserved == 0


def test_without_a_threshold_memory_stays_until_a_request_needs_it():
    pool = StreamOrderedPool(DriverMemory(100 * MiB), segment=2 * MiB)
    for size in (20, 30, 40):
        pool.free(pool.allocate(size * MiB, 0))
    assert pool.driver.reserved == 90 * MiB
    assert pool.allocate(60 * MiB, 0)
    assert (pool.driver.reserved, pool.driver.releases) == (60 * MiB, 3)
    assert pool.allocate(41 * MiB, 0) == 0
