"""Rules of growth that the recorded runs here do not show; `python tests/mutations.py` breaks each of them."""

from heaps import BASE, KIB, MIB, Scripted, new_heap


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


def test_the_pool_counts_what_was_received():
    source = Scripted(lambda _, num_bytes: (BASE, num_bytes + 512))
    heap = new_heap(4 * MIB, source, allow_growth=True)
    heap.allocate(KIB)
    assert heap.stats().pool_bytes == 2 * MIB + 512
    assert heap.regions()["size"].tolist() == [2 * MIB + 512]


def test_the_peak_of_the_pool_stays():
    heap = new_heap(8 * MIB, scripted(), allow_growth=True)
    held = [heap.allocate(size) for size in (MIB, 3 * MIB)]
    for address in held:
        heap.free(address)
    assert heap.trim() == 6 * MIB
    heap.allocate(MIB)
    assert (heap.stats().pool_bytes, heap.stats().peak_pool_bytes) == (2 * MIB, 6 * MIB)
