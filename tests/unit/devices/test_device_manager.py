"""Sessions: the devices created from settings, their names, memory and closing."""

import numpy as np
import pytest
from unit.devices.machines import new_settings

import bfcviz
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import (
    DeviceManager,
    LogicalDeviceConfiguration,
)
from bfcviz.devices.physical_devices import SimulatedGpuSubAllocator
from bfcviz.errors import DevicesError, SettingError
from bfcviz.units import GiB, MiB

ON_HOST = AllocatorAttributes(on_host=True)
FOR_GPU = AllocatorAttributes(gpu_compatible=True)
BOTH = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_a_session_has_the_cpu_and_every_visible_gpu(manager):
    assert manager.list_names() == ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]
    assert [each.name for each in manager.list_devices("GPU")] == ["/device:GPU:0", "/device:GPU:1"]
    assert len(manager) == 3
    assert list(manager) == manager.devices


def test_simulated_devices_say_so_everywhere(manager):
    device = manager.gpu(0)
    assert device.simulated
    assert device.physical.simulated
    for text in (
        repr(device),
        repr(device.physical),
        device.description,
        device.allocator().name,
        str(manager.journey),
        device.trace().origin.pools[0].name,
        str(device.physical.details["device_name"]),
    ):
        assert "simulated" in text
    assert not manager["CPU:0"].simulated


def test_attributes_choose_the_memory_as_in_tensorflow(manager):
    cpu, gpu = manager["CPU:0"], manager["GPU:0"]
    assert gpu.allocator() is gpu.heap
    assert gpu.allocator(FOR_GPU) is gpu.heap  # without on_host it has no effect
    assert gpu.allocator(ON_HOST) is cpu.allocator() is cpu.allocator(ON_HOST)
    assert gpu.allocator(BOTH) is cpu.allocator(FOR_GPU)
    assert cpu.allocator(FOR_GPU) is not cpu.allocator()
    assert gpu.allocator() is not manager["GPU:1"].allocator()
    assert isinstance(gpu.allocator(), bfcviz.Allocator)


def test_memory_of_a_simulated_gpu_can_be_computed_in(manager):
    device = manager.gpu(0)
    source = device.heap.sub_allocator
    assert isinstance(source, SimulatedGpuSubAllocator)
    assert source.memory.readable
    address = device.allocator().allocate(4000)
    array = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1000).from_address(address))
    assert not array.any()
    array += 1.5
    assert array.sum() == 1500


def test_memory_that_is_only_addresses_costs_none():
    with DeviceManager.create(new_settings([4096 * GiB] * 2, memory="addresses")) as manager:
        first, second = (manager.gpu(number) for number in (0, 1))
        assert first.allocator().allocate(1 << 30) != second.allocator().allocate(1 << 30)
        assert first.heap.stats().pool_bytes == first.memory_limit


def test_logical_devices_on_one_gpu_have_heaps_of_their_own_and_share_its_memory():
    settings = new_settings([1 * GiB])
    gpu = settings.list_physical_devices("GPU")[0]
    settings.set_logical_device_configuration(gpu, [LogicalDeviceConfiguration(800)] * 2)
    with DeviceManager.create(settings) as manager:
        first, second = manager.list_devices("GPU")
        assert first.memory is second.memory
        first.allocator().allocate(100)
        second.allocator().allocate(100)
        assert first.heap.stats().pool_bytes == 800 * MiB
        # 224 MiB are left: TensorFlow's heap retries with 10 % less until it succeeds.
        assert 190 * MiB < second.heap.stats().pool_bytes <= 224 * MiB
        assert first.memory.used == sum(each.heap.stats().pool_bytes for each in (first, second))
    assert first.memory.used == 0


def test_unified_memory_may_hold_more_than_the_gpu_has():
    settings = new_settings([1 * GiB])
    settings.set_per_process_gpu_memory_fraction(1.5)
    with DeviceManager.create(settings) as manager:
        manager.gpu().allocator().allocate(1400 * MiB)
        assert manager.gpu().memory.spilled == 512 * MiB


def test_a_cpu_has_threads(manager):
    assert list(manager["CPU:0"].thread_pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_closing_gives_all_memory_back_and_ends_all_devices():
    manager = DeviceManager.create(new_settings())
    cpu, gpu = manager["CPU:0"], manager["GPU:0"]
    gpu.allocator().allocate(100)
    host = cpu.allocator()
    host.allocate(100)
    manager.close()
    manager.close()
    assert manager.closed
    assert gpu.memory.used == host.stats().pool_bytes == 0
    for device in (cpu, gpu):
        with pytest.raises(DevicesError, match="closed"):
            device.allocator()
    with pytest.raises(DevicesError, match=r"stream compute .*closed"):
        gpu.compute_stream.submit(int)
    gpu.synchronize()  # there is nothing to wait for
    with pytest.raises(RuntimeError, match="after shutdown"):
        cpu.thread_pool.submit(int)
    assert "closed" in repr(manager)
    assert manager.journey.steps[-1].stage == "manager"


def test_where_making_fails_nothing_is_left_and_settings_can_be_changed_still(tmp_path):
    settings = new_settings()
    first, second = settings.list_physical_devices("GPU")
    settings.set_memory_growth(first, True)
    with pytest.raises(SettingError, match="cannot differ"):
        DeviceManager.create(settings, record=tmp_path / "run")
    assert not settings.initialised
    assert not (tmp_path / "run").exists()
    settings.set_memory_growth(second, True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "GPU_1_bfc_simulated").write_text("in the way")
    with pytest.raises(bfcviz.BfcvizError):
        DeviceManager.create(settings, record=tmp_path / "run")
    assert not settings.initialised
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["GPU_1_bfc_simulated"]
    with DeviceManager.create(settings) as manager:
        assert len(manager) == 3
    assert settings.initialised


def test_many_sessions_side_by_side_do_not_disturb_each_other():
    managers = [DeviceManager.create(new_settings([2 * GiB])) for _ in range(3)]
    addresses = {each.gpu().allocator().allocate(MiB) for each in managers}
    assert len(addresses) == 3
    managers[0].close()
    managers[1].gpu().allocator().allocate(MiB)
    for each in managers:
        each.close()
