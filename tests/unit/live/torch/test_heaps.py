"""The heaps behind PyTorch's memory: one for each stream, their limits, and what is left to others."""

import ctypes
import threading
import time

import pytest
from fake_cuda import FakeCuda
from fake_torch import OutOfMemoryError
from heaps import MIB
from processes import needs_compiled
from threads import PATIENCE_S

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import Budget
from bfcviz.errors import LiveError
from bfcviz.live.torch.serve import GpuMemory, Heaps, TorchHeap, serve_torch

pytestmark = needs_compiled


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


pytestmark = needs_compiled


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
