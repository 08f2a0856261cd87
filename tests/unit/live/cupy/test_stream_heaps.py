"""CuPy served from our heaps, one per stream: which heap owns memory, and which heap a new stream gets."""

import gc
import os
import sys
import threading

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees, assert_survives_growth
from processes import needs_compiled
from threads import in_threads
from unit.live.cupy_stand_in import Event, cupy, gpu, heap_of, in_use, needs_cupy, served

from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.errors import OutOfMemory

pytestmark = [needs_cupy, needs_compiled]
__all__ = ["gpu"]


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
