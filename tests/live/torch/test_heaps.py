"""The heaps behind PyTorch's memory: one for each stream, their limits, and what is left to others."""

import pytest
from fake_cuda import FakeCuda
from fake_torch import OutOfMemoryError
from heaps import MIB
from processes import needs_compiled

from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.choice import Budget
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
