"""Simulated addresses: their order, and the end of the address space."""

import pytest
from heaps import GIB, MIB, new_heap

from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.allocator.sub_allocators.simulated import DESCENDING_TOP, SimulatedSubAllocator
from bfcviz.errors import InvalidRequest

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    "arguments",
    [{"granule": 0}, {"granule": -1}, {"gap": -1}, {"gap": 1 << 63}, {"capacity": -1}, {"capacity": 1 << 64},
     {"base": 0}, {"base": -1}, {"base": 1 << 63}, {"mode": "random"}],
)  # fmt: skip
def test_simulated_memory_that_cannot_be(arguments):
    with pytest.raises(InvalidRequest):
        SimulatedSubAllocator(**arguments)


@pytest.mark.parametrize(
    "source",
    [
        {"base": (1 << 63) - 3 * MIB},
        {"base": (1 << 63) - MIB - 100},
        {"mode": "descending", "base": 3 * MIB},
        {"mode": "descending", "base": 300},
        {"mode": "gapped", "gap": (1 << 63) - 1},
    ],
)
def test_the_pretended_address_space_ends(source):
    heap = new_heap(1 << 62, SimulatedSubAllocator(**source), allow_growth=True)
    served = [heap.try_allocate(MIB) for _ in range(6)]
    assert None in served
    heap.check_invariants()
    regions = heap.regions()
    assert (regions["address"] > 0).all()
    assert all(int(r["address"]) + int(r["size"]) <= 1 << 63 for r in regions)


def test_descending_regions_stay_below():
    heap = new_heap(1 << 62, SimulatedSubAllocator("descending"))
    heap.allocate(1)
    assert int(heap.regions()["address"][0]) < DESCENDING_TOP
    heap.check_invariants()


@pytest.mark.parametrize("alignment", [1 << 40, 1 << 62, 1 << 63])
@pytest.mark.parametrize("honours", [True, False])
def test_alignments_nothing_can_keep_end(alignment, honours):
    for source in (SimulatedSubAllocator(), SimulatedSubAllocator("descending"), HostSubAllocator(MIB)):
        heap = new_heap(GIB, source, allow_growth=True, honour_alignment=honours)
        for _ in range(3):
            address = heap.try_allocate(5 * MIB, alignment)
            assert address is None or address % alignment == 0
        heap.check_invariants()
        heap.close()
