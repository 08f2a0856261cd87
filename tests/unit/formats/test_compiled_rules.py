"""Compiled code repeats the rules of allocators for speed: it decides as the plain rules of `bfcviz.formats` do."""

from heaps import new_heap
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bfcviz import native
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.formats import cupy, tensorflow
from bfcviz.formats.torch import LEAST_MAX_SPLIT, Rules, divisions_of
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.pools import CupyPool
from bfcviz.whatif.torch_caching import TorchCachingPool
from bfcviz.whatif.xla import XLAPool

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 64 * GIB
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 4 * GIB),
    st.builds(lambda power, more: max((1 << power) + more, 1), st.integers(0, 32), st.integers(-600, 600)),
)
FRACTIONS = st.one_of(st.just(0.0), st.floats(0, 1))


def test_the_numbers_of_the_heap_are_those_of_tensorflow():
    assert (native.MIN_CHUNK, native.FIRST_REGION) == (tensorflow.UNIT, tensorflow.FIRST_REGION)
    assert AllocatorOptions().first_region == tensorflow.FIRST_REGION


@given(size=SIZES, requested=SIZES, fraction=FRACTIONS)
@example(size=200 * MIB, requested=72 * MIB, fraction=0.0)  # exactly 128 MiB are left
@example(size=512, requested=256, fraction=1.0)  # exactly twice the request
def test_the_heap_rounds_and_splits_as_tensorflow(size, requested, fraction):
    assume(requested <= size)
    heap = new_heap(LIMIT, SimulatedSubAllocator(), fragmentation_fraction=fraction)
    free = heap.allocate(size)
    chunk, rounded = heap.allocated_size(free), tensorflow.round_up(requested)
    assert chunk == tensorflow.round_up(size)
    heap.allocate(1)  # so that the chunk does not merge with the rest of the region
    heap.free(free)
    assert heap.allocate(requested) == free
    splits = tensorflow.splits(chunk, rounded, tensorflow.max_waste(LIMIT, fraction))
    assert heap.allocated_size(free) == (rounded if splits else chunk)


@given(size=SIZES, requested=SIZES, fraction=FRACTIONS)
def test_a_hole_of_xla_is_split_as_a_chunk_of_tensorflow(size, requested, fraction):
    assume(requested <= size)
    pool = XLAPool(DriverMemory(LIMIT), fragmentation_fraction=fraction)
    hole = pool.allocate(size, 0)
    chunk, rounded = tensorflow.round_up(size), tensorflow.round_up(requested)
    assert pool.block_size == chunk
    pool.allocate(1, 0)
    pool.free(hole)
    assert pool.allocate(requested, 0) == hole
    splits = tensorflow.splits(chunk, rounded, tensorflow.max_waste(LIMIT, fraction))
    assert pool.block_size == (rounded if splits else chunk)


@given(SIZES)
def test_cupy_s_pool_rounds_as_cupy(requested):
    pool = CupyPool(DriverMemory(LIMIT))
    pool.allocate(requested, 0)
    assert pool.block_size == pool.driver.reserved == cupy.round_up(requested)


@given(
    first=SIZES,
    second=SIZES,
    divisions=st.sampled_from([0, 1, 2, 4, 8, "[256:1,512:2,1024:4,>:8]", "[>:8]", "[1:4,2:8,>:16]"]),
    max_split=st.one_of(st.none(), st.integers(LEAST_MAX_SPLIT, GIB)),
    rounding=st.one_of(st.none(), st.integers(LEAST_MAX_SPLIT, GIB)),
    large=st.integers(11 * MIB, LEAST_MAX_SPLIT),
)
@example(
    first=20 * MIB, second=19 * MIB, divisions=0, max_split=None, rounding=None, large=20 * MIB
)  # 1 MiB is left: it stays with the block
@example(
    first=40 * MIB, second=21 * MIB, divisions=0, max_split=20 * MIB, rounding=None, large=20 * MIB
)  # not split: less than 20 MiB are left
@example(
    first=41 * MIB, second=21 * MIB, divisions=0, max_split=20 * MIB, rounding=None, large=20 * MIB
)  # the block is too large to serve
def test_pytorch_s_pool_rounds_grows_and_splits_by_the_rules(
    *, first, second, divisions, max_split, rounding, large
):
    rules = Rules(
        max_split=max_split,
        divisions=divisions_of(divisions),
        non_split_rounding=rounding,
        large_segment=large,
    )
    pool = TorchCachingPool(
        DriverMemory(LIMIT),
        max_split_size=max_split,
        roundup_power2_divisions=divisions,
        max_non_split_rounding=rounding,
        large_segment_size=large,
    )
    address, rounded = pool.allocate(first, 0), rules.round_up(first)
    segment = rules.segment(rounded)
    assert (pool.driver.reserved, pool.block_size) == (segment, rules.block(first, segment))
    pool.free(address)
    again, needed = pool.allocate(second, 0), rules.round_up(second)
    same_kind = (rounded <= MIB) == (needed <= MIB)
    if same_kind and rules.serves(needed, segment):
        assert (again, pool.driver.reserved, pool.block_size) == (
            address,
            segment,
            rules.block(second, segment),
        )
    else:
        grown = rules.segment(needed)
        assert (pool.driver.reserved, pool.block_size) == (segment + grown, rules.block(second, grown))


@given(size=SIZES, divisions=st.sampled_from([0, 4]))
def test_an_expandable_segment_of_pytorch_is_split_at_each_unit(size, divisions):
    rules = Rules(expandable=True, divisions=divisions_of(divisions))
    pool = TorchCachingPool(DriverMemory(LIMIT), expandable_segments=True, roundup_power2_divisions=divisions)
    pool.allocate(size, 0)
    assert pool.block_size == rules.block(size, pool.driver.reserved)
