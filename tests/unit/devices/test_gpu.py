"""CUDA devices over a fake driver: discovery, allocation and release."""

import ctypes

import pytest
from unit.devices.machines import fake

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import DeviceManager, Settings, cuda_gpus
from bfcviz.errors import DeviceError
from bfcviz.units import GiB, MiB

FOR_GPU = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_the_rule_asks_the_driver_what_is_free():
    settings, _, library = fake()
    library.allocated[0x1000] = 6 * GiB  # another process
    assert settings.plan()[1].memory_limit == 10 * GiB - 1800 * MiB


def test_memory_of_the_device_comes_from_the_driver_and_goes_back():
    settings, gpus, library = fake(devices=2)
    with DeviceManager.create(settings) as manager:
        device = manager.gpu(1)
        assert device.memory is None
        assert device.allocator().name == "GPU_1_bfc"
        address = device.allocator().allocate(100)
        assert library.allocated[address] == device.memory_limit
        assert len(library.streams) == 4 * len(gpus)
        assert len({stream.handle for stream in device.streams.values()}) == 4
    assert library.allocated == {}
    assert library.streams == {}
    assert library.contexts == []


def test_unified_memory_is_managed_by_the_driver():
    settings, _, library = fake()
    settings.set_gpu_options(use_unified_memory=True)
    with DeviceManager.create(settings) as manager:
        manager.gpu().allocator().allocate(100)
    assert "cuMemAllocManaged" in library.calls


@pytest.mark.parametrize("name", ["cuStreamCreate", "cuDevicePrimaryCtxRetain"])
def test_where_the_driver_fails_nothing_is_left_and_settings_are_open(name):
    settings, _, library = fake()
    library.fails[name] = 719
    with pytest.raises(DeviceError, match="719"):
        DeviceManager.create(settings)
    assert not settings.initialised
    assert library.allocated == {}
    assert library.streams == {}
    del library.fails[name]
    with DeviceManager.create(settings) as manager:
        assert manager.gpu().allocator().allocate(100)


def test_importing_devices_loads_no_cuda(monkeypatch):
    def refuse(*_):
        raise AssertionError("CUDA was loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    cuda_driver.load.cache_clear()
    with pytest.raises(AssertionError):
        cuda_gpus()  # listing GPUs loads CUDA
    assert Settings([]).explain()  # explicit GPUs do not
