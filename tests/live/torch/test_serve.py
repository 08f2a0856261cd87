"""PyTorch on our heaps, with a stand-in for PyTorch: by a pool, in place of its allocator, and what is refused."""

import sys
import types

import pytest
from fake_cuda import FakeCuda
from fake_torch import FakeTorch, HostMemory, OutOfMemoryError
from heaps import MIB, assert_model_agrees
from processes import needs_compiled

import bfcviz
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Budget
from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.labels import label
from bfcviz.live.common.deferred_frees import DeferredFrees
from bfcviz.live.common.headroom import Room
from bfcviz.live.torch import serve as torch_serve
from bfcviz.live.torch.heaps import GpuMemory
from bfcviz.live.torch.serve import serve_torch

pytestmark = needs_compiled


@pytest.fixture
def torch(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    room = lambda device: Room(fake.total, fake.free, 8)  # noqa: E731
    fake.host = types.SimpleNamespace(room=room, source=HostMemory, kind="device")
    monkeypatch.setattr(torch_serve, "GpuMemory", lambda kind: setattr(fake.host, "kind", kind) or fake.host)
    monkeypatch.setattr(torch_serve.TorchServed, "_replaced", None)
    return fake


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


def test_every_device_and_stream_is_served(monkeypatch, torch):
    torch.devices, torch.device = 2, 1
    with serve_torch("16MiB") as served:
        torch.empty(1, device=1)
        torch.stream = 77
        torch.empty(1, device=1)
        torch.empty(1, device=0)
        assert [heap.name for heap in served.heaps] == [
            "torch cuda:1",
            "torch cuda:1",
            "torch cuda:0",
        ]
        assert torch.device == 1


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


def test_the_limit_is_for_all_heaps_of_a_device(torch):
    with serve_torch("8MiB") as served:
        torch.empty(5 * MIB)
        torch.stream = 5
        with pytest.raises(OutOfMemoryError):
            torch.empty(5 * MIB)
        served._pool.renew()  # no heap is trimmed by this
        torch.empty(5 * MIB)  # what the other heap does not use any more is given back for it
    assert [heap.stats().pool_bytes for heap in served.heaps] == [0, 8 * MIB]


def test_pytorch_asks_without_its_lock_meanwhile(torch):
    torch.settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:100"
    with serve_torch():
        assert torch.settings["release_lock_on_cudamalloc"]
        assert torch.settings["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:100,")
    assert not torch.settings["release_lock_on_cudamalloc"]
    torch._set("release_lock_on_cudamalloc:True")
    with serve_torch():
        pass
    assert torch.settings["release_lock_on_cudamalloc"]  # it was asked for before


def test_tensors_outlive_the_with_and_it_can_be_entered_again(torch):
    served = serve_torch()
    for number in (1, 2):
        with pytest.raises(ZeroDivisionError), served:  # noqa: PT012
            torch.empty(1)
            print(1 // 0)
        assert served.heaps[0].stats().num_allocs == number
        assert not torch.pools
    heap = served.heaps[0]
    with pytest.raises(AllocatorError, match=r"2 chunks \(4\.0 MiB\) are in use by PyTorch"):
        heap.close()
    torch.empty_cache()
    heap.close()


def test_a_second_service_is_refused(torch):
    with serve_torch() as served:
        for other in (serve_torch(), served):
            with pytest.raises(LiveError, match="PyTorch is served already"):
                other.__enter__()
        torch.empty(1)
        assert served.heaps[0].stats().num_allocs == 1


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

    torch.cuda.empty_cache = fail
    with serve_torch() as served:
        with pytest.raises(RuntimeError, match="illegal memory"):
            served.empty_cache()
        torch.empty(1)
        assert served.heaps[0].stats().chunks_in_use == 1
    assert not torch.pools


def test_a_failure_tells_what_pytorch_caches(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("8MiB"):  # noqa: PT012
        torch.kept.add(torch.empty(1))
        torch.empty(3 * MIB)
        torch.empty(3 * MIB)
    assert any(
        "4.0 MiB of the heaps are in segments without tensors" in each for each in caught.value.__notes__
    )


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


def test_what_is_free_is_asked_of_a_gpu_in_use_alone(monkeypatch):
    cuda = FakeCuda(memory=1 << 30, devices=2)
    monkeypatch.setattr(cuda_driver, "load", lambda: driver)
    driver, memory = cuda_driver.Driver(cuda), GpuMemory("device")
    assert [memory.room(device)[:2] for device in (0, 1)] == [(1 << 30, 1 << 30)] * 2
    assert not any(driver.has_context(device) for device in (0, 1))
    address = memory.source(1, Budget(1 << 30)).allocate(256, 64 * MIB)
    assert address is not None
    assert [memory.room(device)[:2] for device in (0, 1)] == [
        (1 << 30, 1 << 30),
        (1 << 30, (1 << 30) - 64 * MIB),
    ]
    assert not driver.has_context(0)


@pytest.mark.parametrize("memory", ["device", "managed", "virtual"])
def test_the_kind_of_memory_is_chosen(torch, memory):
    with serve_torch(memory=memory) as served:
        torch.empty(1)
    assert (torch.host.kind, served.heaps[0].stats().chunks_in_use) == (memory, 1)


def test_managed_memory_may_exceed_the_device(torch):
    with serve_torch("65MiB", memory="managed") as served:
        assert served.heaps[0].limit == 65 * MIB


# -- sharing with other processes -----------------------------------------------------------------------------------


def test_served_memory_is_not_shared_with_other_processes(torch):
    others = torch.UntypedStorage(0x1000)
    with serve_torch():
        served = torch.UntypedStorage(torch.empty(3 * MIB) + 2 * MIB)  # inside of a segment
        assert others._share_cuda_() == ("handle", 0x1000)
        with pytest.raises(LiveError, match="shared with another process"):
            served._share_cuda_()
    with pytest.raises(LiveError, match="shared with another process"), serve_torch():
        served._share_cuda_()  # it outlived the first
    assert others._share_cuda_() == ("handle", 0x1000)
    del torch.UntypedStorage
    with serve_torch() as again:
        torch.empty(1)
    assert again.heaps[0].stats().chunks_in_use == 1


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


def test_replaced_it_honours_record_stream(torch):
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


def test_an_allocator_in_use_cannot_be_replaced(torch):
    torch.empty(1)
    with pytest.raises(LiveError, match="has been used already"):
        serve_torch(mechanism="replace").__enter__()
    assert torch.current_allocator is None
    with serve_torch() as served:
        torch.empty(1)
    assert served.heaps[0].stats().num_allocs == 1


def test_stacks_cannot_be_seen(torch):
    with pytest.raises(LiveError, match="capture='label'"):
        serve_torch(capture="stack")
    with serve_torch(capture="nothing") as served, label("encoder"):
        torch.empty(1)
    assert len(served.labels) == 1


# -- what is refused ------------------------------------------------------------------------------------------------


def test_without_pytorch_or_a_gpu_it_says_what_to_do(torch, monkeypatch):
    torch.devices = 0
    with pytest.raises(LiveError, match="sees no CUDA device"):
        serve_torch().__enter__()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LiveError, match="pip install torch"):
        serve_torch().__enter__()


def test_the_drivers_allocator_is_refused(torch):
    torch.backend = "cudaMallocAsync"
    with pytest.raises(LiveError, match="backend:cudaMallocAsync"):
        serve_torch().__enter__()
    assert (torch.pools, torch.settings["release_lock_on_cudamalloc"]) == ({}, False)


def test_the_drivers_allocator_can_be_replaced(torch):
    torch.backend = "cudaMallocAsync"
    with serve_torch("8MiB", mechanism="replace") as served:
        torch.empty(1000)
    assert served.memory_allocated() == 1024


def test_a_limit_above_the_device_is_refused(torch):
    for mechanism in ("pool", "replace"):
        with pytest.raises(LiveError, match=r"65\.0 MiB .* 64\.0 MiB"):
            serve_torch("65MiB", mechanism=mechanism).__enter__()
    assert (torch.current_allocator, torch.pools, torch.made) == (None, {}, [])


def test_an_older_pytorch_says_what_it_lacks(torch):
    del torch.cuda.MemPool
    with pytest.raises(LiveError, match=r"no memory pools .*2\.8"):
        serve_torch().__enter__()
    del torch._C._cuda_customAllocator
    with pytest.raises(LiveError, match="accepts no allocator"):
        serve_torch().__enter__()


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
