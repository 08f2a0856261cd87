"""The largest free block of every pool, after each request, compared with the memory that is not in use."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bfcviz.events.label_table import Labels
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.free_blocks import AddressTable, FreeBlocks
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream
from bfcviz.whatif.simulated_pool import SegmentCache

MiB = 1 << 20
LIMIT = 128 * MiB
POOLS = [
    *((name, {}) for name, entry in POLICIES.items() if entry.pool and name != "buddy"),
    ("torch", {"expandable_segments": True}),
    ("torch", {"max_split_size": 20 * MiB, "garbage_collection_threshold": 0.5}),
    ("stream_ordered", {"release_threshold": 2 * MiB, "segment": 2 * MiB}),
    ("xla", {}),
]


def pool_of(name, options, limit):
    module, made = POLICIES[name].pool or ("xla", "XLAPool")
    return getattr(import_module(f"bfcviz.whatif.{module}"), made)(DriverMemory(limit), **options)


class FreeRuns:
    """The memory that the driver granted and no block has, in runs of neighbours."""

    def __init__(self, pool):
        self.pool, self.runs = pool, {}

    def follow(self, address=0, size=0):
        """Take up the driver's new calls; then the block [address, address + size) was freed, or below 0 allocated."""
        for at, num_bytes, _ in self.pool.driver.calls:
            self.change(at, num_bytes)
        self.pool.driver.calls.clear()
        self.change(address, size)

    def change(self, address, size):
        low, high = address, address + abs(size)
        if size > 0:
            for start, stop in list(self.runs.items()):
                if high == start or stop == low:
                    del self.runs[start]
                    low, high = min(low, start), max(high, stop)
            self.runs[low] = high
        elif size < 0:
            start = max(start for start in self.runs if start <= low)
            stop = self.runs.pop(start)
            assert high <= stop
            self.runs |= {left: right for left, right in ((start, low), (high, stop)) if left < right}

    @property
    def largest(self):
        return max((stop - start for start, stop in self.runs.items()), default=0)


steps = st.lists(
    st.tuples(st.sampled_from([0, 300, 70_000, 3 * MiB, 11 * MiB, 21 * MiB, 45 * MiB]), st.integers(0, 9)),
    max_size=40,
)


@pytest.mark.parametrize(("name", "options"), POOLS)
@settings(max_examples=25, deadline=None)
@given(steps=steps)
@example(steps=[(45 * MiB, 0), (45 * MiB, 0), (0, 0), (21 * MiB, 0), (45 * MiB, 0), (3 * MiB, 0), (0, 1)])
def test_the_largest_free_block_is_the_longest_run_of_free_memory(name, options, steps):
    pool, live, rows, expected = pool_of(name, options, LIMIT), [], [], []
    free = FreeRuns(pool)
    for number, (size, stream) in enumerate(steps):
        if size:
            address = pool.allocate(size, stream % 2)
            free.follow(address, -pool.block_size if address else 0)
            live.append((number, address))
            rows.append((ALLOCATE, number, size, 0, 0, 0, stream % 2, number))
        elif live:
            block, address = live.pop(stream % len(live))
            rows.append((FREE, block, 0, 0, 0, 0, 0, number))
            if address:
                pool.free(address)
                released, pool.driver.calls = pool.driver.calls, []
                free.follow(address, pool.block_size)
                pool.driver.calls = released
                free.follow()
        else:
            continue
        assert sum(stop - start for start, stop in free.runs.items()) == pool.driver.reserved - pool.in_use
        expected.append(free.largest)
    stream = RequestStream(np.array(rows, STREAM_ROW), Labels(), "test")
    assert policy_of(name, **options).serve(stream, LIMIT).largest_free.tolist() == expected


def sizes(blocks):
    """The size of each block, by its address, from both tables."""
    found = {address: blocks.sizes[address] for address in blocks.sizes}
    assert {blocks.starts.find(address + size) for address, size in found.items()} == set(found)
    assert len(blocks.starts) == len(found)
    return found


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), max_size=400))
def test_a_table_of_addresses_is_a_dict(steps):
    table, plain = AddressTable(), {}
    for address, value in steps:
        if value:
            table.put(address << 9, value)
            plain[address << 9] = value
        else:
            assert table.take(address << 9) == plain.pop(address << 9, 0)
        assert (address << 9 in table) == (address << 9 in plain)
    assert {address: table[address] for address in table} == plain
    assert list(table) == sorted(plain)
    assert len(table) == len(plain)
    assert (table.get(1), table.get(1, 7)) == (0, 7)
    with pytest.raises(KeyError):
        table[1]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=60), st.integers(1, 6))
def test_it_finds_what_a_search_of_all_blocks_finds(places, wanted):
    blocks, plain = FreeBlocks(), {}
    for place, size in places:
        address = place * 100
        if address in plain:
            assert blocks.remove(address) == plain.pop(address)
        else:
            blocks.add(address, size)
            plain[address] = size
        enough = {address: size for address, size in plain.items() if size >= wanted}
        for sign in (1, -1):
            fits = {
                address: size
                for address, size in enough.items()
                if address + -address % 8 + wanted <= address + size
            }
            first = min(fits, key=lambda each: (fits[each], sign * each), default=0)
            assert blocks.aligned_fit(wanted, 8, sign < 0) == first
        assert blocks.first_fit(wanted) == min(enough, default=0)
        assert blocks.best_fit(wanted) == min(enough, key=lambda each: (enough[each], each), default=0)
        in_order = sorted(plain, key=lambda each: (plain[each], each))
        assert [blocks.next_larger(each) for each in in_order] == [*in_order[1:], 0][: len(in_order)]
        assert blocks.largest() == max(plain.values(), default=0)
        assert (blocks.total, sizes(blocks)) == (sum(plain.values()), plain)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=40))
def test_recent_blocks_are_those_added_since_the_last_call(steps):
    blocks, recent = FreeBlocks(recent_from=5), set()
    for place, size, ask in steps:
        if place * 100 in blocks.sizes:
            blocks.remove(place * 100)
            recent.discard(place * 100)
        else:
            blocks.add(place * 100, size)
            recent |= {place * 100} if size >= 5 else set()
        end = place * 100 + 3
        parts = [min(size, end - address) for address, size in sizes(blocks).items()]
        assert blocks.largest_before(end) == max([0, *parts])
        if ask:
            assert blocks.take_recent() == sorted(recent)
            recent = set()


def test_it_merges_with_what_touches():
    blocks = FreeBlocks()
    for address, size in ((100, 10), (120, 5), (140, 7)):
        blocks.add(address, size)
    assert (blocks.merge_around(110, 10), blocks.merged) == (100, 25)
    assert sizes(blocks) == {140: 7}
    assert (blocks.merge_around(10, 10), blocks.merged) == (10, 10)
    assert blocks.add_merged(147, 3) == 140
    blocks.take_front(140, 4)
    assert sizes(blocks) == {144: 6}
    blocks.take_front(144, 6)
    assert (sizes(blocks), blocks.total) == ({}, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_it_knows_which_segments_are_wholly_free(steps):
    driver, cache, used = DriverMemory(1 << 30), SegmentCache(FreeBlocks()), []
    for kind, number in steps:
        if kind == 0:
            size = 100 * (number + 1)
            address = driver.grant(size)
            cache.add_segment(address, size)
            used.append((address, size))
        elif kind == 1 and used:
            cache.put(*used.pop(number % len(used)))
        elif kind == 2 and (address := cache.free.best_fit(10 * number + 1)):
            cache.take_front(address, 10 * number + 1)
            used.append((address, 10 * number + 1))
        elif kind == 3 and (address := cache.free.best_fit(1)):
            used.append((address, cache.take(address)))
        sizes = cache.free.sizes
        assert cache.whole == {each for each in sizes if sizes[each] == cache.segments.get(each)}
    wholly_free, reserved = set(cache.whole), driver.reserved
    returned = sum(cache.segments[address] for address in wholly_free)
    cache.release_whole(driver)
    assert (driver.releases, reserved - driver.reserved) == (len(wholly_free), returned)
    assert not cache.whole
    assert not wholly_free & {*cache.segments, *cache.free.sizes}
