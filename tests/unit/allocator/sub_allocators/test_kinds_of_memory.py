"""Device and async memory: streams and captures."""

import pytest
from fake_cuda import FakeCuda
from heaps import MIB, new_heap
from unit.allocator.sub_allocators.made import make

from bfcviz.errors import DeviceError


def test_async_memory_comes_in_the_order_of_its_stream():
    library = FakeCuda()
    stream = library.add_stream()
    with new_heap(16 * MIB, make("async", library, stream=stream), allow_growth=True) as heap:
        heap.allocate(MIB)
        assert library.stream == stream


def test_async_memory_of_a_threads_own_stream_goes_back_behind_all_such_streams():
    library = FakeCuda()
    source = make("async", library, stream=2)
    region = source.allocate(256, MIB)
    assert library.stream == 2
    blocking = library.add_stream(flags=0)
    library.begin_capture(blocking)
    source.free(*region)
    assert library.used == MIB  # the legacy default stream would have to wait for the one that is captured
    assert library.end_capture(blocking) == 0
    source.close()
    assert (library.used, library.freed_in) == (0, 1)


def test_other_devices_may_access_async_memory():
    library = FakeCuda(devices=3)
    source = make("async", library, device=1)
    for _ in range(2):
        source.free(*source.allocate(256, MIB))
    assert library.pool_access == {1: {0, 2}}
    assert library.calls.count("cuMemPoolSetAccess") == 1
    library.has_peers = False
    assert make("async", library, device=2).allocate(256, MIB)


def test_async_memory_is_not_granted_to_a_stream_that_is_captured_for_the_graph_would_own_it():
    library = FakeCuda()
    stream = library.add_stream()
    source = make("async", library, stream=stream)
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        library.begin_capture(stream)
        with pytest.raises(DeviceError, match="captures a graph") as caught:
            heap.allocate(MIB)
        assert (caught.value.status, library.graph_owned, source.budget.used) == (900, set(), 0)
        assert library.end_capture(stream) == 0
        assert heap.allocate(MIB)
    assert library.used == 0
