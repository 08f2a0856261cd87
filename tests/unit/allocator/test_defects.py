"""TensorFlow's six defects (letters as in the table of `bfcviz.allocator.bfc_allocator`): here each call ends early."""

import pytest
from heaps import GIB, KIB, MIB, Scripted, assert_model_agrees, new_heap, snapshot

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import DoubleFree, ForeignPointer, InteriorPointer, InvalidRequest, OutOfMemory

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("size", [1, 256, 1024, 2304, 2305])
@pytest.mark.parametrize("capacity", [0, 255, 2047])
def test_a_small_requests_refused_end_in_out_of_memory(size, capacity):
    source = SimulatedSubAllocator(capacity=capacity, journal=True)
    heap = new_heap(MIB, source)
    served = heap.try_allocate(size)
    assert (served is not None) == (-(-size // 256) * 256 <= capacity)
    asked = [call.requested for call in source.calls]
    assert asked == sorted(set(asked), reverse=True)  # always less
    if served is None:
        assert asked[-1] == -(-size // 256) * 256
        assert not len(heap.regions())


def test_a_the_back_off_from_the_largest_limit_ends():
    source = SimulatedSubAllocator(capacity=5 * KIB, journal=True)
    heap = new_heap(1 << 62, source)
    assert heap.try_allocate(6 * KIB) is None
    assert heap.allocate(100)
    assert len(source.calls) < 1000


def test_b_regions_can_come_and_go_for_ever():
    wanted = 4096

    def grant(_, num_bytes):  # one region at a time, hardly larger than the request
        occupied = heap.stats().pool_bytes > 0
        return None if occupied or num_bytes > wanted * 1.15 else (MIB, num_bytes)

    source = Scripted(grant)
    heap = new_heap(1 << 62, source, allow_growth=True, garbage_collection=True)
    for _ in range(80):
        heap.free(heap.allocate(wanted))
        wanted = heap.stats().pool_bytes + 256
    assert len(source.released) == 79
    assert heap.internals().next_region_bytes == 1 << 63
    heap.check_invariants()
    assert_model_agrees(heap)


@pytest.mark.parametrize("fraction", [1e-12, 1e-300, 1.9 / (256 * KIB)])
def test_c_exact_fits_are_never_split(fraction):
    heap = new_heap(256 * KIB, fragmentation_fraction=fraction)
    addresses = [heap.allocate(256) for _ in range(1024)]
    assert heap.stats().free_bytes == 0
    for address in addresses[::2]:
        heap.free(address)
    assert [heap.allocate(256) for _ in range(512)] == addresses[::2]
    heap.check_invariants()
    assert (heap.memory_map()["size"] == 256).all()


def test_c_any_waste_of_a_chunk_is_split_off():
    heap = new_heap(MIB, fragmentation_fraction=1e-9)
    address = heap.allocate(768)
    heap.allocate(256)
    heap.free(address)
    assert heap.allocated_size(heap.allocate(512)) == 512  # without it: 768, because 768 < 2 * 512


@pytest.mark.parametrize(
    "size", [(1 << 64) - 1, (1 << 64) - 255, (1 << 64) - 256, (1 << 63) + 1, (1 << 62) + 1]
)
def test_d_e_sizes_that_wrap_around_are_refused(size):
    heap = new_heap(1 << 62, SimulatedSubAllocator(capacity=GIB))
    heap.allocate(1)
    before = snapshot(heap)
    with pytest.raises(InvalidRequest):
        heap.allocate(size)
    assert snapshot(heap) == before


def test_e_the_largest_size_and_limit_end():
    heap = new_heap(1 << 62)
    address = heap.allocate(1 << 62)
    assert heap.allocated_size(address) == 1 << 62
    with pytest.raises(OutOfMemory):
        heap.allocate(1)
    heap.free(address)
    heap.check_invariants()
    assert_model_agrees(heap)
    with pytest.raises(InvalidRequest):
        new_heap((1 << 62) + 1)


def test_f_wrong_frees_raise():
    heap = new_heap()
    address = heap.allocate(1000)
    for wrong, kind in ((address + 8, InteriorPointer), (12_345, ForeignPointer)):
        with pytest.raises(kind):
            heap.free(wrong)
    heap.free(address)
    with pytest.raises(DoubleFree):
        heap.free(address)
    heap.check_invariants()
