import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.events.labels import Labels
from bfcviz.whatif.policies.buddy import BuddyPool
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream
from bfcviz.whatif.simulation import DriverMemory

KiB, MiB = 1 << 10, 1 << 20


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
