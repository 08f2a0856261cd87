"""Sub-allocators of GPU memory on a fake driver: the calls, their order, captures, and cleanup after a failure."""

import gc
import os

import pytest
from fake_cuda import GLOBAL, OUT_OF_MEMORY, RELAXED, THREAD_LOCAL, FakeCuda
from heaps import MIB, new_heap
from unit.allocator.sub_allocators.made import make

from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.cuda import KINDS
from bfcviz.allocator.sub_allocators.cuda_driver import Driver
from bfcviz.errors import DeviceError, OutOfMemory

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_heap_takes_its_regions_from_the_driver_and_gives_them_back(kind):
    library = FakeCuda()
    source = make(kind, library, stream=library.add_stream())
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        held = [heap.allocate(3 * MIB) for _ in range(4)]
        assert library.used == heap.stats().pool_bytes == source.used == source.budget.used
        for address in held:
            heap.free(address)
        heap.check_invariants()
    assert library.used == source.used == source.budget.used == 0
    assert library.contexts == []


@every_kind
def test_a_device_that_is_full_refuses(kind):
    library = FakeCuda(memory=8 * MIB)
    with new_heap(64 * MIB, make(kind, library), allow_growth=True) as heap:
        heap.allocate(3 * MIB)
        with pytest.raises(OutOfMemory, match="the sub-allocator gave none"):
            heap.allocate(6 * MIB)
        heap.allocate(3 * MIB)
    assert library.used == 0


@every_kind
def test_a_failure_of_the_driver_is_told_and_leaves_nothing_behind(kind):
    library = FakeCuda()
    source = make(kind, library)
    name = {
        "device": "cuMemAlloc_v2", "managed": "cuMemAllocManaged", "async": "cuMemAllocAsync", "virtual": "cuMemCreate",
    }[kind]  # fmt: skip
    library.fails[name] = 719
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        with pytest.raises(
            DeviceError, match=rf"{name} failed: CUDA_ERROR_719 \(719\): as the test wanted"
        ) as caught:
            heap.allocate(MIB)
        assert caught.value.status == 719
        assert source.budget.used == 0
        library.fails.clear()
        assert heap.allocate(MIB)
    assert library.contexts == []


@pytest.mark.parametrize("name", ["cuMemMap", "cuMemSetAccess"])
def test_what_fails_half_way_is_undone(name):
    library = FakeCuda(fails={name: 1})
    source = make("virtual", library)
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        with pytest.raises(DeviceError, match=name):
            heap.allocate(MIB)
        assert (library.handles, library.mapped, library.accessible, source.budget.used) == ({}, {}, set(), 0)
        library.fails.clear()
        assert heap.allocate(MIB) == source.start


def test_at_the_end_of_the_process_the_driver_may_be_gone():
    library = FakeCuda()
    heap = new_heap(16 * MIB, make("device", library), allow_growth=True)
    heap.allocate(MIB)
    library.fails["cuMemFree_v2"] = cuda_driver.DEINITIALIZED
    heap.close()


def test_a_free_that_fails_is_told():
    library = FakeCuda()
    heap = new_heap(16 * MIB, make("device", library), allow_growth=True)
    heap.allocate(MIB)
    library.fails["cuMemFree_v2"] = 700
    with pytest.raises(DeviceError, match="cuMemFree_v2 failed"):
        heap.close()


def test_out_of_memory_is_a_refusal_the_heap_backs_off_from():
    library = FakeCuda(memory=5 * MIB)
    with new_heap(64 * MIB, make("device", library), allow_growth=True) as heap:
        heap.allocate(2 * MIB)
        heap.allocate(2 * MIB)  # a region of 4 MiB is refused, smaller ones are tried
        assert library.used <= 5 * MIB
    assert OUT_OF_MEMORY == cuda_driver.OUT_OF_MEMORY


# -- while a graph is captured --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@every_kind
def test_a_heap_may_grow_while_another_stream_is_captured(kind, mode):
    library = FakeCuda()
    captured = library.add_stream()
    with new_heap(32 * MIB, make(kind, library, stream=library.add_stream()), allow_growth=True) as heap:
        library.begin_capture(captured, mode)
        assert heap.allocate(MIB)
        assert library.end_capture(captured) == 0


@pytest.mark.parametrize("kind", ["device", "managed", "virtual"])
def test_a_heap_may_grow_while_its_own_stream_is_captured(kind):
    library = FakeCuda()
    stream = library.add_stream()
    with new_heap(32 * MIB, make(kind, library, stream=stream), allow_growth=True) as heap:
        library.begin_capture(stream)
        assert heap.allocate(MIB)
        assert library.end_capture(stream) == 0


@pytest.mark.parametrize("kind", ["async", "virtual"])
def test_regions_freed_while_their_stream_is_captured_go_back_after_it(kind):
    library = FakeCuda()
    stream = library.add_stream()
    source = make(kind, library, stream=stream)
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        heap.free(heap.allocate(MIB))
        library.begin_capture(stream)
        heap.trim()
        assert library.used == source.used == source.budget.used > 0
        assert library.end_capture(stream) == 0
        heap.allocate(3 * MIB)
        assert library.used == source.used == heap.stats().pool_bytes
    assert library.used == 0


@pytest.mark.parametrize("kind", ["device", "managed"])
def test_regions_that_go_back_while_their_stream_is_captured_do_not_break_the_capture(kind):
    library = FakeCuda()
    stream = library.add_stream()
    with new_heap(32 * MIB, make(kind, library, stream=stream), allow_growth=True) as heap:
        heap.free(heap.allocate(MIB))
        library.begin_capture(stream)
        heap.trim()
        assert (library.used, library.end_capture(stream)) == (0, 0)


@pytest.mark.parametrize("kind", ["async", "virtual"])
def test_what_waits_for_a_capture_goes_back_with_the_sub_allocator(kind):
    library = FakeCuda()
    stream = library.add_stream()
    heap = new_heap(32 * MIB, make(kind, library, stream=stream), allow_growth=True)
    heap.allocate(MIB)
    library.begin_capture(stream)
    heap.close()
    assert library.end_capture(stream) == 0
    del heap
    gc.collect()
    assert (library.used, library.reserved) == (0, {})


@pytest.mark.parametrize("kind", ["device", "managed", "virtual"])
def test_memory_goes_back_where_its_stream_is_gone(kind):
    library = FakeCuda()
    stream = library.add_stream()
    with new_heap(32 * MIB, make(kind, library, stream=stream), allow_growth=True) as heap:
        heap.allocate(MIB)
        del library.streams[stream]
    assert library.used == 0


def test_a_default_stream_that_cannot_be_asked_counts_as_captured():
    library = FakeCuda()
    blocking = library.add_stream(flags=0)
    driver = Driver(library)
    with driver.on(0):
        assert not driver.is_capturing(0)
        library.begin_capture(blocking)
        assert driver.is_capturing(0)
        assert driver.is_capturing(blocking)
        assert library.end_capture(blocking) == 0


# -- contexts that are gone -----------------------------------------------------------------------------------------


@every_kind
def test_after_a_device_reset_a_heap_gets_memory_of_the_new_context(kind):
    library = FakeCuda()
    source = make(kind, library)
    with new_heap(32 * MIB, source, allow_growth=True) as heap:
        heap.allocate(MIB)
        library.cuDevicePrimaryCtxReset_v2(0)
        assert heap.allocate(3 * MIB)
        assert 0 in library.active
    assert library.used == source.used == 0


@every_kind
def test_a_forked_child_is_told_that_it_cannot_use_cuda_and_may_end(kind, monkeypatch):
    library = FakeCuda()
    source = make(kind, library)
    heap = new_heap(32 * MIB, source, allow_growth=True)
    heap.allocate(MIB)
    monkeypatch.setattr(os, "getpid", lambda: library.pid + 1)  # as in a fork of that process
    with pytest.raises(DeviceError, match=r"a fork of process .* 'spawn'") as caught:
        heap.allocate(9 * MIB)
    assert caught.value.status == 3
    heap.close()
    source.close()
