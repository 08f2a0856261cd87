"""Devices of CUDA, over a stand-in for its driver: what is found, asked for, and given back."""

import ctypes

import pytest
from devices.machines import fake, simulated
from fake_cuda import FakeCuda

from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.driver import Driver
from bfcviz.devices import DeviceManager, Settings, cuda_gpus, physical_gpus
from bfcviz.errors import DeviceError, DevicesError
from bfcviz.units import GiB, MiB

FOR_GPU = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_gpus_of_cuda_are_found_with_their_facts_and_are_not_simulated():
    _, gpus, _ = fake(devices=2, capability=(9, 0))
    assert [gpu.name for gpu in gpus] == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    gpu = gpus[1]
    assert (gpu.total_bytes, gpu.description, gpu.compute_capability) == (16 * GiB, "Fake GPU", (9, 0))
    assert (gpu.simulated, gpu.memory, gpu.ordinal) == (False, "cuda", 1)
    assert gpu.details == {"device_name": "Fake GPU", "simulated": False, "compute_capability": (9, 0)}
    assert "simulated" not in repr(gpu)


def test_looking_makes_no_context_on_a_gpu():
    _, _, library = fake(devices=2)
    assert "cuDevicePrimaryCtxRetain" not in library.calls


def test_the_rule_asks_the_driver_what_is_free():
    settings, _, library = fake()
    library.allocated[0x1000] = 6 * GiB  # another process
    assert settings.plan()[1].memory_limit == 10 * GiB - 1800 * MiB


def test_memory_of_the_device_comes_from_the_driver_and_goes_back():
    settings, gpus, library = fake(devices=2)
    with DeviceManager.create(settings) as manager:
        device = manager.gpu(1)
        assert not device.host_accessible
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


def test_memory_for_transfers_is_pinned_and_said_to_be():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        cpu = manager["CPU:0"]
        assert cpu.pinned
        pool = manager.gpu().allocator(FOR_GPU)
        assert pool.name == "gpu_host_bfc"
        assert library.pinned == {}
        assert pool.allocate(1000) in library.pinned
        assert "not pinned" not in cpu.description
        assert cpu.allocator() is not pool
    assert library.pinned == {}


def test_a_stream_runs_host_functions_behind_its_work():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        stream = manager.gpu().compute_stream
        assert stream.submit(lambda: library.synchronized[-1]).result() == stream.handle
        before = len(library.synchronized)
        manager.gpu().synchronize()
        assert len(library.synchronized) == before + 4
        assert "simulated" not in repr(stream)


def test_a_stream_is_shared_by_cudas_protocol_unless_it_is_simulated():
    settings, _, library = fake()
    with DeviceManager.create(settings) as manager:
        version, handle = manager.gpu().compute_stream.__cuda_stream__()
        assert (version, handle in library.streams) == (0, True)
    settings, _ = simulated()
    with DeviceManager.create(settings) as manager, pytest.raises(DevicesError, match="simulated GPU's"):
        manager.gpu().compute_stream.__cuda_stream__()


def test_a_stream_that_is_forgotten_is_destroyed():
    settings, _, library = fake()
    manager = DeviceManager.create(settings)
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 3
    manager.close()


def test_a_forked_child_leaves_the_parents_streams_alone():
    settings, gpus, library = fake()
    manager = DeviceManager.create(settings)
    library.pid = gpus[0].driver._process = library.pid - 1  # as in a fork of that process
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 4


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


def test_without_a_driver_or_device_there_are_no_gpus(monkeypatch):
    def none():
        raise DeviceError("no driver")

    monkeypatch.setattr(cuda_driver, "load", none)
    assert cuda_gpus() == []
    assert [gpu.simulated for gpu in physical_gpus(["2 GiB"])] == [True]
    with DeviceManager.create(Settings()) as manager:
        assert manager.list_names() == ["/device:CPU:0"]


def test_no_device_means_no_gpus_and_a_broken_driver_is_told(monkeypatch):
    monkeypatch.setattr(cuda_driver, "load", lambda: Driver(FakeCuda(devices=0)))
    assert cuda_gpus() == []
    monkeypatch.setattr(cuda_driver, "load", lambda: Driver(FakeCuda(fails={"cuInit": 3})))
    with pytest.raises(DeviceError, match="cuInit failed"):
        cuda_gpus()


def test_gpus_of_cuda_come_before_simulated_ones(monkeypatch):
    monkeypatch.setattr(cuda_driver, "load", lambda: Driver(FakeCuda()))
    (gpu,) = physical_gpus([16 * GiB])
    assert not gpu.simulated
    assert [each.name for each in Settings().list_physical_devices("GPU")] == [gpu.name]


def test_importing_devices_loads_no_cuda(monkeypatch):
    def refuse(*_):
        raise AssertionError("CUDA was loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    cuda_driver.load.cache_clear()
    with pytest.raises(AssertionError):
        cuda_gpus()  # asking does
    assert Settings([]).explain()  # not asking does not
