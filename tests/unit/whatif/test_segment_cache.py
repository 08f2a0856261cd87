from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.simulation import DriverMemory, FreeBlocks, SegmentCache


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
