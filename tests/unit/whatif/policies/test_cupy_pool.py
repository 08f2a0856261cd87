from bfcviz.whatif.policies.cupy_pool import CupyPool
from bfcviz.whatif.simulation import DriverMemory

MiB = 1 << 20


def test_segments_have_the_rounded_size_and_blocks_are_split_to_it():
    pool = CupyPool(DriverMemory(1 << 30))
    first = pool.allocate(10_000, 0)
    assert pool.driver.reserved == 10_240
    pool.free(first)
    assert pool.allocate(5_000, 0) == first
    assert pool.allocate(5_001, 0) == first + 5_120
    assert (pool.driver.reserved, pool.in_use) == (10_240, 10_240)


def test_streams_have_arenas_of_their_own():
    pool = CupyPool(DriverMemory(1 << 30))
    first = pool.allocate(MiB, 1)
    pool.free(first)
    assert pool.allocate(MiB, 2) != first
    assert pool.allocate(MiB, 1) == first


def test_the_smallest_chunk_serves_and_neighbours_of_one_segment_merge():
    pool = CupyPool(DriverMemory(1 << 30))
    large, small = pool.allocate(4 * MiB, 0), pool.allocate(2 * MiB, 0)
    pool.free(large)
    pool.free(small)
    assert pool.allocate(MiB, 0) == small
    assert pool.allocate(MiB, 0) == small + MiB
    pool.free(small)
    pool.free(small + MiB)
    assert pool.allocate(3 * MiB, 0) == large
    assert pool.allocate(2 * MiB, 0) == small


def test_the_order_of_equal_chunks_is_that_of_a_seed():
    served = set()
    for seed in range(9):
        pool = CupyPool(DriverMemory(1 << 30), ties=seed)
        chunks = [pool.allocate(MiB, 0) for _ in range(5)]
        for chunk in chunks:
            pool.free(chunk)
        first = [chunks.index(pool.allocate(MiB, 0)) for _ in range(5)]
        assert sorted(first) == list(range(5))
        served.add(first[0])
        assert seed or first == list(range(5))
    assert len(served) > 2


def test_whole_segments_are_returned_before_a_request_fails():
    pool = CupyPool(DriverMemory(8 * MiB))
    split, whole = pool.allocate(4 * MiB, 0), pool.allocate(3 * MiB, 1)
    pool.free(split)
    assert pool.allocate(MiB, 0) == split
    pool.free(whole)
    assert pool.allocate(5 * MiB, 0) == 0
    assert (pool.driver.reserved, pool.driver.releases) == (4 * MiB, 1)
    assert pool.allocate(4 * MiB, 0)
