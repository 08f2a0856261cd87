"""CuPy served from our heaps: the real wheel and its arrays, over host memory, with streams made up."""

import contextlib
import ctypes
import gc
import os
import pickle
import sys
import threading
import weakref

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees, assert_survives_growth
from processes import needs_compiled
from threads import in_threads
from unit.live.cupy_stand_in import Event, cupy, gpu, heap_of, in_use, needs_cupy, served

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


# ------------------------------------------------------------------------------
# The allocator that CuPy calls: requests before, within and after the `with`, and garbage collections in them.


def test_an_allocator_of_other_code_is_left_in_place(gpu):
    before = cupy.cuda.get_allocator()

    def other(size):
        return before(size)

    with served():
        cupy.cuda.set_allocator(other)
    assert cupy.cuda.get_allocator() is other
    cupy.cuda.set_allocator(before)


def test_after_the_with_our_allocator_passes_requests_to_the_previous_one(gpu):
    asked = []

    def before(size):
        asked.append(size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, size, None, 0), 0)

    plain = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(before)
    with served() as source:
        kept = cupy.cuda.get_allocator()
    assert kept(1000).ptr == 1 << 20
    assert asked == [1000]
    assert in_use(source) == [0]
    cupy.cuda.set_allocator(plain)


def test_a_thread_may_ask_while_it_begins(gpu, monkeypatch):
    plain, seen = cupy.cuda.get_allocator(), []

    def before(size):
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 20, size, None, 0), 0)

    def set_and_ask(allocator):
        cupy.cuda.set_allocator(allocator)
        seen.append(allocator(1000).ptr)

    cupy.cuda.set_allocator(before)
    monkeypatch.setattr(gpu, "set_allocator", set_and_ask)
    with served():
        assert seen == [1 << 20]
    cupy.cuda.set_allocator(plain)


def test_garbage_is_collected_before_a_request_fails(gpu):
    class Cycle:
        def __init__(self):
            self.itself, self.array = self, cupy.empty(6 * MIB, np.uint8)

    gc.disable()
    try:
        with served("8MiB") as source:
            Cycle()
            assert in_use(source) == [1]
            assert cupy.empty(6 * MIB, np.uint8).data.ptr
            assert source.out_of_memory is None
    finally:
        gc.enable()


def test_a_collection_in_the_midst_of_a_request_may_free(gpu):
    class Cycle:
        def __init__(self):
            self.itself, self.array = self, cupy.empty(1000, np.uint8)

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with served() as source:
            for _ in range(500):
                Cycle()
            gc.collect()
            assert in_use(source) == [0]
            heap_of(source).check_invariants()
    finally:
        gc.set_threshold(*threshold)


# ------------------------------------------------------------------------------
# CuPy served from our heaps, one per stream: which heap owns memory, and which heap a new stream gets.


def test_each_stream_has_a_heap_of_its_own(gpu):
    with served() as source:
        one = cupy.empty(1000, np.uint8)
        with gpu.on(stream=0x55):
            two = cupy.empty(1000, np.uint8)
            del two
            three = cupy.empty(1000, np.uint8)
        assert [heap.name for heap in source.heaps] == ["cupy:0", "cupy:0 stream 1"]
        assert in_use(source) == [1, 1]
        assert heap_of(source, 0).requested_size(one.data.ptr) == 1000
        assert heap_of(source, 1).requested_size(three.data.ptr) == 1000
        with gpu.on(stream=0x55):
            del three
        del one
    assert gpu.recorded == []


class Users:
    """Whose work may still be under way in memory: of a GPU that stays busy until the program waits."""

    def __init__(self, gpu):
        self.gpu, self.held, self.last, self.waits = gpu, [], {}, 0

    def allocate(self, size, stream):
        array = cupy.empty(size, np.uint8)
        if len(self.gpu.waited) > self.waits:
            self.waits = len(self.gpu.waited)
            self.last.clear()  # all that was held back was waited for
        begin = array.data.ptr
        for address, (length, user) in self.last.items():
            assert user == stream or address + length <= begin or begin + size <= address
        self.held.append(array)

    def free(self, number, stream):
        array = self.held[number]
        self.last[array.data.ptr] = (array.size, stream)  # the stream that frees it used it last
        del self.held[number]


def test_memory_in_use_on_one_stream_never_goes_to_another_unsynchronised(gpu):
    rng = np.random.default_rng(7)
    streams = [0, 0x50, 0x60, 0x70]
    gpu.busy = set(streams)
    users = Users(gpu)
    with served("4MiB") as source:
        for _ in range(3000):
            stream = streams[rng.integers(len(streams))]
            with gpu.on(stream=stream):
                if users.held and rng.random() < 0.48:
                    users.free(int(rng.integers(len(users.held))), stream)
                else:
                    users.allocate(int(rng.integers(1, 40_000)), stream)
        assert len(gpu.recorded) > 500
        assert gpu.waited
        users.held.clear()
    for heap in source.heaps:
        heap.check_invariants()


def test_where_the_gpu_answers_nothing_any_more_the_allocator_is_restored_all_the_same(gpu, monkeypatch):
    def fail(event):
        raise RuntimeError("cudaErrorIllegalAddress")

    source = served()
    before = cupy.cuda.get_allocator()
    monkeypatch.setattr(Event, "synchronize", fail)
    gpu.busy = {0}
    for error in (RuntimeError, ZeroDivisionError):
        with pytest.raises(error), source:  # noqa: PT012
            with gpu.on(stream=0x55):
                array = cupy.empty(1000)
            del array
            if error is ZeroDivisionError:
                cupy.empty(1 // 0)
        assert cupy.cuda.get_allocator() == before


def test_heaps_may_come_while_they_are_looked_at(gpu):
    with served() as source:
        stream_heaps = source.stream_heaps
        came = [(0, number) for number in range(1, 10_000)]
        for look in (
            stream_heaps.wait,
            stream_heaps.raise_error,
            lambda: (source.close(), source.__enter__()),
        ):
            assert_survives_growth(stream_heaps.heaps, heap_of(source), look, came)
            for key in came:
                del stream_heaps.heaps[key]


def test_the_default_stream_has_two_names(gpu):
    with served() as source:
        cupy.empty(10)
        with gpu.on(stream=1):
            cupy.empty(10)
        assert len(source.heaps) == 1


def test_the_default_stream_of_a_thread_is_its_own(gpu):
    seen, turns = {}, threading.Barrier(2)

    def work(number):
        with gpu.on(stream=2):
            seen[number] = [cupy.empty(10).data.ptr]
            turns.wait()
            seen[number].append(cupy.empty(10).data.ptr)

    with served() as source:
        in_threads(work, 2)
        assert len(source.heaps) == 3
        assert seen[0][0] == seen[0][1] != seen[1][0] == seen[1][1]


def test_the_heaps_of_threads_that_ended_are_used_again(gpu):
    def work():
        with gpu.on(stream=2):
            cupy.empty(1000)

    with served() as source:
        for _ in range(50):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(source.heaps) == 2
        assert sum(heap.stats().pool_bytes for heap in source.heaps) <= 2 * MIB
        assert gpu.waited == [-1] * 49


def test_a_thread_that_lives_keeps_its_heap(gpu):
    here, done = threading.Barrier(4), threading.Event()

    def work():
        with gpu.on(stream=2):
            cupy.empty(1000)
            here.wait()
            done.wait()
            cupy.empty(1000)

    with served() as source:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        here.wait()
        assert len(source.heaps) == 4
        assert gpu.waited == []
        done.set()
        for thread in threads:
            thread.join()
        with gpu.on(stream=0x55):
            cupy.empty(1000)
        pools = [heap.stats().pool_bytes for heap in source.heaps]
        assert sorted(pools) == [0, 0, 0, 2 * MIB]  # the main thread's has none yet, two gave theirs back


def test_while_a_graph_is_captured_no_heap_of_a_thread_that_ended_is_used_again(gpu):
    def work():
        with gpu.on(stream=2):
            cupy.empty(1000)

    with served() as source:
        for captured in ({0x55}, set()):
            gpu.captured = captured
            for _ in range(2):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            assert len(source.heaps) == 3
        gpu.captured = set()


def test_a_heap_goes_on_with_another_stream_when_its_own_is_gone(gpu):
    with served() as source:
        for turn in range(50):
            with gpu.on(stream=0x100 + turn):
                array = cupy.empty(1000)
                assert cupy.empty(10).data.ptr
                del array
            gpu.streams.pop(0x100 + turn)
        assert len(source.heaps) == 2
        assert len(gpu.waited) == 49
        with gpu.on(stream=0x200):
            kept = cupy.empty(1000)
        gpu.streams.pop(0x200)
        with gpu.on(stream=0x300):  # memory of the last is in use still
            assert cupy.empty(1000).data.ptr != kept.data.ptr
        assert len(source.heaps) == 3
        with gpu.on(stream=0x200):
            del kept
    for heap in source.heaps:
        heap.check_invariants()
        assert_model_agrees(heap)


def test_a_foreign_stream_that_is_gone_is_waited_for_with_its_device(gpu, monkeypatch):
    with served() as source:
        with gpu.on(stream=0x55):
            cupy.empty(1000)
        monkeypatch.setattr(gpu.streams.pop(0x55).__class__, "synchronize", lambda stream: 1 // 0)
        with gpu.on(stream=0x66):
            assert cupy.empty(1000).data.ptr
        assert gpu.waited == [-1]
        assert len(source.heaps) == 2


def test_each_device_has_its_own_heaps(gpu):
    with served() as source:
        with gpu.on(device=1):
            array = cupy.empty(10)
            assert array.data.device_id == 1
        assert [heap.name for heap in source.heaps] == ["cupy:0", "cupy:1"]
        assert in_use(source) == [0, 1]
        with gpu.on(device=1):
            del array


def test_free_regions_of_other_streams_make_room(gpu):
    with served("8MiB") as source:
        with gpu.on(stream=0x55):
            del_me = cupy.empty(6 * MIB, np.uint8)
            del del_me
        pool = heap_of(source, 1).stats().pool_bytes
        assert pool >= 6 * MIB
        gpu.regions[0, 0].__init__(type("Budget", (), {"limit": 1 << 10}), None)
        with pytest.raises(OutOfMemory):
            cupy.empty(6 * MIB, np.uint8)
        assert heap_of(source, 1).stats().pool_bytes == 0


def test_many_threads(gpu):
    errors = []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            with gpu.on(stream=0x50 + number % 3):
                held = []
                for _ in range(400):
                    held.append(cupy.empty(int(rng.integers(1, 9000)), np.uint8))
                    if len(held) > 10:
                        held.pop(int(rng.integers(10)))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with served() as source:
            in_threads(work, 6)
            assert errors == []
            source.settle()  # some were freed when their stream was current no more
            assert sum(in_use(source)) == 0
            assert len(source.heaps) == 4
            for heap in source.heaps:
                heap.check_invariants()
    finally:
        sys.setswitchinterval(interval)


class Yielding(PythonSubAllocator):
    """Lets other threads have the GIL during each grant and release; addresses only."""

    def __init__(self, number):
        super().__init__()
        self.top = number << 44

    def allocate(self, alignment, num_bytes):
        for _ in range(20):
            os.sched_yield()
        gc.collect(0)
        self.top += 1 << 32
        return self.top, num_bytes

    def free(self, address, num_bytes):
        for _ in range(20):
            os.sched_yield()


@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="needs sched_yield")
def test_threads_that_grow_and_trim_one_heap_at_once(gpu):
    errors = []
    gpu.sub_allocator = lambda _memory, _device, stream, _budget: Yielding(1 + stream)

    def work():
        try:
            for turn in range(60):
                array = cupy.empty((turn % 7 + 1) * MIB // 4, np.uint8)
                del array
                heap_of(source).trim()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with served("48MiB") as source:
        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert in_use(source) == [0]
        heap_of(source).check_invariants()
        assert_model_agrees(heap_of(source))
