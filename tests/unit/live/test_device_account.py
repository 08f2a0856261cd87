"""The memory of the devices now: from a driver, NVML and frameworks that are stand-ins."""
# ruff: noqa: N802  NVML's names

import ctypes
import os
import sys
import types

import pytest
from fake_cuda import FakeCuda

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.analysis.account import PartKind

GIB = 1 << 30
MIB = 1 << 20
OWN = os.getpid()


class FakeNvml(types.ModuleType):
    """`pynvml` for a test: devices by their place on the bus."""

    class NVMLError(Exception):
        pass

    def __init__(self, devices, *, starts=True):
        super().__init__("pynvml")
        self.given, self.starts = devices, starts
        self.nvmlMemory_v2 = 2

    def nvmlInit(self):
        if not self.starts:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.given)

    def nvmlDeviceGetHandleByIndex(self, number):
        return list(self.given.values())[number]

    def nvmlDeviceGetHandleByPciBusId(self, bus):
        if bus.decode() not in self.given:
            raise self.NVMLError("Not Found")
        return self.given[bus.decode()]

    def nvmlDeviceGetMemoryInfo(self, device, version=None):
        return types.SimpleNamespace(
            total=device["total"], free=device["free"], reserved=device.get("reserved")
        )

    def nvmlDeviceGetName(self, device):
        return "Fake H200"

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [
            types.SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in device["processes"].items()
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device):
        return self.nvmlDeviceGetComputeRunningProcesses(device)[:1]


@pytest.fixture
def no_framework(monkeypatch):
    """What other tests loaded does not count."""
    for name in ("torch", "cupy", "jax", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def machine(monkeypatch, no_framework):
    """Two GPUs of 8 GiB; the program has a context on the first one, and 3 GiB of it are taken."""
    library = FakeCuda(memory=8 * GIB, devices=2)
    driver = cuda_driver.Driver(library)
    monkeypatch.setattr(cuda_driver, "in_use", lambda: driver)
    monkeypatch.setattr(library, "used_on", lambda device: 3 * GIB, raising=False)
    with driver.on(0):
        pass
    library.calls.clear()
    return library


def put_nvml(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)


def torch_with(allocated, reserved, **more):
    counters = {
        "allocated_bytes": {"all": {"current": allocated}},
        "reserved_bytes": {"all": {"current": reserved}},
    }
    memory = types.SimpleNamespace(memory_stats_as_nested_dict=lambda device: counters if device == 0 else {})
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_initialized=lambda: True, memory=memory, **more)
    )


def test_without_a_gpu_it_says_what_to_do(monkeypatch, no_framework):
    monkeypatch.setattr(cuda_driver, "in_use", lambda: None)
    put_nvml(monkeypatch, None)
    found = bfcviz.account()
    assert found.devices == ()
    assert "bfcviz[nvml]" in found.notes[0]
    put_nvml(monkeypatch, FakeNvml({}, starts=False))
    assert "Driver Not Loaded" in bfcviz.account().notes[0]


def test_asking_creates_no_context(machine, monkeypatch):
    put_nvml(monkeypatch, None)
    first, second = bfcviz.account().devices
    assert machine.active == {0}
    assert "cuDevicePrimaryCtxRetain" not in machine.calls
    assert (first.total, first.free) == (8 * GIB, 5 * GIB)
    assert (second.total, second.free, second.process) == (8 * GIB, None, 0)


def test_the_parts_of_a_device_in_use(machine, monkeypatch):
    nvml = {"0000:10:00.0": {"total": 8 * GIB, "free": 5 * GIB, "processes": {OWN: 2 * GIB, 7: GIB - 9}}}
    put_nvml(monkeypatch, FakeNvml(nvml))
    monkeypatch.setitem(sys.modules, "torch", torch_with(GIB, GIB + 512 * MIB))
    first, _ = bfcviz.account().devices
    assert [(part.kind, part.size) for part in first.parts] == [
        (PartKind.OTHERS, GIB - 9),
        (PartKind.OUTSIDE, 512 * MIB),
        (PartKind.IN_USE, GIB),
        (PartKind.CACHED, 512 * MIB),
        (PartKind.UNACCOUNTED, 9),
        (PartKind.FREE, 5 * GIB),
    ]
    assert "Fake H200" in first.device


def test_in_a_container_the_process_of_the_right_size_is_this_one(machine, monkeypatch):
    nvml = {"0000:10:00.0": {"total": 8 * GIB, "free": 5 * GIB, "processes": {8001: 2 * GIB, 8002: GIB}}}
    put_nvml(monkeypatch, FakeNvml(nvml))
    monkeypatch.setitem(sys.modules, "torch", torch_with(GIB, 3 * GIB // 2))
    first, _ = bfcviz.account().devices
    assert (first.process, first.others) == (2 * GIB, GIB)


def test_a_slice_of_a_device_is_not_told_by_the_numbers_of_the_whole(machine, monkeypatch):
    """MIG: NVML tells of the device, CUDA of the slice."""
    nvml = {"0000:10:00.0": {"total": 80 * GIB, "free": 5 * GIB, "processes": {OWN: 2 * GIB}}}
    put_nvml(monkeypatch, FakeNvml(nvml))
    first, _ = bfcviz.account().devices
    assert (first.total, first.process) == (8 * GIB, None)


def test_a_device_that_only_others_use(machine, monkeypatch):
    nvml = {"0000:11:00.0": {"total": 8 * GIB, "free": 2 * GIB, "reserved": GIB, "processes": {7: 4 * GIB}}}
    put_nvml(monkeypatch, FakeNvml(nvml))
    _, second = bfcviz.account().devices
    assert (second.process, second.others, second.free) == (0, 4 * GIB, 2 * GIB)
    assert (second.size_of(PartKind.DRIVER), second.unaccounted) == (GIB, GIB)


def test_without_cuda_nvml_lists_the_devices(monkeypatch, no_framework):
    monkeypatch.setattr(cuda_driver, "in_use", lambda: None)
    nvml = {"0000:10:00.0": {"total": 8 * GIB, "free": 7 * GIB, "processes": {}}}
    put_nvml(monkeypatch, FakeNvml(nvml))
    (found,) = bfcviz.account().devices
    assert (found.total, found.free, found.others) == (8 * GIB, 7 * GIB, GIB)


def test_pytorch_on_another_driver(monkeypatch, no_framework):
    """ROCm has neither CUDA's driver nor NVML."""
    monkeypatch.setattr(cuda_driver, "in_use", lambda: None)
    put_nvml(monkeypatch, None)
    asked = []
    torch = torch_with(
        GIB,
        2 * GIB,
        device_count=lambda: 2,
        mem_get_info=lambda device: asked.append(device) or (5 * GIB, 8 * GIB),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    (found,) = bfcviz.account().devices
    assert (found.pools[0].in_use, found.unaccounted, asked) == (GIB, GIB, [0])


def test_a_framework_that_fails_is_left_out(machine, monkeypatch):
    put_nvml(monkeypatch, None)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())  # half imported
    first, _ = bfcviz.account().devices
    assert first.pools == ()


def test_jax_and_tensorflow_by_their_counters(machine, monkeypatch):
    put_nvml(monkeypatch, None)
    counters = {"bytes_in_use": GIB, "pool_bytes": 2 * GIB}
    gpu = types.SimpleNamespace(platform="gpu", id=0, local_hardware_id=0, memory_stats=lambda: counters)
    bridge = types.SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(local_devices=lambda: [gpu]))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    info = types.SimpleNamespace(get_memory_info=lambda name: {"current": MIB if name == "GPU:0" else 0})
    config = types.SimpleNamespace(experimental=info)
    context = types.SimpleNamespace(context=lambda: types.SimpleNamespace(_initialized=True))
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
    first, second = bfcviz.account().devices
    assert [(pool.name, pool.in_use, pool.cached) for pool in first.pools] == [
        ("JAX", GIB, GIB),
        ("TensorFlow", MIB, None),
    ]
    assert second.pools == ()


def test_a_contradiction_is_read_again(machine, monkeypatch):
    """The program allocated between two figures."""
    put_nvml(monkeypatch, None)
    sizes = iter([4 * GIB, 2 * GIB])
    torch = torch_with(0, 0)
    torch.cuda.memory.memory_stats_as_nested_dict = lambda device: {
        "allocated_bytes": {"all": {"current": 0}},
        "reserved_bytes": {"all": {"current": next(sizes) if device == 0 else 0}},
    }
    monkeypatch.setitem(sys.modules, "torch", torch)
    first, _ = bfcviz.account().devices
    assert (first.contradictions, first.pools[0].cached) == ((), 2 * GIB)


def test_a_driver_that_ends_is_told(machine, monkeypatch):
    put_nvml(monkeypatch, None)
    machine.fails["cuDeviceGetCount"] = cuda_driver.DEINITIALIZED
    found = bfcviz.account()
    assert (found.devices, len(found.notes)) == ((), 1)


# -- which driver --------------------------------------------------------------------------------------------


def test_a_driver_that_is_not_loaded_is_not_loaded_now(monkeypatch):
    """A process that has started CUDA cannot use it in its forks."""
    modes = []

    def library(name, mode):
        modes.append(mode)
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", library)
    assert cuda_driver.in_use() is None
    assert modes
    assert all(mode & os.RTLD_NOLOAD for mode in modes)


@pytest.mark.parametrize(("status", "is_used"), [(0, True), (cuda_driver.NOT_INITIALIZED, False)])
def test_a_loaded_driver_is_used_once_it_is_started(monkeypatch, status, is_used):
    library = types.SimpleNamespace(cuDeviceGetCount=lambda _: status)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: library)
    monkeypatch.setattr(cuda_driver, "load", lambda: "the driver")
    assert cuda_driver.in_use() == ("the driver" if is_used else None)


def test_the_heaps_that_serve_a_framework_are_its_pool(machine, monkeypatch):
    heap = types.SimpleNamespace(
        name="cupy:0 stream 1", stats=lambda: types.SimpleNamespace(pool_bytes=GIB, bytes_in_use=512 * MIB)
    )
    provider = types.SimpleNamespace(way="serve", heaps=[heap, heap])
    put_nvml(monkeypatch, None)
    monkeypatch.setattr("bfcviz.live.device_account.active_providers", lambda: [provider])
    first, second = bfcviz.account().devices
    assert [(pool.in_use, pool.cached) for pool in first.pools] == [(GIB, GIB)]
    assert second.pools == ()
