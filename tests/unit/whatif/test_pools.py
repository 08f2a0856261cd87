import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.events.label_table import Labels
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.pools import BuddyPool, CupyPool, ExactSizePool, FirstFitPool, RmmPool, StreamOrderedPool
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream

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


class NaiveBuddies:
    """Free blocks of one arena as a set of (offset, size)."""

    def __init__(self, limit, least):
        self.whole = 1 << (limit - 1).bit_length()
        self.limit, self.least, self.free_ones = limit, least, {(0, self.whole)}

    def allocate(self, requested):
        size = max(1 << (requested - 1).bit_length(), self.least)
        fits = [(whole, low) for low, whole in self.free_ones if whole >= size and low + size <= self.limit]
        if not fits:
            return None
        whole, low = min(fits)
        self.free_ones.remove((low, whole))
        while whole > size:
            whole //= 2
            self.free_ones.add((low + whole, whole))
        return low, size

    def release(self, low, size):
        while size < self.whole and (low ^ size, size) in self.free_ones:
            self.free_ones.remove((low ^ size, size))
            low, size = min(low, low ^ size), size * 2
        self.free_ones.add((low, size))


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 30), st.integers(1, 70 * KiB)), max_size=80),
    st.sampled_from([64 * KiB, 100 * KiB, 200 * KiB + 7]),
)
def test_it_places_every_block_as_a_set_of_buddies_does(steps, limit):
    pool, naive, live = BuddyPool(DriverMemory(limit), granule=KiB), NaiveBuddies(limit, 256), []
    base, rows, largest = None, [], []
    for number, (frees, pick, size) in enumerate(steps):
        if frees and live:
            address, low, whole, block = live.pop(pick % len(live))
            rows.append((FREE, block, 0, 0, 0, 0, 0, number))
            pool.free(address)
            naive.release(low, whole)
        elif not frees:
            rows.append((ALLOCATE, number, size, 0, 0, 0, 0, number))
            address, found = pool.allocate(size, 0), naive.allocate(size)
            assert (address == 0) == (found is None)
            if found is not None:
                base = address - found[0] if base is None else base
                assert (address - base, pool.block_size) == found
                live.append((address, *found, number))
                assert found[0] + found[1] <= pool.driver.reserved <= limit
        else:
            continue
        mapped = pool.driver.reserved
        largest.append(max([0, *(min(whole, mapped - low) for low, whole in naive.free_ones)]))
    assert pool.in_use == sum(whole for _, _, whole, _ in live)
    stream = RequestStream(np.array(rows, STREAM_ROW), Labels(), "test")
    served = policy_of("buddy", granule=KiB).serve(stream, limit)
    assert served.largest_free.tolist() == largest


def test_sizes_are_powers_of_two_and_no_less_than_the_smallest():
    pool = BuddyPool(DriverMemory(1 << 40), min_block=1000)
    for size, block in ((1, 1024), (1024, 1024), (1025, 2048), (3 * MiB, 4 * MiB)):
        pool.allocate(size, 0)
        assert pool.block_size == block


def test_only_halves_of_one_block_merge():
    pool = BuddyPool(DriverMemory(4 * KiB), min_block=KiB)
    first, second, third, fourth = (pool.allocate(KiB, 0) for _ in range(4))
    pool.free(second)
    pool.free(third)  # adjacent, but no buddies
    assert pool.allocate(2 * KiB, 0) == 0
    pool.free(fourth)
    assert pool.allocate(2 * KiB, 0) == third
    assert second == first + KiB


def test_arenas_are_granted_as_needed_and_the_last_one_may_be_smaller():
    pool = BuddyPool(DriverMemory(7 * MiB), arena=3 * MiB)
    assert pool.allocate(MiB, 0)
    assert pool.driver.reserved == 4 * MiB
    assert pool.allocate(4 * MiB, 0) == 0
    assert pool.allocate(2 * MiB, 0)
    assert pool.driver.reserved == 4 * MiB
    assert pool.allocate(2 * MiB, 0)
    assert pool.driver.reserved == 6 * MiB
    assert pool.driver.calls[0].size == 4 * MiB


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
