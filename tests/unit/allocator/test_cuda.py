"""Sub-allocators of GPU memory on a fake driver: the calls, their order, captures, and cleanup after a failure."""

import gc
import os
from dataclasses import asdict

import pytest
from fake_cuda import GLOBAL, OUT_OF_MEMORY, RELAXED, THREAD_LOCAL, FakeCuda
from heaps import MIB, new_heap
from unit.allocator.made_sub_allocators import make

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import KINDS, Budget
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import DeviceError, InvalidRequest, OutOfMemory
from bfcviz.live.served_heap import OPTIONS

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


# ------------------------------------------------------------------------------
# Sub-allocators by their kind: a shared budget, unknown kinds and devices.


def test_heaps_may_share_a_budget():
    library = FakeCuda()
    budget = Budget(8 * MIB)
    one, two = (
        new_heap(64 * MIB, make("device", library, budget=budget), allow_growth=True) for _ in range(2)
    )
    one.allocate(6 * MIB)
    with pytest.raises(OutOfMemory):
        two.allocate(3 * MIB)
    one.close()
    assert two.allocate(3 * MIB)
    two.close()
    assert budget.used == 0


@pytest.mark.parametrize("size", [200, 225, 232, 240, 254])
def test_a_heap_gets_all_that_the_others_left_of_their_budget(size):
    library = FakeCuda(memory=1 << 30)
    budget = Budget(256 * MIB)
    side, main = (
        new_heap(budget.limit, make("device", library, budget=budget), **asdict(OPTIONS)) for _ in range(2)
    )
    side.allocate(1000)
    assert main.allocate(size * MIB)
    assert budget.used <= budget.limit


def test_unknown_kinds_and_devices_are_refused():
    library = FakeCuda(devices=2)
    with pytest.raises(InvalidRequest, match=r"'pinned' .* 'device', 'managed', 'async', 'virtual'"):
        make("pinned", library)
    with pytest.raises(DeviceError, match="device 2: there are 2"):
        make("device", library, device=2)
    assert make("device", library, device=1).device == 1


# ------------------------------------------------------------------------------
# Device and async memory: streams and captures.


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
