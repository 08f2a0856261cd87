"""CuPy served from our heaps: the real wheel and its arrays, over host memory, with streams made up."""

import contextlib
import ctypes
import gc
import pickle
import weakref

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees
from processes import needs_compiled
from unit.live.cupy_stand_in import cupy, gpu, heap_of, in_use, needs_cupy, served

from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind

pytestmark = [needs_cupy, needs_compiled]
__all__ = ["gpu"]


def test_arrays_lie_in_the_heap_and_go_with_their_last_reference(gpu):
    with served() as source:
        heap = heap_of(source)
        array = cupy.empty((100, 10), np.float32)
        assert heap.requested_size(array.data.ptr) == 4000
        view = array[5:].T
        del array
        assert heap.stats().chunks_in_use == 1
        del view
        assert heap.stats().chunks_in_use == 0
    heap.check_invariants()
    assert_model_agrees(heap)


def test_the_memory_is_real(gpu):
    with served():
        array = cupy.empty(1000, np.uint8)
        ctypes.memset(array.data.ptr, 0x5A, 1000)
        assert ctypes.string_at(array.data.ptr, 1000) == b"\x5a" * 1000


def test_empty_arrays_take_nothing(gpu):
    with served() as source:
        assert cupy.empty(0).data.ptr == 0
        assert in_use(source) == [0]


def test_many_arrays_and_the_model_agrees(gpu):
    with served("32MiB") as source:
        rng = np.random.default_rng(1)
        held = {}
        for turn in range(2000):
            held[turn % 40] = cupy.empty(int(rng.integers(1, 60_000)), np.uint8)
        heap = heap_of(source)
        assert heap.stats().chunks_in_use == len({array.data.ptr for array in held.values()}) == 40
        heap.check_invariants()
        assert_model_agrees(heap)
        held.clear()
        assert in_use(source) == [0]


def test_it_is_restored(gpu):
    before = cupy.cuda.get_allocator()
    source = served()
    with source:
        assert cupy.cuda.get_allocator() != before
    assert cupy.cuda.get_allocator() == before
    with pytest.raises(ZeroDivisionError), source:
        cupy.empty(5 // 0)
    assert cupy.cuda.get_allocator() == before


def test_it_can_be_entered_again_and_goes_on_with_the_same_heap(gpu):
    source = served()
    with source:
        first = cupy.empty(100)
    with source:
        second = cupy.empty(100)
        assert in_use(source) == [2]
    del first, second
    assert in_use(source) == [0]


def test_arrays_that_outlive_it_work_on_and_keep_their_heap(gpu):
    with served() as source:
        array = cupy.empty(1000, np.uint8)
    heap = weakref.ref(heap_of(source))
    log = heap().log
    del source
    gc.collect()
    assert heap() is not None
    ctypes.memset(array.data.ptr, 7, 1000)
    del array
    gc.collect()
    assert heap() is None
    assert Reader(log, 0).read(100)["kind"].tolist()[-3:] == [Kind.FREE, Kind.MERGE, Kind.RELEASE]


def test_at_the_end_the_device_gets_its_memory_back_and_the_rest_with_the_arrays(gpu):
    source = served()
    for _ in range(2):
        with source:
            kept = cupy.empty(3 * MIB, np.uint8)
            cupy.empty(8 * MIB, np.uint8)
            with gpu.on(stream=0x55):
                other = cupy.empty(MIB, np.uint8)
            assert source.total_bytes() == 14 * MIB
        assert source.total_bytes() == 6 * MIB
        del kept
        assert source.total_bytes() == 2 * MIB
        del other  # under another stream: waited for first
        assert source.total_bytes() == 0
    for heap in source.heaps:
        heap.check_invariants()


def test_cupys_idle_memory_goes_to_the_device_first_and_it_is_said(gpu):
    gpu.memory, gpu.taken, gpu.idle = 1 << 40, 1000 * MIB, 700 * MIB
    with served(headroom="24MiB") as source:
        assert heap_of(source).limit == (1 << 40) - 324 * MIB
        assert "700.0 MiB" in source.description


def test_without_arrays_the_memory_goes_with_the_source(gpu):
    with served() as source:
        cupy.empty(1000)
    heap = weakref.ref(heap_of(source))
    del source
    gc.collect()
    assert heap() is None


def test_out_of_memory_has_its_numbers(gpu):
    with served("16MiB") as source:
        held = cupy.empty(5 * MIB, np.uint8)
        with pytest.raises(OutOfMemory, match=r"out of memory: 9\.0 MiB requested") as caught:
            cupy.empty(9 * MIB, np.uint8)
        assert (caught.value.requested, caught.value.bytes_limit) == (9 * MIB, 16 * MIB)
        assert source.out_of_memory.numbers() == caught.value.numbers()
        assert cupy.empty(1000).data.ptr
        del held
        assert cupy.empty(4 * MIB, np.uint8).data.ptr
    events = Reader(heap_of(source).log, 0).read(1000)
    assert (events["kind"] == Kind.OOM).sum() == 2  # before and after garbage was collected


def test_a_failure_that_was_handled_keeps_nothing_of_the_program_alive(gpu):
    def step():
        held = [cupy.empty(MIB, np.uint8) for _ in range(3)]
        return cupy.empty(16 * MIB, np.uint8), held

    gc.disable()
    try:
        with served("8MiB") as source:
            with contextlib.suppress(OutOfMemory):
                step()
            assert in_use(source) == [0]
            assert source.out_of_memory.requested == 16 * MIB
    finally:
        gc.enable()


def test_a_programs_own_handler_of_cupys_error_catches_ours(gpu):
    with served("8MiB"):
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as caught:
            cupy.empty(16 * MIB, np.uint8)
        assert isinstance(caught.value, OutOfMemory)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  what was just made
        assert (type(again), again.numbers()) == (OutOfMemory, caught.value.numbers())


def test_a_failure_names_what_the_heaps_of_other_streams_hold(gpu):
    with served("8MiB") as source:
        with gpu.on(stream=0x55):
            held = cupy.empty(3 * MIB, np.uint8)
        with pytest.raises(OutOfMemory, match=r"hold 4\.0 MiB of this limit, 4\.0 MiB in use") as caught:
            cupy.empty(16 * MIB, np.uint8)
        name = heap_of(source, 1).name
        assert caught.value.others == ((name, 4 * MIB, 4 * MIB),)
        assert name in str(caught.value)
        with gpu.on(stream=0x55):
            del held


def test_there_is_what_cupys_memory_pool_has(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            kept = cupy.empty(1000, np.uint8)
        with gpu.on(device=1):
            other = cupy.empty(5 * MIB, np.uint8)
        array = cupy.empty(3 * MIB, np.uint8)
        assert (source.used_bytes(), source.total_bytes()) == (4 * MIB + 1024, 6 * MIB)
        assert source.free_bytes() == 2 * MIB - 1024
        del array
        assert source.free_all_blocks() == 4 * MIB
        assert (source.used_bytes(), source.total_bytes()) == (1024, 2 * MIB)
        with gpu.on(device=1):
            assert source.used_bytes() == 8 * MIB
            del other
        with gpu.on(stream=0x55):
            del kept


# -- bad use


def test_twice_is_refused(gpu):
    with served() as source:
        with pytest.raises(LiveError, match="CuPy is served already"), served():
            pass
        assert cupy.empty(10).data.ptr
        assert in_use(source) == [0]


def test_within_using_allocator_it_is_refused(gpu):
    before = cupy.cuda.get_allocator()
    with (
        cupy.cuda.using_allocator(before),
        pytest.raises(LiveError, match=r"within cupy\.cuda\.using_allocator"),
    ):
        served().__enter__()
    with served() as source:
        cupy.empty(10)
        assert source.heaps


def test_a_heap_cannot_be_closed_under_arrays(gpu):
    with served() as source:
        with pytest.raises(AllocatorError, match=r"0 chunks .* leave serve_cupy's `with`"):
            heap_of(source).close()
        array = cupy.empty(10)
    with pytest.raises(AllocatorError, match=r"1 chunks .* in use by CuPy arrays"):
        heap_of(source).close()
    del array
    heap_of(source).close()


def test_a_limit_above_the_device_is_refused(gpu):
    with pytest.raises(LiveError, match=r"heaps of at most 65.0 MiB .* device 0 has 64.0 MiB"):
        served("65MiB")
    with pytest.raises(InvalidRequest, match="a limit of 0 bytes was given"):
        served(0)
    with pytest.raises(LiveError, match=r"'pinned' .* device, managed"):
        served(memory="pinned")
    assert served("1GiB", memory="managed").heaps


def test_an_error_of_the_driver_reaches_the_caller(gpu):
    class Broken(PythonSubAllocator):
        def allocate(self, alignment, num_bytes):
            raise OSError("the driver is gone")

    gpu.sub_allocator = lambda *_: Broken()
    with served(), pytest.raises(OSError, match="the driver is gone"):
        cupy.empty(10)


def test_a_heap_that_cannot_be_made_says_why(gpu):
    with served() as source:
        make, gpu.sub_allocator = gpu.sub_allocator, None
        with gpu.on(stream=0x55), pytest.raises(TypeError):
            cupy.empty(10)
        gpu.sub_allocator = make
        with gpu.on(stream=0x55):
            assert cupy.empty(10).data.ptr
        assert len(source.heaps) == 2
