"""The strip of 100 characters, drawn by hand."""

from heaps import KIB, MIB, new_heap

from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator


def test_nothing():
    assert new_heap().occupancy() == "<allocator contains no memory>"


def test_chunks_in_a_row():
    heap = new_heap(25_600)  # a character a chunk of 256 bytes
    a, b, c = heap.allocate(2560), heap.allocate(5120), heap.allocate(256)
    assert heap.occupancy() == "*" * 31 + "_" * 69
    heap.free(b)
    assert heap.occupancy() == "*" * 10 + "_" * 20 + "*" + "_" * 69
    heap.free(a)
    heap.free(c)
    assert heap.occupancy() == "_" * 100


def test_waste_is_shown():
    heap = new_heap(25_600)
    block = heap.allocate(10_240)
    heap.allocate(256)
    heap.free(block)
    heap.allocate(7_680)  # gets all 10,240: 10 of its 40 characters are waste
    assert heap.occupancy() == "*" * 30 + "x" * 10 + "*" + "_" * 59


def test_a_chunk_paints_all_characters_it_touches():
    heap = new_heap(25_600 * 4)  # a character four chunks
    heap.allocate(256)
    assert heap.occupancy() == "*" + "_" * 99
    heap.allocate(4 * 256)
    assert heap.occupancy() == "**" + "_" * 98


def test_the_used_part_hides_the_waste_before_it_in_the_same_character():
    heap = new_heap(25_600)
    heap.allocate(100)
    assert heap.occupancy()[:2] == "*_"


def test_regions_lie_end_to_end():
    heap = new_heap(4 * MIB, SimulatedSubAllocator("gapped"), allow_growth=True)
    heap.allocate(2 * MIB)
    heap.allocate(512 * KIB)
    assert len(heap.regions()) == 2
    assert heap.occupancy() == "*" * 63 + "_" * 37
    down = new_heap(4 * MIB, SimulatedSubAllocator("descending"), allow_growth=True)
    down.allocate(2 * MIB)
    down.allocate(512 * KIB)
    assert down.occupancy() == "*" * 13 + "_" * 37 + "*" * 50
