"""Streams: order of work, errors, CUDA's stream protocol, forks."""

import contextlib
import ctypes
import io
import os
import re

import numpy as np
import pytest
from shared import ROOT
from unit.devices.machines import fake, new_settings, simulated

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import (
    FACTORIES,
    CPUDevice,
    DeviceFactory,
    DeviceManager,
    FactoryRegistry,
    GPUCompatibleCPUDevice,
    LogicalDeviceConfiguration,
    Settings,
    cuda_gpus,
)
from bfcviz.devices.device import GPUDeviceFactory, ThreadPoolDeviceFactory
from bfcviz.devices.simulated_gpu_memory import SimulatedGpuSubAllocator
from bfcviz.errors import DeviceError, DevicesError, SettingError
from bfcviz.units import GiB, MiB


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
    with DeviceManager.create(settings) as manager, pytest.raises(DevicesError, match="simulated GPU"):
        manager.gpu().compute_stream.__cuda_stream__()


def test_a_stream_that_is_forgotten_is_destroyed():
    settings, _, library = fake()
    manager = DeviceManager.create(settings)
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 3
    manager.close()


def test_a_forked_child_leaves_the_parents_streams_alone(monkeypatch):
    settings, _, library = fake()
    manager = DeviceManager.create(settings)
    monkeypatch.setattr(os, "getpid", lambda: library.pid + 1)  # as in a fork of that process
    del manager.gpu().streams["compute"]
    assert len(library.streams) == 4


def test_a_gpu_has_a_stream_to_compute_and_three_to_copy(manager):
    gpu = manager.gpu(0)
    assert list(gpu.streams) == ["compute", "host_to_device", "device_to_host", "device_to_device"]
    assert gpu.compute_stream.number == 1
    done = []
    for number in range(20):
        gpu.compute_stream.submit(done.append, number)
    gpu.synchronize()
    assert done == list(range(20))
    assert manager["CPU:0"].streams == {}


def test_what_a_stream_runs_tells_its_result_or_error(manager):
    stream = manager.gpu(0).streams["host_to_device"]
    assert stream.submit(pow, 2, 10).result() == 1024
    with pytest.raises(ZeroDivisionError):
        stream.submit(lambda: 1 // 0).result()


# ------------------------------------------------------------------------------
# CUDA devices over a fake driver: discovery, allocation and release.


ON_HOST_FOR_GPU = AllocatorAttributes(on_host=True, gpu_compatible=True)


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


# ------------------------------------------------------------------------------
# Sessions: the devices created from settings, their names, memory and closing.


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


# ------------------------------------------------------------------------------
# Factories: which one creates which devices, and in which order.


class Mine(DeviceFactory):
    device_type = "CPU"

    def create(self, context):
        for planned in context.of_type("CPU"):
            yield CPUDevice(planned, context.host)


def test_the_factory_of_highest_priority_makes_the_devices_of_its_kind():
    settings, _ = simulated()
    assert [FACTORIES.priority(kind) for kind in FACTORIES.device_types] == [70, 210]
    with DeviceManager.create(settings) as manager:
        assert type(manager["CPU:0"]) is GPUCompatibleCPUDevice
    mine = FACTORIES.copy()
    mine.register(Mine(), 71)
    with DeviceManager.create(settings.copy(), factories=mine) as manager:
        assert type(manager["CPU:0"]) is CPUDevice
        assert any(step.words.startswith("Mine ") for step in manager.journey.steps)
    assert type(FACTORIES.get("CPU")).__name__ == "GPUCompatibleCPUDeviceFactory"


def test_a_factory_of_lower_priority_stays_behind():
    mine = FACTORIES.copy()
    mine.register(Mine())
    assert mine.get("CPU") is FACTORIES.get("CPU")


def test_two_of_the_same_priority_are_refused():
    registry = FactoryRegistry()
    registry.register(ThreadPoolDeviceFactory(), 60)
    with pytest.raises(DevicesError, match=r"duplicate registration .* priority 60"):
        registry.register(Mine(), 60)
    assert isinstance(registry.get("CPU"), ThreadPoolDeviceFactory)


def test_the_cpu_is_made_first_whatever_the_priorities():
    registry = FactoryRegistry()
    registry.register(GPUDeviceFactory(), 210)
    registry.register(Mine(), 1)
    assert registry.device_types == ["CPU", "GPU"]


def test_a_kind_without_a_factory_is_told():
    registry = FactoryRegistry()
    with pytest.raises(DevicesError, match=r"'GPU'.* none"):
        registry.get("GPU")
    settings, _ = simulated()
    with DeviceManager.create(settings, factories=registry) as manager:
        assert len(manager) == 0


def test_two_devices_of_one_name_are_refused_and_closed():
    made = []

    class Twice(Mine):
        def create(self, context):
            for _ in range(2):
                for device in super().create(context):
                    made.append(device)
                    yield device

    registry = FACTORIES.copy()
    registry.register(Twice(), 99)
    settings, _ = simulated()
    with pytest.raises(DevicesError, match="/device:CPU:0"):
        DeviceManager.create(settings, factories=registry)
    assert all(device.closed for device in made)
    assert not settings.initialised


# ------------------------------------------------------------------------------
# The page of the room is so: its example prints what it shows, its map names every file.


ROOM = ROOT / "bfcviz" / "devices"
PAGE = (ROOM / "README.md").read_text()


def test_the_example_prints_the_numbers_that_it_shows():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102  our own text
    numbers = r"\d[\d.,]*(?: [KMG]iB)?\b|\w+/[\w/]+"
    assert re.findall(numbers, out.getvalue()) == re.findall(numbers, shown)


def test_the_map_names_every_file_and_no_other():
    named = set(re.findall(r"`(\w+\.py|\w+/)`", re.search(r"\| file \|.*?\n\n", PAGE, re.DOTALL)[0]))
    files = {path.name for path in ROOM.rglob("*.py") if path.name != "__init__.py"}
    folders = {f"{path.parent.name}/" for path in ROOM.glob("*/__init__.py")}
    assert named == files | folders


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOM / target).exists()
