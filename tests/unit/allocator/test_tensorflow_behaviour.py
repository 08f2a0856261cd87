"""TensorFlow's own tests of its heap (gpu_bfc_allocator_test.cc), by behaviour, on ours bare and in wrappers.

Each test is named after theirs, the numbers are theirs, the memory is simulated. Guard words make a request larger,
which `chunk_size` knows; tests/contracts has every wrapper alone.
"""

import random
import threading
from collections import Counter
from itertools import pairwise

import pytest
from contracts.allocators import WRAPPERS, heap_of, overhead, wrapped
from heaps import GIB, MIB, new_heap

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator

WRAPPINGS = {"bare": (), "guard": ("guard",), "all": tuple(WRAPPERS)}


@pytest.fixture(params=WRAPPINGS.values(), ids=WRAPPINGS)
def make(request):
    """Creates an allocator: a heap of the given bytes in the wrappers of this test."""
    made = []

    def make(limit=GIB, source=None, **options):
        made.append(wrapped(new_heap(limit, source, **options), request.param))
        return made[-1]

    yield make
    for allocator in made:
        allocator.check_invariants()
        allocator.close()


def apart():
    """Regions with gaps between them, as from cudaMalloc."""
    return SimulatedSubAllocator("gapped")


def joined():
    """Regions that grow in place, as with CUDA's virtual memory."""
    return SimulatedSubAllocator(supports_coalescing=True)


def chunk_size(allocator, num_bytes, alignment=256):
    return -(-(num_bytes + overhead(allocator, alignment)) // 256) * 256


def assert_stats(allocator, num_allocs, bytes_in_use, peak_bytes_in_use, largest_alloc_size):
    stats = allocator.stats()
    assert (stats.num_allocs, stats.bytes_in_use) == (num_allocs, bytes_in_use)
    assert (stats.peak_bytes_in_use, stats.largest_alloc_size) == (peak_bytes_in_use, largest_alloc_size)


def assert_apart(allocator, addresses):
    """No two are the same, and none is inside the requested bytes of another."""
    for low, high in pairwise(sorted(addresses)):
        assert allocator.requested_size(low) > 0
        assert high - low >= allocator.requested_size(low)


def sizes_up_to(most, count, seed=123):
    chance = random.Random(seed)
    return [min(max(chance.getrandbits(32) % most, 100), most) for _ in range(count)]


def test_no_duplicates(make):
    a = make()
    assert_stats(a, 0, 0, 0, 0)
    addresses = [a.allocate(size, 1) for size in range(1, 1024)]
    total = sum(chunk_size(a, size, 1) for size in range(1, 1024))
    largest = chunk_size(a, 1023, 1)
    if not overhead(a):
        assert (total, largest) == (654_336, 1024)
    assert_stats(a, 1023, total, total, largest)
    assert len(set(addresses)) == 1023
    assert_apart(a, addresses)
    for address in addresses:
        a.free(address)
    assert_stats(a, 1023, 0, total, largest)


@pytest.mark.parametrize(
    ("limit", "growth", "count", "largest"),
    [(GIB, False, 255, (1 << 20, 1 << 20)), (2 * GIB, True, 9, (1 << 27, 1 << 26))],
    ids=["without growth", "with growth"],
)
def test_allocations_and_deallocations(make, limit, growth, count, largest):
    a = make(limit, apart(), allow_growth=growth)
    begun = [a.allocate(size, 1) for size in sizes_up_to(largest[0], count)]
    for address in begun[1::2]:
        a.free(address)
    kept = begun[::2]
    assert a.try_allocate(limit + 1, 1) is None  # does not keep later requests from being served
    kept += [a.allocate(size, 1) for size in sizes_up_to(largest[1], count, seed=17)]
    assert_apart(a, kept)
    assert len(heap_of(a).regions()) > 1 if growth else len(heap_of(a).regions()) == 1
    for address in kept:
        a.free(address)
    assert a.stats().bytes_in_use == 0


def test_exercise_coalescing(make):
    a = make()
    first = a.allocate_elements("f4", 1024)
    a.free(first)
    assert_stats(a, 1, 0, chunk_size(a, 4096), chunk_size(a, 4096))
    requests = [("f4", 1024), ("i8", 1_048_576), ("f8", 2048), ("f4", 10_485_760)]
    # 1024 as theirs. Some wrappers write to all the memory each time.
    rounds = 64 if getattr(a, "layers", ()) else 1024
    for _ in range(rounds):
        for address in [a.allocate_elements(dtype, count) for dtype, count in requests]:
            a.free(address)
    sizes = [chunk_size(a, num_bytes) for num_bytes in (4096, 8 << 20, 16_384, 40 << 20)]
    assert_stats(a, 1 + 4 * rounds, 0, sum(sizes), max(sizes))
    assert len(heap_of(a).memory_map()) == 1  # all merged into one chunk
    assert a.allocate_elements("f4", 1024) == first


def test_allocate_zero_buf_size(make):
    assert make().allocate_elements("f4", 0) == 0


def test_tracks_sizes(make):
    assert make().tracks_allocation_sizes() is True


def test_allocated_vs_requested(make):
    a = make()
    address = a.allocate_elements("f4", 1)
    assert a.requested_size(address) == 4
    assert a.allocated_size(address) == chunk_size(a, 4)
    assert overhead(a) or a.allocated_size(address) == 256
    a.free(address)


def test_custom_memory_limit(make):
    a = make(2 * MIB)
    first = a.allocate_elements("f4", 1 << 6)
    assert first
    assert a.try_allocate(4 * (2 << 20)) is None
    a.free(first)


def test_bin_debug_info(make):
    """Two chunks of each of five sizes: totals of each bin, before and after one of each is freed."""
    a = make()
    sizes = [256 << number for number in range(5)]
    addresses = [a.allocate(size, 1) for size in sizes for _ in range(2)]
    bins = Counter(chunk_size(a, size, 1).bit_length() - 9 for size in sizes)
    chunks = heap_of(a).memory_map()
    used = chunks[chunks["in_use"]]
    assert len(chunks) == 11
    assert chunks["bin"][~chunks["in_use"]].tolist() == [20]
    found = Counter(int(size).bit_length() - 9 for size in used["size"])
    assert found == Counter({number: 2 * count for number, count in bins.items()})
    assert used["requested_size"].tolist() == [size + overhead(a, 1) for size in sizes for _ in range(2)]
    for address in addresses[1::2]:
        a.free(address)
    chunks = heap_of(a).memory_map()
    used = chunks[chunks["in_use"]]
    assert Counter(int(size).bit_length() - 9 for size in used["size"]) == bins


def fill_and_free_all_but_one(a):
    """128 chunks of 4 MiB; then only the last of them is in use."""
    addresses = [a.try_allocate(4 * MIB, 1) for _ in range(128)]
    addresses = [address for address in addresses if address is not None]
    for address in addresses[:-1]:
        a.free(address)
    return addresses


def test_region_deallocation(make):
    a = make(2 * GIB, apart(), allow_growth=True)
    assert len(fill_and_free_all_but_one(a)) == 128
    assert len(heap_of(a).regions()) > 1
    assert heap_of(a).trim() > 0
    assert len(heap_of(a).regions()) == 1
    chunks = heap_of(a).memory_map()
    assert (~chunks["in_use"]).sum() == (
        2 if overhead(a) else 1
    )  # guard words leave room behind the last, too


def test_no_region_deallocation(make):
    """Where regions grow in place there is only one, and it is never wholly free."""
    a = make(2 * GIB, joined(), allow_growth=True)
    fill_and_free_all_but_one(a)
    assert len(heap_of(a).regions()) == 1
    assert heap_of(a).trim() == 0
    assert len(heap_of(a).regions()) == 1


def test_physical_allocator_ooms_fragmentation(make):
    a = make(512 * MIB, apart(), allow_growth=True)
    fill_and_free_all_but_one(a)
    free = a.stats().free_bytes
    assert overhead(a) or free == 508 * MIB
    assert a.try_allocate(free - overhead(a, 1), 1) is None  # that much is free, but fragmented


def test_virtual_allocator_promotes_reuse(make):
    a = make(512 * MIB, joined(), allow_growth=True)
    addresses = fill_and_free_all_but_one(a)
    largest = a.stats().largest_free_chunk
    assert overhead(a) or largest == 508 * MIB
    assert a.allocate(largest - overhead(a, 1), 1)
    assert a.requested_size(addresses[-1]) == 4 * MIB


def test_region_deallocation_under_garbage_collection(make):
    """The request that fails above succeeds if wholly free regions may be released for a larger one."""
    a = make(512 * MIB, apart(), allow_growth=True, garbage_collection=True)
    addresses = fill_and_free_all_but_one(a)
    regions = heap_of(a).regions()
    kept = max(int(region["size"]) for region in regions
               if region["address"] <= addresses[-1] < region["address"] + region["size"])  # fmt: skip
    request = 512 * MIB - kept - overhead(a, 1)
    assert request > max(int(size) for size in regions["size"] if int(size) != kept)
    assert a.allocate(request, 1)
    assert len(heap_of(a).regions()) == 2
    assert a.requested_size(addresses[-1]) == 4 * MIB


BENCHMARK = [
    256,
    4096,
    16_384,
    524_288,
    512,
    1_048_576,
    10_485_760,
    104_857_600,
    1_048_576_000,
    2_048_000_000,
]


def test_benchmark_allocation(make):
    a = make(8 * GIB)
    first = [a.allocate(size, 1) for size in BENCHMARK]
    for address in first:
        a.free(address)
    for size in BENCHMARK * 3:
        address = a.allocate(size, 1)
        assert address == first[0]  # the lowest: all else is free
        a.free(address)
    assert_stats(a, 40, 0, sum(chunk_size(a, size, 1) for size in BENCHMARK), chunk_size(a, BENCHMARK[-1], 1))


@pytest.mark.parametrize("count", [1, 4, 16])
def test_benchmark_allocation_threaded(make, count):
    a = make(8 * GIB)
    turns = 320 // count
    failures = []

    def work():
        try:
            for turn in range(turns):
                a.free(a.allocate(BENCHMARK[turn % 7], 1))
        except Exception as error:  # noqa: BLE001  told by the assertion
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (a.stats().num_allocs, a.stats().bytes_in_use) == (turns * count, 0)


@pytest.mark.parametrize("delay", [1, 10, 100, 1000])
def test_benchmark_allocation_delayed(make, delay):
    a = make()
    sizes = [256, 4096, 16_384, 4096, 512, 1024, 1024]
    waiting = [0] * delay
    for turn in range(2 * delay + 50):
        a.free(waiting[turn % delay])
        waiting[turn % delay] = a.allocate(sizes[turn % len(sizes)], 1)
    assert a.stats().chunks_in_use == delay
    assert_apart(a, waiting)
    for address in waiting:
        a.free(address)
    assert a.stats().bytes_in_use == 0
    assert len(heap_of(a).memory_map()) == 1
