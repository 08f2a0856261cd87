"""The contract of every sub-allocator: regions are disjoint, aligned, large enough, and released."""

import ctypes
from pathlib import Path

import pytest
from fake_cuda import FakeCuda
from heaps import KIB, MIB, new_heap

from bfcviz.allocator.cuda import KINDS, Budget, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.sub_allocators import HostSubAllocator, SimulatedSubAllocator
from bfcviz.errors import OutOfMemory

PAGE = 4096


def cuda(kind):
    """A sub-allocator of GPU memory on a fake driver."""

    def make(capacity=1 << 40):
        driver = Driver(FakeCuda(memory=64 * MIB))
        return cuda_sub_allocator(kind, budget=Budget(capacity), driver=driver)

    return make


SUB_ALLOCATORS = {
    "contiguous": SimulatedSubAllocator,
    "gapped": lambda **kw: SimulatedSubAllocator("gapped", **kw),
    "descending": lambda **kw: SimulatedSubAllocator("descending", **kw),
    "granule": lambda **kw: SimulatedSubAllocator(granule=2 * MIB, **kw),
    "host": HostSubAllocator,
    **{f"cuda, {kind}": cuda(kind) for kind in KINDS},
}
both = pytest.mark.parametrize("make", SUB_ALLOCATORS.values(), ids=SUB_ALLOCATORS)


@both
def test_regions_are_apart_and_hold_what_was_asked_for(make):
    heap = new_heap(64 * MIB, make(), allow_growth=True)
    for size in (MIB, 3 * MIB, 9 * MIB):
        heap.allocate(size)
    regions = heap.regions()
    assert len(regions) > 1 or heap.sub_allocator.supports_coalescing
    ends = regions["address"] + regions["size"]
    assert (ends[:-1] <= regions["address"][1:]).all()
    assert (regions["address"] % 256 == 0).all()
    assert heap.stats().pool_bytes == regions["size"].sum()
    heap.check_invariants()
    heap.close()


@both
@pytest.mark.parametrize("alignment", [512, 4096, 64 * KIB, 2 * MIB])
def test_alignment_reaches_the_region(make, alignment):
    with new_heap(64 * MIB, make(), allow_growth=True) as heap:
        assert heap.allocate(1000, alignment) % alignment == 0
        assert heap.allocate(5 * MIB, alignment) % alignment == 0


@both
def test_its_capacity_holds_and_comes_back(make):
    source = make(capacity=8 * MIB)
    with new_heap(64 * MIB, source, allow_growth=True, garbage_collection=True) as heap:
        address = heap.allocate(6 * MIB)
        with pytest.raises(OutOfMemory, match="the sub-allocator gave none"):
            heap.allocate(6 * MIB)
        heap.free(address)
        assert heap.allocate(7 * MIB)  # after the first region was released
    assert source.used == 0


def test_host_memory_is_real_zeroed_and_page_aligned():
    with new_heap(16 * MIB, HostSubAllocator(), allow_growth=True) as heap:
        address = heap.allocate(MIB)
        assert heap.regions()["address"][0] % PAGE == 0
        assert ctypes.string_at(address, MIB) == bytes(MIB)
        ctypes.memset(address, 0xA5, MIB)
        other = heap.allocate(MIB)
        ctypes.memset(other, 0x5A, MIB)
        assert ctypes.string_at(address, MIB) == b"\xa5" * MIB


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_host_memory_goes_back_to_the_system():
    def mapped(address):
        ranges = (
            line.split(maxsplit=1)[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()
        )
        return any(int(low, 16) <= address < int(high, 16) for low, high in ranges)

    heap = new_heap(64 * MIB, HostSubAllocator(), allow_growth=True)
    address = heap.allocate(32 * MIB)
    ctypes.memset(address, 1, 32 * MIB)
    assert mapped(address)
    assert mapped(address + 32 * MIB - 1)
    heap.close()
    assert not mapped(address)
