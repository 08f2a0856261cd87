"""The heaps behind PyTorch's memory: one for each stream, their limits, and what is left to others."""

import pytest
from fake_cuda import FakeCuda
from fake_torch import OutOfMemoryError
from heaps import MIB
from processes import needs_compiled

from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Budget
from bfcviz.errors import LiveError
from bfcviz.live.torch.heaps import GpuMemory
from bfcviz.live.torch.serve import serve_torch

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
            "torch cuda:1",
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
    torch.empty_cache()  # trims no heap
    with served:
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


def test_an_older_pytorch_says_what_it_lacks(torch):
    del torch.cuda.MemPool
    with pytest.raises(LiveError, match=r"no memory pools .*2\.8"):
        serve_torch().__enter__()
    del torch._C._cuda_customAllocator
    with pytest.raises(LiveError, match="accepts no allocator"):
        serve_torch().__enter__()
