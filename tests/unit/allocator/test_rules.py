"""Rules of the heap that the recorded runs here do not show; `python tests/mutations.py` breaks each of them."""

from heaps import BASE, GIB, KIB, MIB, Scripted, new_heap

from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind


def scripted():
    """A sub-allocator that grants all, far apart."""
    starts = iter(range(BASE, 1 << 62, 1 << 32))
    return Scripted(lambda _, num_bytes: (next(starts), num_bytes))


def test_the_pool_is_extended_before_free_regions_are_released():
    source = scripted()
    heap = new_heap(8 * MIB, source, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(MIB))
    heap.allocate(3 * MIB)
    assert (source.asked, source.released) == ([(256, 2 * MIB), (256, 4 * MIB)], [])


def test_what_is_available_is_rounded_down():
    source = scripted()
    heap = new_heap(MIB + 100, source)
    heap.allocate(KIB)
    assert source.asked == [(256, MIB)]
    assert heap.try_allocate(MIB - KIB + 1) is None


def test_the_limit_is_told_as_it_was_given():
    assert new_heap(MIB + 100).stats().bytes_limit == MIB + 100


def test_the_share_of_the_limit_that_may_be_wasted_is_cut_off_to_whole_bytes():
    heap = new_heap(MIB, fragmentation_fraction=512.75 / MIB)
    first, _ = heap.allocate(1536), heap.allocate(256)
    heap.free(first)
    heap.allocate(1024)
    assert heap.memory_map()["size"][:3].tolist() == [1024, 512, 256]


def test_the_back_off_is_in_single_precision():
    source = Scripted(lambda _, num_bytes: (BASE, num_bytes) if num_bytes < 16 * GIB else None)
    new_heap(16 * GIB, source).allocate(KIB)
    # Nine tenths are 15,461,882,265.6 bytes, rounded up to 15,461,882,368.
    assert source.asked == [(256, 16 * GIB), (256, 15_461_881_856)]


def test_the_pool_counts_what_was_received():
    source = Scripted(lambda _, num_bytes: (BASE, num_bytes + 512))
    heap = new_heap(4 * MIB, source, allow_growth=True)
    heap.allocate(KIB)
    assert heap.stats().pool_bytes == 2 * MIB + 512
    assert heap.regions()["size"].tolist() == [2 * MIB + 512]


def test_a_pool_beyond_its_limit_is_not_limited():
    starts = iter(range(BASE, 1 << 62, 1 << 32))
    source = Scripted(lambda _, num_bytes: (next(starts), num_bytes + 8 * MIB))
    heap = new_heap(4 * MIB, source, allow_growth=True)
    for size in (KIB, 20 * MIB):
        heap.allocate(size)
    assert source.asked == [(256, 2 * MIB), (256, 32 * MIB)]
    assert heap.stats().pool_bytes == 50 * MIB


def test_the_peak_of_the_pool_stays():
    heap = new_heap(8 * MIB, scripted(), allow_growth=True)
    held = [heap.allocate(size) for size in (MIB, 3 * MIB)]
    for address in held:
        heap.free(address)
    assert heap.trim() == 6 * MIB
    heap.allocate(MIB)
    assert (heap.stats().pool_bytes, heap.stats().peak_pool_bytes) == (2 * MIB, 6 * MIB)


def test_regions_are_released_only_with_the_option():
    source = scripted()
    heap = new_heap(4 * MIB, source, allow_growth=True)
    heap.free(heap.allocate(MIB))
    assert heap.try_allocate(3 * MIB) is None
    assert source.released == []


def test_handles_of_a_region_are_deleted_in_the_order_of_addresses():
    heap = new_heap(MIB, timestamps=True)
    for address in [heap.allocate(256) for _ in range(2)]:
        heap.free(address)  # held: three chunks with the handles 0, 1, 2
    assert heap.trim() == MIB
    heap.allocate(MIB)
    assert heap.memory_map()["handle"].tolist() == [2]  # the one deleted last


def test_held_chunks_are_merged_until_one_is_just_large_enough():
    heap = new_heap(KIB, timestamps=True)
    for address in [heap.allocate(256) for _ in range(4)][:3]:
        heap.free(address)
    heap.allocate(512)
    kinds = Reader(heap.log, 0).read()["kind"].tolist()
    assert kinds.count(Kind.MERGE) == 1  # the third stays as it is
    assert heap.memory_map()["size"].tolist() == [512, 256, 256]
