"""PyTorch on our heaps, with a stand-in for PyTorch: by a pool, in place of its allocator, and refused arguments."""

import ctypes
import random
import signal
import sys
import threading
import time

import pytest
from fake_cuda import RELAXED, FakeCuda
from fake_torch import Event, OutOfMemoryError
from heaps import KIB, MIB, assert_model_agrees, new_heap
from processes import needs_compiled
from threads import PATIENCE_S
from unit.live.torch.stream_service import NUMBERS, Service

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import Budget
from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import labels_and_marks as names
from bfcviz.live.c_callbacks import StreamTable
from bfcviz.live.deferred_frees import DeferredFrees
from bfcviz.live.labels_and_marks import label
from bfcviz.live.torch.serve import GpuMemory, Heaps, TorchHeap, serve_torch

pytestmark = needs_compiled


# -- by a pool ------------------------------------------------------------------------------------------------------


def test_segments_are_chunks_of_our_heap(torch):
    with serve_torch(log=EventLog(1 << 10)) as served:
        assert (served.way, "memory pool" in served.description) == ("serve", True)
        (heap,) = served.heaps
        assert (heap.name, heap.limit) == ("torch cuda:0", torch.total)
        with label("encoder"):
            first = torch.empty(100)
        second = torch.empty(3 * MIB)
        assert heap.stats().bytes_in_use == 6 * MIB
        assert [heap.requested_size(address) for address in (first, second)] == [2 * MIB, 4 * MIB]
        assert heap.labels.names[1] == "encoder"
    assert torch.empty(100) is None  # PyTorch's own again
    torch.empty_cache()
    assert heap.stats().chunks_in_use == 0
    assert_model_agrees(heap)


def test_watch_gives_what_serves_it(torch):
    """Its `empty_cache` gives back what PyTorch's own does not."""
    with bfcviz.watch(torch="serve", limit="16MiB", dashboard=False) as w:
        (served,) = w.sources
        torch.empty(1)
        torch.empty_cache()
        assert served.heaps[0].stats().chunks_in_use == 1
        served.empty_cache()
        assert served.heaps[0].stats().pool_bytes == 0


def test_watch_serves_it_in_place_of_its_allocator(torch):
    with bfcviz.watch(torch={"way": "replace"}, limit="8MiB", dashboard=False) as w:
        torch.empty(1000)
        assert "until the process ends" in w.says
    assert w.report().stats.requested_bytes_in_use == 1000


def test_a_recording_gets_the_first_heap(torch, tmp_path):
    with Recording(tmp_path / "run") as recording:
        with serve_torch(log=recording) as served:
            torch.empty(1)
        assert served.labels is recording.labels
        assert len(recording.trace()) == served.heaps[0].log.head > 0


def test_out_of_memory_is_pytorchs_error_with_our_numbers(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("8MiB") as served:  # noqa: PT012
        assert served.out_of_memory is None
        torch.empty(5 * MIB)
        torch.empty(5 * MIB)
    error = served.out_of_memory
    assert isinstance(error, OutOfMemory)
    assert (error.requested, error.bytes_limit) == (6 * MIB, 8 * MIB)
    assert "6.0 MiB requested" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError) as caught, served:
        raise RuntimeError
    assert not hasattr(caught.value, "__notes__")


def test_what_ends_the_with_is_not_hidden_by_a_gpu_that_answers_nothing_any_more(torch, monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(DeferredFrees, "free_ready", fail)
    with pytest.raises(ZeroDivisionError), serve_torch():
        print(1 // 0)
    with pytest.raises(RuntimeError, match="illegal memory"), serve_torch():
        pass
    assert not torch.pools


def test_tensors_outlive_the_with_and_it_can_be_entered_again(torch):
    served = serve_torch()
    for number in (1, 2):
        with pytest.raises(ZeroDivisionError), served:  # noqa: PT012
            torch.kept.add(torch.empty(1))
            print(1 // 0)
        assert served.heaps[0].stats().num_allocs == number
        assert not torch.pools
    heap = served.heaps[0]
    with pytest.raises(AllocatorError, match=r"2 chunks \(4\.0 MiB\) are in use by PyTorch"):
        heap.close()
    torch.kept.clear()
    torch.empty_cache()
    heap.close()


def test_it_counts_and_gives_back_as_pytorch_does(torch):
    with serve_torch("8MiB") as served:
        torch.kept.add(torch.empty(1))
        torch.empty(3 * MIB)
        assert (served.memory_allocated(), served.memory_reserved(0)) == (2 * MIB, 6 * MIB)
        torch.kept.clear()
        served.empty_cache()
        assert (served.memory_allocated(), served.memory_reserved()) == (0, 0)
        assert torch.empty(1) is not None
    assert serve_torch().memory_reserved() == 0


# -- in place of its allocator --------------------------------------------------------------------------------------


def test_replaced_it_serves_every_tensor_for_good(torch):
    served = serve_torch("8MiB", mechanism="replace")
    with served:
        assert "until the process ends" in served.description
        first = torch.empty(1000)
    second = torch.empty(1000)
    heap = served.heaps[0]
    assert [heap.requested_size(address) for address in (first, second)] == [1000, 1000]
    with served:  # again: nothing is to be done
        torch.delete(first, 1000)
    with pytest.raises(LiveError, match="was replaced before"):
        serve_torch().__enter__()
    torch.delete(second, 1000)
    assert heap.stats().chunks_in_use == 0


def test_replaced_it_serves_even_if_a_heap_could_not_be_made_ahead(torch, monkeypatch):
    served = serve_torch("8MiB", mechanism="replace")
    with monkeypatch.context() as broken:
        broken.setattr(torch.host, "source", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            served.__enter__()
    torch.current_allocator.free(torch.empty(1000), 1000, 0, None)
    with served:
        assert served.heaps[0].stats().num_allocs == 1


def test_replaced_it_honours_record_stream(torch, monkeypatch):
    modes = []
    ask = lambda event: (modes.append(torch.library.mode), event.done)[1]  # noqa: E731
    monkeypatch.setattr(Event, "query", ask)
    with serve_torch("8MiB", mechanism="replace") as served:
        address = torch.empty(1000)
        torch.current_allocator.record(address, 99)
        torch.delete(address, 1000)
        (event,) = torch.events
        assert event.stream == (0, 99)
        assert served.heaps[0].stats().chunks_in_use == 1
        served.settle()
        assert served.heaps[0].stats().chunks_in_use == 1
        event.done = True
        served.settle()
        assert served.heaps[0].stats().chunks_in_use == 0
    assert set(modes) == {RELAXED}  # in another mode it breaks a capture of any thread


def test_stacks_cannot_be_seen(torch):
    with pytest.raises(LiveError, match="capture='label'"):
        serve_torch(capture="stack")
    with serve_torch(capture="nothing") as served, label("encoder"):
        torch.empty(1)
    assert len(served.labels) == 1


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"memory": "async"}, InvalidRequest),
        ({"fraction": 0}, InvalidRequest),
        ({"limit": "1GiB", "headroom": "1GiB"}, InvalidRequest),
        ({"memory": "host"}, InvalidRequest),
        ({"mechanism": "both"}, InvalidRequest),
        ({"limit": "much"}, ValueError),
        ({"limit": -1}, ValueError),
    ],
)
def test_what_cannot_be_is_refused(arguments, error):
    with pytest.raises(error):
        serve_torch(**arguments)


def test_a_pool_without_cache_is_refused(torch, monkeypatch):
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    with pytest.raises(LiveError, match=r"PYTORCH_NO_CUDA_MEMORY_CACHING is set.*mechanism='replace'"):
        serve_torch().__enter__()
    assert not torch.pools


@pytest.mark.parametrize("mechanism", ["pool", "replace"])
def test_an_allocator_that_other_code_plugged_in_is_left_alone(torch, mechanism):
    torch.backend = "pluggable"
    torch.cuda.memory_reserved = None  # PyTorch then has no statistics
    with pytest.raises(LiveError, match="replaced its allocator"):
        serve_torch(mechanism=mechanism).__enter__()
    assert (torch.current_allocator, torch.pools, torch.made) == (None, {}, [])


# ------------------------------------------------------------------------------
# The heaps behind PyTorch's memory: one for each stream, their limits, and what is left to others.


def test_every_device_and_stream_is_served(monkeypatch, torch):
    torch.devices, torch.device = 2, 1
    with serve_torch("16MiB") as served:
        torch.empty(1, device=1)
        torch.stream = 77
        torch.empty(1, device=1)
        torch.empty(1, device=0)
        assert [heap.name for heap in served.heaps] == [
            "torch cuda:1",
            "torch cuda:1 stream 1",
            "torch cuda:0",
        ]
        assert torch.device == 1


def test_the_limit_is_for_all_heaps_of_a_device(torch):
    served = serve_torch("8MiB")
    with served:
        torch.empty(5 * MIB)
        torch.stream = 5
        with pytest.raises(OutOfMemoryError):
            torch.empty(5 * MIB)
        served.empty_cache()
        torch.empty(5 * MIB)  # what the other heap does not use any more is given back for it
        assert [heap.stats().pool_bytes for heap in served.heaps] == [0, 8 * MIB]


def test_what_other_streams_hold_is_told_with_the_failure(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("16MiB") as served:  # noqa: PT012
        torch.kept.add(torch.empty(5 * MIB))
        torch.stream = 0x77
        torch.empty(3 * MIB)
        assert served.out_of_memory is None
        torch.empty(9 * MIB)
    assert served.out_of_memory.others == (("stream 0x0", 8 * MIB, 8 * MIB),)
    assert any("stream 0x0 8.0 MiB" in each for each in caught.value.__notes__)


def test_by_default_memory_is_left_to_cudas_libraries(torch):
    torch.total, torch.free = 16 << 30, 10 << 30
    kept = (
        1536,
        1024,
        6 * 1024,
    )  # as TensorFlow for compute capability 8; as asked for; as what a half leaves
    for options, left in zip(({}, {"headroom": "1GiB"}, {"fraction": 0.25}), kept, strict=True):
        with serve_torch(**options) as served:
            assert served.heaps[0].limit == torch.free - (left << 20)


def test_what_other_processes_have_is_not_free(monkeypatch):
    cuda = FakeCuda(memory=1 << 30, devices=2)
    cuda.allocated[cuda.BASE] = 64 * MIB  # of another process, on device 0
    monkeypatch.setattr(cuda_driver, "load", lambda: driver)
    driver, memory = cuda_driver.Driver(cuda), GpuMemory("device")
    assert memory.total(0) == 1 << 30
    assert not driver.has_context(0)
    assert memory.room(0)[:2] == (1 << 30, (1 << 30) - 64 * MIB)
    assert not driver.has_context(1)


def test_a_heap_gives_virtual_memory_back_behind_its_own_stream(monkeypatch):
    cuda = FakeCuda()
    driver = cuda_driver.Driver(cuda)
    monkeypatch.setattr(cuda_driver, "load", lambda: driver)
    stream = cuda.add_stream()
    source = GpuMemory("virtual").source(0, Budget(64 * MIB), lambda: stream)
    region = source.allocate(256, MIB)
    cuda.begin_capture(stream)
    source.free(*region)
    assert (cuda.used, cuda.end_capture(stream)) == (2 * MIB, 0)
    source.close()
    assert (cuda.used, cuda.synchronized) == (0, [stream])


def test_the_source_of_a_heap_knows_its_stream(torch):
    with serve_torch("16MiB") as served:
        torch.stream = 0x77
        torch.empty(1)
        torch.stream = 0
        torch.empty(1)
        assert [heap.sub_allocator.stream_of() for heap in served.heaps] == [0x77, 0]


def test_the_limit_of_a_device_is_what_is_free_when_memory_is_first_requested_there(torch):
    torch.devices, torch.total, torch.free = 2, 16 << 30, 10 << 30
    asked = []
    room = torch.host.room
    torch.host.room = lambda device: (asked.append(device), room(device))[1]
    with serve_torch(headroom="1GiB") as served:
        assert asked == [0]
        torch.empty(1)
        torch.free = 4 << 30
        torch.empty(1, device=1)
        assert asked == [0, 1]
        assert [heap.limit for heap in served.heaps] == [9 << 30, 3 << 30]


def test_pytorchs_idle_cache_is_emptied_first_and_it_is_said(torch):
    torch.total, torch.free, torch.cached = 16 << 30, 1 << 30, {0: 9 << 30}
    with serve_torch(headroom="1GiB") as served:
        assert served.heaps[0].limit == 9 << 30
        assert "9.0 GiB" in served.description
    with serve_torch(headroom="1GiB") as served:
        assert "GiB" not in served.description


@pytest.mark.parametrize("memory", ["device", "managed", "virtual"])
def test_the_kind_of_memory_is_chosen(torch, memory):
    with serve_torch(memory=memory) as served:
        torch.kept.add(torch.empty(1))
    assert (torch.host.kind, served.heaps[0].stats().chunks_in_use) == (memory, 1)


def test_managed_memory_may_exceed_the_device(torch):
    with serve_torch("65MiB", memory="managed") as served:
        assert served.heaps[0].limit == 65 * MIB


def test_a_limit_above_the_device_is_refused(torch):
    for mechanism in ("pool", "replace"):
        with pytest.raises(LiveError, match=r"65\.0 MiB .* 64\.0 MiB"):
            serve_torch("65MiB", mechanism=mechanism).__enter__()
    assert (torch.current_allocator, torch.pools, torch.made) == (None, {}, [])


def test_pytorch_asks_without_its_lock_meanwhile(torch):
    torch.settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:100"
    with serve_torch():
        assert torch.settings["release_lock_on_cudamalloc"]
        assert torch.settings["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:100,")
    assert not torch.settings["release_lock_on_cudamalloc"]
    torch.settings["release_lock_on_cudamalloc"] = True
    with serve_torch():
        pass
    assert torch.settings["release_lock_on_cudamalloc"]  # it was asked for before


def test_empty_cache_gives_back_what_no_tensor_uses(torch):
    with serve_torch("8MiB") as served:
        (heap,) = served.heaps
        torch.kept.add(torch.empty(2 * MIB))
        torch.empty(5 * MIB)
        with pytest.raises(OutOfMemoryError):
            torch.empty(3 * MIB)
        torch.empty_cache()
        assert heap.stats().requested_bytes_in_use == 8 * MIB  # PyTorch keeps a pool in use whole
        served.empty_cache()
        assert heap.stats().requested_bytes_in_use == 2 * MIB
        torch.empty(3 * MIB)  # goes on with our heap
        assert heap.stats().requested_bytes_in_use == 6 * MIB
    assert not torch.pools
    torch.kept.clear()
    served.empty_cache()
    assert (heap.stats().chunks_in_use, heap.stats().pool_bytes) == (0, 0)


def test_an_empty_cache_that_fails_leaves_pytorch_served(torch):
    def fail():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with serve_torch() as served:
        works, torch.cuda.empty_cache = torch.cuda.empty_cache, fail
        with pytest.raises(RuntimeError, match="illegal memory"):
            served.empty_cache()
        torch.cuda.empty_cache = works
        torch.empty(1)
        assert served.heaps[0].stats().chunks_in_use == 1
    assert not torch.pools


def test_at_the_end_the_device_gets_its_memory_back(torch):
    before = len(Heaps.served)
    for _ in range(3):
        with serve_torch("64MiB") as served:
            for stream in (0, 5):
                torch.stream = stream
                torch.empty(20 * MIB)
        assert [heap.stats().pool_bytes for heap in served.heaps] == [0, 0]
        assert len(Heaps.served) == before
    assert served.heaps[0].stats().num_allocs == 1


def test_what_outlives_the_with_goes_back_with_the_last_tensor(torch):
    before, torch.total = len(Heaps.served), 256 * MIB
    with serve_torch("128MiB") as served:
        torch.kept.add(torch.empty(20 * MIB))
        torch.empty(30 * MIB)
        torch.stream = 5
        torch.kept.add(torch.empty(1))
    first, second = served.heaps
    assert (first.stats().requested_bytes_in_use, first.stats().pool_bytes) == (20 * MIB, 32 * MIB)
    with serve_torch("16MiB") as other:  # another service does not hinder it
        torch.empty(1)
        torch.kept.clear()
        torch.empty_cache()
        assert (first.stats().pool_bytes, second.stats().pool_bytes) == (0, 0)
        assert other.heaps[0].stats().chunks_in_use == 1
        assert len(Heaps.served) == before + 1
    assert len(Heaps.served) == before
    with served:
        torch.empty(1)
        assert second.stats().num_allocs + first.stats().num_allocs == 4


def test_a_service_that_begins_again_keeps_its_heaps_while_others_are_tidied(torch, monkeypatch):
    with serve_torch("64MiB") as served:
        torch.empty(1)
    put = Heaps._put
    monkeypatch.setattr(Heaps, "_put", lambda *row: (put(*row), Heaps.tidy()))  # as the thread may
    for _ in range(3):
        with served:
            assert set(served.heaps) <= set(Heaps.served)
            torch.empty(1)
            assert served.heaps[0].stats().chunks_in_use == 1
    assert len(served.heaps) == len(served._heaps._rows()) == 1


def test_a_heap_whose_service_begins_again_while_it_is_tidied_is_kept(torch, monkeypatch):
    with serve_torch("64MiB") as served:
        torch.kept.add(torch.empty(1))
    (heap,) = served.heaps
    torch.kept.clear()

    def give_back(self):
        self.is_serving = True
        return self.trim()

    monkeypatch.setattr(TorchHeap, "give_back", give_back)
    torch.empty_cache()
    Heaps.tidy()
    assert heap in Heaps.served
    monkeypatch.undo()
    heap.is_serving = False
    Heaps.tidy()
    assert heap not in Heaps.served


def test_no_heap_is_added_for_a_request_that_comes_as_the_service_ends(torch):
    with serve_torch("64MiB") as served:
        torch.empty(1)
    served._heaps.add(0)
    assert len(served._heaps.of(0)) == 1
    assert not set(served._heaps.of(0)) & set(Heaps.served)


def test_a_thread_may_hold_the_lock_of_pytorch_while_it_frees_what_outlived_the_with(torch):
    """The thread with the GIL may wait for that lock: the free must not wait for the GIL for ever."""
    with serve_torch("64MiB") as served:
        kept = torch.empty(20 * MIB)
        torch.kept.add(kept)
    address, size, device, stream = torch.made[-1].segments.pop()
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    pointer = ctypes.cast(torch.made[-1].allocator.free, ctypes.c_void_p).value
    free(pointer)(address, size, device, stream or None)  # this call keeps the GIL
    (heap,) = served.heaps
    deadline = time.monotonic() + PATIENCE_S
    while heap.stats().pool_bytes and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert heap.stats().pool_bytes == 0


def test_a_failure_tells_what_pytorch_caches(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("8MiB"):  # noqa: PT012
        torch.kept.add(torch.empty(1))
        torch.empty(3 * MIB)
        torch.empty(3 * MIB)
    assert any(
        "4.0 MiB of the heaps are in segments without tensors" in each for each in caught.value.__notes__
    )


def test_an_older_pytorch_says_what_it_lacks(torch):
    del torch.cuda.MemPool
    with pytest.raises(LiveError, match=r"no memory pools .*2\.8"):
        serve_torch().__enter__()
    del torch._C._cuda_customAllocator
    with pytest.raises(LiveError, match="accepts no allocator"):
        serve_torch().__enter__()


# ------------------------------------------------------------------------------
# The functions PyTorch calls: a heap for each stream, frees that wait for other streams, errors, threads.


@pytest.fixture
def service():
    made = Service()
    yield made
    made.table.stop(made.deferred)


def test_every_stream_of_every_device_has_a_heap(service):
    addresses = [
        service.alloc(1000, device, stream) for device, stream in ((0, 0), (0, 5), (0, 9), (1, 0), (0, 5))
    ]
    assert len(set(addresses)) == 5
    assert None not in addresses
    assert sorted(service.in_use()) == [(0, 0), (0, 5), (0, 9), (1, 0)]
    found = {
        (stream_heap.device, stream_heap.stream): stream_heap.allocator
        for stream_heap in service.table.in_use()
    }
    assert {key: heap.stats().chunks_in_use for key, heap in found.items()} == {
        (0, 0): 1, (0, 5): 2, (0, 9): 1, (1, 0): 1,
    }  # fmt: skip
    assert found[0, 0] is service.heaps[0]  # the oldest spare one is taken first


def test_ctrl_c_while_python_is_asked_reaches_the_program(service, monkeypatch):
    monkeypatch.setattr(service.deferred, "add_heap", lambda *_: signal.raise_signal(signal.SIGINT))
    for _ in range(2):
        service.alloc(1000, stream=next(NUMBERS))
    interrupted = []
    try:
        assert service.alloc(1000, stream=7) is None
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        interrupted.append(7)
    assert interrupted == [7]
    assert service.alloc(1000, stream=service.in_use()[0][1])


def test_an_error_while_python_is_asked_is_printed(service, monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: printed.append(told.exc_value))

    def fail(*_):
        raise OSError("no memory left")

    monkeypatch.setattr(service.deferred, "add_heap", fail)
    assert [service.alloc(1000, stream=stream) is None for stream in (1, 2, 3)] == [False, False, True]
    assert [str(each) for each in printed] == ["no memory left"]


def test_what_one_stream_frees_no_other_gets(service):
    chooser, held, owner = random.Random(3), [], {}
    for _ in range(3000):
        if len(held) > 30 or (held and chooser.random() < 0.4):
            address, stream = held.pop(chooser.randrange(len(held)))
            service.free(address, stream=stream)
        stream = chooser.choice((0, 11, 22))
        address = service.alloc(chooser.randrange(1, 20 * KIB), stream=stream)
        assert owner.setdefault(address, stream) == stream
        assert address not in [other for other, _ in held]
        held.append((address, stream))
    for address, stream in held:
        service.free(address, stream=stream)
    for heap in service.heaps:
        assert heap.stats().chunks_in_use == 0
        assert_model_agrees(heap)


def test_memory_comes_home_after_the_service(service):
    address = service.alloc(100, stream=3)
    service.table.stop(service.deferred)
    assert service.alloc(100, stream=3) is None
    other = Service()
    theirs = other.alloc(100, stream=3)
    service.free(address, stream=3)
    assert service.table.in_use()[0].allocator.stats().chunks_in_use == 0
    other.free(theirs, stream=8)  # RMM frees on whatever stream
    assert other.table.in_use()[0].allocator.stats().chunks_in_use == 0


def test_a_heap_is_removed_when_its_service_ended_and_nothing_is_in_use(service):
    address = service.alloc(100, stream=3)
    heap = service.table.in_use()[0].allocator
    assert not service.table.remove(heap)
    service.table.stop(service.deferred)
    assert not service.table.remove(heap)
    service.free(address, stream=3)
    references = sys.getrefcount(heap)
    assert service.table.remove(heap)
    assert sys.getrefcount(heap) == references - 1
    assert not service.table.remove(heap)
    assert service.table.in_use() == []


def test_a_late_free_does_not_wait_for_ever_for_the_thread_that_acts_on_it(service):
    addresses = [service.alloc(100, stream=3) for _ in range(2)]
    heap = service.table.in_use()[0].allocator
    service.table.stop(service.deferred)
    frees = service.table.late_frees()
    next(frees)
    for address in addresses:
        service.free(address, stream=3)
    next(frees)  # they were told all the same
    frees.close()
    assert heap.stats().chunks_in_use == 0


def test_after_the_service_a_request_makes_no_heap(service):
    service.table.stop(service.deferred)
    assert service.alloc(1000, stream=99) is None
    assert len(service.heaps) == 2


def test_out_of_memory_is_null_and_known(service):
    held = service.alloc(600 * KIB)
    assert service.alloc(500 * KIB) is None
    assert service.alloc(0) is None
    service.free(None)
    number, *numbers = service.table.in_use()[0].failure
    assert number > 0
    assert numbers == [500 * KIB, MIB, MIB, 0]
    service.free(held)
    assert service.alloc(500 * KIB) is not None


def test_a_stream_without_a_heap_gets_nothing():
    service = Service(spare=1, more=False)
    assert service.alloc(100, stream=1) is not None
    assert service.alloc(100, stream=2) is None
    service.table.stop(service.deferred)


def test_allocations_carry_the_threads_label():
    service = Service(spare=0)
    heap = new_heap()
    service.table = StreamTable(next(NUMBERS), names.use(heap.labels))
    service.table.add(heap, 0)
    service.table.serve(0, service.deferred)
    with names.label("encoder"):
        service.alloc(100)
    service.alloc(100)
    service.table.stop(service.deferred)
    events = heap.log.copy(0, heap.log.head)
    found = events[events["kind"] == Kind.ALLOCATE]["label"]
    assert [heap.labels.name(number) for number in found] == ["encoder", ""]


# -- memory that a second stream reads ------------------------------------------------------------------------------


def test_a_free_waits_for_the_streams_that_read_the_memory(service):
    address = service.alloc(1000, stream=1)
    service.record(address, 2)
    service.record(address, 1)  # its own: says nothing
    service.free(address, stream=1)
    (event,) = service.streams.events
    assert event.stream == 2
    assert service.alloc(1000, stream=1) != address
    event.done = True
    assert service.alloc(1000, stream=1) == address


def test_where_memory_runs_out_such_frees_are_waited_for(service):
    address = service.alloc(MIB)
    service.record(address, 2)
    service.free(address)
    assert service.alloc(MIB) == address
    assert service.streams.events[0].waited


def test_a_stream_that_is_gone_is_waited_for_with_its_device(service):
    address = service.alloc(1000)
    service.record(address, 2)
    service.streams.gone = True
    service.free(address)
    assert service.streams.synchronized == [0]
    assert service.alloc(1000) == address


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_whose_readers_cannot_be_waited_for_stays_in_use(service, monkeypatch):
    address = service.alloc(1000)
    service.record(address, 2)
    service.streams.gone = True
    monkeypatch.setattr(service.streams, "synchronize", lambda device: 1 // 0)
    service.free(address)
    assert service.heaps[0].stats().chunks_in_use == 1


def test_an_event_that_cannot_be_asked_loses_no_memory(service, monkeypatch):
    addresses = [service.alloc(1000) for _ in range(3)]
    for number, address in enumerate(addresses):
        service.record(address, 2 + number % 2)
        service.free(address)
    first, broken, third = service.streams.events
    first.done = third.done = True
    monkeypatch.setattr(broken, "query", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        service.deferred.free_ready(0, 0, 0)
    assert service.heaps[0].stats().chunks_in_use == 1
    monkeypatch.setattr(broken, "query", lambda: True)
    assert service.deferred.free_ready(0, 0, 0)
    assert service.heaps[0].stats().chunks_in_use == 0


def test_a_note_goes_with_its_memory(service):
    address = service.alloc(1000)
    service.record(address, 2)
    service.free(address)
    service.streams.events[0].done = True
    assert service.alloc(1000) == address
    service.free(address)
    assert len(service.streams.events) == 1


# -- threads and ends -----------------------------------------------------------------------------------------------


def test_threads_allocate_without_python():
    service = Service(spare=4, limit=64 * MIB)
    wrong = []

    def work(stream):
        chooser = random.Random(stream)
        held = {}
        for _ in range(2000):
            size = chooser.randrange(1, 5000)
            address = service.alloc(size, stream=stream)
            if address is None or address in held:
                wrong.append(address)
            held[address] = size
            if len(held) > 20:
                address = chooser.choice(list(held))
                service.free(address, held.pop(address), stream=stream)
        for address, size in held.items():
            service.free(address, size, stream=stream)

    threads = [threading.Thread(target=work, args=(number % 4,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(service.in_use()) == [(0, stream) for stream in range(4)]
    for heap in service.heaps:
        assert heap.stats().chunks_in_use == 0
        heap.check_invariants()
    service.table.stop(service.deferred)
