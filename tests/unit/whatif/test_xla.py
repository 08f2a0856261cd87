from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.xla import XLAPool

KiB, MiB = 1 << 10, 1 << 20
LOWER, GAP, UPPER = range(3)


class NaiveHeap:
    """XLA's description of its heap, word by word: a list of [address, size, tag, in use] in address order."""

    def __init__(self, base, limit, *, orders, splits, gap_splits, alignments, waste):
        self.chunks = [[base, limit, GAP, False]]
        self.orders, self.splits, self.alignments, self.waste = orders, splits, alignments, waste
        self.gap_splits = gap_splits

    def start_in(self, chunk, rounded, upper):
        """Where the request would begin in a chunk, None: it does not fit."""
        address, size, tag, _ = chunk
        alignment = self.alignments[upper]
        low = -(-address // alignment) * alignment
        if low + rounded > address + size:
            return None
        if not upper:
            return low
        whole = address + size - low
        exact = (self.gap_splits if tag == GAP else self.splits)[1] == "exact"
        if not exact and whole < 2 * rounded and whole - rounded < self.waste:
            return low
        return (address + size - rounded) // alignment * alignment

    def allocate(self, requested, upper):
        rounded, tag = -(-requested // 256) * 256, UPPER if upper else LOWER
        fits = [
            each for each in self.chunks if not each[3] and self.start_in(each, rounded, upper) is not None
        ]
        sign = -1 if self.orders[upper] == "descending" else 1
        holes = sorted((each for each in fits if each[2] == tag), key=lambda each: (each[1], sign * each[0]))
        chosen = next(iter(holes + [each for each in fits if each[2] == GAP]), None)
        if chosen is None:
            return None
        address, size, source, _ = chosen
        start = self.start_in(chosen, rounded, upper)
        rest = address + size - start
        exact = (self.gap_splits if source == GAP else self.splits)[upper] == "exact"
        kept = rounded if exact or rest >= 2 * rounded or rest - rounded >= self.waste else rest
        before_tag, after_tag = (source, UPPER) if upper else (LOWER, source)
        pieces = [
            [address, start - address, before_tag, False],
            [start, kept, tag, True],
            [start + kept, rest - kept, after_tag, False],
        ]
        at = self.chunks.index(chosen)
        self.chunks[at : at + 1] = [piece for piece in pieces if piece[1]]
        return start

    def free(self, address):
        at = next(i for i, chunk in enumerate(self.chunks) if chunk[0] == address)
        chunk = self.chunks[at]
        chunk[3] = False
        beside = at + 1 if chunk[2] == LOWER else at - 1
        if not 0 <= beside < len(self.chunks) or self.chunks[beside][2] != chunk[2]:
            chunk[2] = GAP
        for left in (at, at - 1):
            if left >= 0 and left + 1 < len(self.chunks):
                one, two = self.chunks[left : left + 2]
                if not (one[3] or two[3]):
                    tag = one[2] if one[2] == two[2] else GAP
                    self.chunks[left : left + 2] = [[one[0], one[1] + two[1], tag, False]]


OPTIONS = st.fixed_dictionaries(
    {
        "lower_order": st.sampled_from(["ascending", "descending"]),
        "upper_order": st.sampled_from(["ascending", "descending"]),
        "lower_split": st.sampled_from(["bfc", "exact"]),
        "upper_split": st.sampled_from(["bfc", "exact"]),
        "lower_gap_split": st.sampled_from(["bfc", "exact"]),
        "upper_gap_split": st.sampled_from(["bfc", "exact"]),
        "lower_alignment": st.sampled_from([64, 256, 1024]),
        "upper_alignment": st.sampled_from([256, 4096]),
        "fragmentation_fraction": st.sampled_from([0.0, 0.02]),
    }
)
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 1 << 30), st.integers(1, 24 * KiB)), max_size=80
)


@given(OPTIONS, STEPS)
def test_it_places_every_block_as_the_description_says(options, steps):
    limit = 100 * KiB
    ends = bytes(kind for kind, _, _ in steps if kind < 2)
    pool = XLAPool(DriverMemory(limit + 100), ends, **options)
    naive, live = None, []
    for kind, pick, size in steps:
        if kind == 2:
            if live:
                address = live.pop(pick % len(live))
                pool.free(address)
                naive.free(address)
            continue
        address = pool.allocate(size, 0)
        if naive is None:
            fraction = options["fragmentation_fraction"]
            naive = NaiveHeap(
                pool.driver.calls[0].address,
                limit,
                orders=(options["lower_order"], options["upper_order"]),
                splits=(options["lower_split"], options["upper_split"]),
                gap_splits=(options["lower_gap_split"], options["upper_gap_split"]),
                alignments=(max(options["lower_alignment"], 256), options["upper_alignment"]),
                waste=int(fraction * (limit + 100)) if fraction else 128 * MiB,
            )
        assert address == (naive.allocate(size, kind) or 0)
        if address:
            live.append(address)
            assert [chunk[1] for chunk in naive.chunks if chunk[0] == address] == [pool.block_size]
        assert pool.in_use == sum(chunk[1] for chunk in naive.chunks if chunk[3])


def test_the_ends_grow_towards_each_other_and_never_use_each_others_holes():
    pool = XLAPool(DriverMemory(10 * MiB), bytes([0, 1, 0, 1, 0, 1]))
    low, high, low_2, high_2 = (pool.allocate(2 * MiB, 0) for _ in range(4))
    start = low
    assert (high, low_2, high_2) == (start + 8 * MiB, start + 2 * MiB, start + 6 * MiB)
    pool.free(high)  # a hole of the upper end: one of its blocks is below
    assert pool.allocate(3 * MiB, 0) == 0
    assert pool.allocate(2 * MiB, 0) == high


def test_all_of_one_end_freed_serves_all_of_the_other():
    pool = XLAPool(DriverMemory(4 * MiB), bytes([0, 0, 1, 1]))
    first, second = pool.allocate(MiB, 0), pool.allocate(3 * MiB, 0)
    assert pool.allocate(MiB, 0) == 0
    pool.free(first)
    pool.free(second)
    assert pool.allocate(4 * MiB, 0) == first


def test_the_gap_is_always_split_exactly_and_a_hole_by_the_rule_of_bfc():
    pool = XLAPool(DriverMemory(3 * MiB))
    hole, _ = pool.allocate(MiB, 0), pool.allocate(MiB, 0)
    assert pool.block_size == MiB
    pool.free(hole)
    assert pool.allocate(700 * KiB, 0) == hole
    assert pool.block_size == MiB
    assert pool.driver.grants == 1


def test_the_upper_end_lets_the_pool_grow_and_the_lower_one_does_not():
    pool = XLAPool(
        DriverMemory(64 * MiB), bytes([1, 1, 0, 0, 1]), upper_order="descending", preallocated=8 * MiB
    )
    first = pool.allocate(6 * MiB, 0)
    assert pool.driver.reserved == 8 * MiB
    second = pool.allocate(6 * MiB, 0)
    assert second == first + 6 * MiB
    assert (pool.driver.reserved, pool.driver.grants) == (16 * MiB, 2)
    assert pool.allocate(2 * MiB, 0) == first - 2 * MiB
    pool.free(first)
    assert pool.allocate(7 * MiB, 0) == 0
    assert pool.allocate(60 * MiB, 0) == 0
    assert pool.driver.reserved == 16 * MiB


def test_a_free_tail_of_the_pool_grows_by_what_is_missing():
    pool = XLAPool(DriverMemory(10 * MiB), bytes([1, 1]), preallocated=8 * MiB)
    only = pool.allocate(8 * MiB, 0)
    pool.free(only)
    assert pool.allocate(10 * MiB, 0) == only
    assert pool.driver.reserved == 10 * MiB


@given(STEPS, st.integers(8, 100))
def test_a_pool_that_grows_serves_all_that_the_preallocated_one_serves(steps, share):
    limit = 64 * MiB
    ends = bytes(1 for kind, _, _ in steps if kind < 2)
    pool, live, total = XLAPool(DriverMemory(limit), ends, preallocated=share * KiB), {}, 0
    for kind, pick, size in steps:
        if kind == 2:
            if live:
                address = sorted(live)[pick % len(live)]
                pool.free(address)
                total -= live.pop(address)
        else:
            address = pool.allocate(size, 0)
            assert address
            live[address] = pool.block_size
            blocks = sorted(live.items())
            assert all(start + length <= after for (start, length), (after, _) in pairwise(blocks))
            total += pool.block_size
        assert pool.in_use == total <= pool.driver.reserved <= limit
