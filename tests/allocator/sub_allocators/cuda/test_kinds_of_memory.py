"""Device and async memory: streams and captures."""

import pytest
from allocator.sub_allocators.cuda.made import make
from fake_cuda import FakeCuda
from heaps import MIB, new_heap

from bfcviz.errors import DeviceError


def test_async_memory_comes_in_the_order_of_its_stream():
    library = FakeCuda()
    stream = library.add_stream()
    with new_heap(16 * MIB, make("async", library, stream=stream), allow_growth=True) as heap:
        heap.allocate(MIB)
        assert library.stream == stream


def test_of_a_threads_own_stream_all_is_waited_for_before_async_memory_goes_back():
    library = FakeCuda()
    with new_heap(16 * MIB, make("async", library, stream=2), allow_growth=True) as heap:
        heap.allocate(MIB)
    given_back = library.calls.index("cuMemFreeAsync")
    assert library.calls[given_back - 1] == "cuCtxSynchronize"


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
