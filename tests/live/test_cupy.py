"""CuPy served from our heaps: the real wheel and its arrays, over host memory, with streams made up."""

import ctypes
import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest
from heaps import MIB, assert_model_agrees, assert_survives_growth
from live.cupy_stand_in import Event, cupy, gpu, needs_cupy

from bfcviz.allocator.sub_allocators.base import PythonSubAllocator
from bfcviz.dashboard.live import LiveDashboard
from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.reader import Reader
from bfcviz.events.recording import Recording
from bfcviz.events.schema import Kind
from bfcviz.live import stacks
from bfcviz.live.cupy import observe_cupy, serve_cupy
from bfcviz.live.labels import label

pytestmark = needs_cupy
__all__ = ["gpu"]


def served(limit=None, **options):
    return serve_cupy(limit, log=EventLog(1 << 16), **options)


def heap_of(source, number=0):
    return source.trace_sources[number]


def in_use(source):
    return [heap.stats().chunks_in_use for heap in source.trace_sources]


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


def test_somebody_elses_allocator_is_left_in_place(gpu):
    before = cupy.cuda.get_allocator()

    def other(size):
        return before(size)

    with served():
        cupy.cuda.set_allocator(other)
    assert cupy.cuda.get_allocator() is other
    cupy.cuda.set_allocator(before)


def test_whoever_kept_our_allocator_is_passed_on_to_what_was_there_before(gpu):
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
    assert Reader(log, 0).read(100)["kind"].tolist()[-2:] == [Kind.FREE, Kind.MERGE]


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
        with pytest.raises(OutOfMemory, match=r"out of memory: 9\.0 MiB asked for") as caught:
            cupy.empty(9 * MIB, np.uint8)
        assert (caught.value.requested, caught.value.bytes_limit) == (9 * MIB, 16 * MIB)
        assert source.out_of_memory is caught.value
        assert cupy.empty(1000).data.ptr
        del held
        assert cupy.empty(4 * MIB, np.uint8).data.ptr
    events = Reader(heap_of(source).log, 0).read(1000)
    assert (events["kind"] == Kind.OOM).sum() == 2  # before and after garbage was collected


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


# -- streams


def test_each_stream_has_a_heap_of_its_own(gpu):
    with served() as source:
        one = cupy.empty(1000, np.uint8)
        with gpu.on(stream=0x55):
            two = cupy.empty(1000, np.uint8)
            del two
            three = cupy.empty(1000, np.uint8)
        assert [heap.name for heap in source.trace_sources] == ["cupy:0", "cupy:0 stream 1"]
        assert in_use(source) == [1, 1]
        assert heap_of(source, 0).requested_size(one.data.ptr) == 1000
        assert heap_of(source, 1).requested_size(three.data.ptr) == 1000
        with gpu.on(stream=0x55):
            del three
        del one
    assert gpu.recorded == []


class Users:
    """Whose work may still be under way in memory: of a GPU that is busy for ever, until somebody waits."""

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
        self.last[array.data.ptr] = (array.size, stream)  # whoever frees it was the last to use it
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
    for heap in source.trace_sources:
        heap.check_invariants()


def test_memory_freed_under_another_stream_waits_until_that_is_done(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000, np.uint8)
            address = array.data.ptr
            cupy.empty(10)
        gpu.busy = {0}
        del array  # under the default stream, which may read it
        assert gpu.recorded == [0]
        assert in_use(source) == [0, 1]
        with gpu.on(stream=0x55):
            other = cupy.empty(1000, np.uint8)
            assert other.data.ptr != address
            gpu.busy = set()
            again = cupy.empty(1000, np.uint8)
            assert again.data.ptr == address
            del other, again


def test_of_many_that_wait_for_one_stream_only_the_first_is_asked(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            held = [cupy.empty(1000) for _ in range(300)]
        gpu.busy = {0}
        held.clear()
        assert in_use(source) == [0, 300]
        gpu.asked = 0
        cupy.empty(10)
        assert gpu.asked == 1
        gpu.busy = set()
        cupy.empty(10)
        assert in_use(source) == [0, 0]


def test_a_heap_that_runs_out_waits_for_what_is_held_back(gpu):
    with served("4MiB") as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(3 * MIB, np.uint8)
        gpu.busy = {0}
        del array
        with gpu.on(stream=0x55):
            again = cupy.empty(3 * MIB, np.uint8)
            assert gpu.waited == [0]
            del again
        assert source.out_of_memory is None


def test_what_is_held_back_is_waited_for_at_the_end(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.busy = {0}
        del array
        assert in_use(source) == [0, 1]
    assert in_use(source) == [0, 0]
    assert gpu.waited == [0]


def test_after_the_end_a_free_under_another_stream_waits_at_once(gpu):
    with served() as source, gpu.on(stream=0x55):
        array = cupy.empty(1000)
    gpu.busy = {0}
    del array
    assert gpu.waited == [-1]
    assert in_use(source) == [0, 0]


def test_where_no_event_can_be_recorded_the_device_is_waited_for(gpu):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.broken = True
        del array
        assert gpu.waited == [-1]
        assert in_use(source) == [0, 0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_whose_reader_cannot_be_waited_for_stays_in_use(gpu, monkeypatch):
    with served() as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        gpu.broken = True
        monkeypatch.setattr(gpu, "synchronize", lambda device: 1 // 0)
        del array
        assert in_use(source) == [0, 1]


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
        desk = source._desk
        came = [(0, number) for number in range(1, 10_000)]
        for look in (desk.wait, desk._raise_error, lambda: source._serving(on=True)):
            assert_survives_growth(desk.heaps, heap_of(source), look, came)
            for key in came:
                del desk.heaps[key]


def test_the_default_stream_has_two_names(gpu):
    with served() as source:
        cupy.empty(10)
        with gpu.on(stream=1):
            cupy.empty(10)
        assert len(source.trace_sources) == 1


def test_the_default_stream_of_a_thread_is_its_own(gpu):
    with served() as source:
        seen = []

        def work():
            with gpu.on(stream=2):
                seen.append(cupy.empty(10).data.ptr)
                seen.append(cupy.empty(10).data.ptr)

        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(source.trace_sources) == 3
        assert seen[0] == seen[1]
        assert seen[2] == seen[3]


def test_a_heap_goes_on_with_another_stream_when_its_own_is_gone(gpu):
    with served() as source:
        for turn in range(50):
            with gpu.on(stream=0x100 + turn):
                array = cupy.empty(1000)
                assert cupy.empty(10).data.ptr
                del array
            gpu.streams.pop(0x100 + turn)
        assert len(source.trace_sources) == 2
        assert len(gpu.waited) == 49
        with gpu.on(stream=0x200):
            kept = cupy.empty(1000)
        gpu.streams.pop(0x200)
        with gpu.on(stream=0x300):  # memory of the last is in use still
            assert cupy.empty(1000).data.ptr != kept.data.ptr
        assert len(source.trace_sources) == 3
        with gpu.on(stream=0x200):
            del kept
    for heap in source.trace_sources:
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
        assert len(source.trace_sources) == 2


def test_each_device_has_its_own_heaps(gpu):
    with served() as source:
        with gpu.on(device=1):
            array = cupy.empty(10)
            assert array.data.device_id == 1
        assert [heap.name for heap in source.trace_sources] == ["cupy:0", "cupy:1"]
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
            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            source.settle()  # some were freed when their stream was current no more
            assert sum(in_use(source)) == 0
            assert len(source.trace_sources) == 4
            for heap in source.trace_sources:
                heap.check_invariants()
    finally:
        sys.setswitchinterval(interval)


class Yielding(PythonSubAllocator):
    """Lets other threads have the GIL in the midst of each grant and release; addresses only."""

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


# -- what is recorded, and who watches


def test_labels_and_sizes_are_recorded(gpu):
    with served() as source:
        with label("encoder"):
            array = cupy.empty(300, np.uint8)
        del array
    events = Reader(heap_of(source).log, 0).read(100)
    (born,) = events[events["kind"] == Kind.ALLOCATE]
    assert (born["requested"], born["size"]) == (300, 512)
    assert heap_of(source).labels.name(int(born["label"])) == "encoder"


@pytest.mark.parametrize("watch", [serve_cupy, observe_cupy])
def test_stacks_are_recorded_if_wanted(gpu, watch):
    with watch(log=EventLog(1 << 10), capture="stack") as source:
        if watch is observe_cupy:
            (hook,) = cupy.cuda.memory_hook.get_memory_hooks().values()
            hook.malloc_postprocess(device_id=0, size=512, mem_size=512, mem_ptr=1 << 20, pmem_id=1)
        else:
            cupy.empty(512, np.uint8)
    events = Reader(source.trace_sources[0].log, 0).read(100)
    number = int(events[events["kind"] == Kind.ALLOCATE]["label"][0])
    told = str(source.trace_sources[0].labels[number])
    assert "test_stacks_are_recorded_if_wanted" in told
    assert "_creation" not in told  # CuPy's own frames are left out
    with pytest.raises(LiveError, match="capture='all' was asked for"):
        watch(capture="all")


def test_a_stream_that_comes_as_a_stack_is_told_takes_no_heap_from_the_request(gpu, monkeypatch):
    tell, came = stacks._Teller.__call__, []

    def busy(teller, frame, known):
        if not came:
            gpu.streams.pop(0x55, None)
            came.append(0x66)
            with gpu.on(stream=0x66):
                came.append(cupy.empty(1000))
        return tell(teller, frame, known)

    monkeypatch.setattr(stacks._Teller, "__call__", busy)
    with served(capture="stack") as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        assert source._desk.heaps[0, 0x55].requested_size(array.data.ptr) == 8000
        assert source._desk.heaps[0, 0x66].requested_size(came[1].data.ptr) == 8000


def test_a_recording_takes_it_all(gpu, tmp_path):
    with Recording(tmp_path / "run") as recording, serve_cupy("8MiB", log=recording) as source:
        with label("weights"):
            array = cupy.empty(300)
        assert heap_of(source).labels is recording.labels
        del array
    trace = recording.trace()
    assert "weights" in trace.labels.names
    assert len(trace) == heap_of(source).log.head


def test_a_dashboard_watches_it(gpu):
    with served() as source:
        array = cupy.empty(1000)
        dashboard = LiveDashboard(source.trace_sources, start=False)
        dashboard.refresh()
        assert dashboard.trace.origin.pools[0].name == "cupy:0"
        dashboard.close()
        del array
    assert source.way == "serve"
    assert "CuPy is served" in source.says
    assert "64.0 MiB" in source.says


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
        assert source.trace_sources


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
    with pytest.raises(LiveError, match="memory='pinned' was asked for; choose one of device, managed"):
        served(memory="pinned")
    assert served("1GiB", memory="managed").trace_sources


def test_an_error_of_the_driver_reaches_whoever_asked(gpu):
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
        assert len(source.trace_sources) == 2
