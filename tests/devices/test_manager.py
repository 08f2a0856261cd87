"""Devices made from settings: what there is, what it is called, which memory it hands out, and how it ends."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from heaps import assert_model_agrees, new_heap

import bfcviz
from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.interface.registry import AllocatorFactory, AllocatorRegistry
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.devices import DeviceManager, LogicalDeviceConfiguration, Settings
from bfcviz.devices.simulated_memory import SimulatedGpuSubAllocator
from bfcviz.errors import DevicesError, SettingError, UnknownDevice
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.units import GiB, MiB

ON_HOST = AllocatorAttributes(on_host=True)
FOR_GPU = AllocatorAttributes(gpu_compatible=True)
BOTH = AllocatorAttributes(on_host=True, gpu_compatible=True)


def new_settings(sizes=(16 * GiB, 8 * GiB), *, environment=None, **options):
    return Settings(bfcviz.simulate_gpus(sizes, **options), environment=environment or {})


@pytest.fixture
def manager():
    with DeviceManager.create(new_settings()) as made:
        yield made


def test_a_session_has_the_cpu_and_every_visible_gpu(manager):
    assert manager.list_names() == ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]
    assert [each.name for each in manager.list_devices("GPU")] == ["/device:GPU:0", "/device:GPU:1"]
    assert len(manager) == 3
    assert list(manager) == manager.devices


@pytest.mark.parametrize(
    "name",
    [
        "/device:GPU:1",
        "/job:localhost/replica:0/task:0/device:GPU:1",
        "GPU:1",
        "/GPU:1",
        "gpu:1",
        "/job:localhost/replica:0/task:0/gpu:1",
    ],
)
def test_a_device_is_found_by_any_form_of_its_name(manager, name):
    device = manager.device(name)
    assert (device.name, device.full_name) == (
        "/device:GPU:1",
        "/job:localhost/replica:0/task:0/device:GPU:1",
    )
    assert manager[name] is device
    assert name in manager


@pytest.mark.parametrize("name", ["GPU:2", "CPU:1", "TPU:0", "GPU", "", "/device:GPU:-1", "GPU:0 ", None, 0])
def test_an_unknown_name_says_which_there_are_or_how_it_is_written(manager, name):
    with pytest.raises(UnknownDevice, match=r"/device:GPU:0"):
        manager.device(name)
    assert name not in manager


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
    assert gpu.allocator(FOR_GPU) is gpu.heap  # not on the host: it says nothing
    assert gpu.allocator(ON_HOST) is cpu.allocator() is cpu.allocator(ON_HOST)
    assert gpu.allocator(BOTH) is cpu.allocator(FOR_GPU)
    assert cpu.allocator(FOR_GPU) is not cpu.allocator()
    assert gpu.allocator() is not manager["GPU:1"].allocator()
    assert isinstance(gpu.allocator(), bfcviz.Allocator)


def test_a_registry_can_make_the_memory_of_the_cpu():
    registry = AllocatorRegistry()
    mine = new_heap(64 * MiB)
    registry.register("mine", 1, AllocatorFactory(lambda: mine, lambda _: SimulatedSubAllocator()))
    with DeviceManager.create(new_settings(), registry=registry) as manager:
        assert manager["CPU:0"].allocator() is manager.gpu().allocator(ON_HOST) is mine
        assert manager["CPU:0"].allocator(FOR_GPU) is not mine
        with pytest.raises(DevicesError, match="AllocatorRegistry"):
            manager["CPU:0"].trace()
    assert mine.allocate(100)  # it is the registry's: not closed


def test_without_cuda_memory_for_transfers_is_called_not_pinned(manager):
    cpu = manager["CPU:0"]
    assert not cpu.pinned
    assert "not pinned" in cpu.allocator(FOR_GPU).name
    assert "not pinned" in cpu.description


def test_threads_that_ask_at_once_get_the_same_memory(manager):
    together = threading.Barrier(4)

    def ask(_):
        together.wait()
        return manager["CPU:0"].allocator(FOR_GPU)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(ask, range(4))
    assert all(other is first for other in others)


def test_force_gpu_compatible_takes_all_host_memory_from_the_pool_for_transfers():
    settings = new_settings()
    settings.set_gpu_options(force_gpu_compatible=True, gpu_host_mem_limit_in_mb=100)
    with DeviceManager.create(settings) as manager:
        pool = manager["CPU:0"].allocator()
        assert pool is manager["GPU:0"].allocator(ON_HOST)
        assert pool.stats().bytes_limit == 100 * MiB


@pytest.mark.parametrize(
    ("option", "variable", "limit"),
    [(0, None, 64 * GiB), (0, "100", 100 * MiB), (200, "100", 200 * MiB), (0, "many", 64 * GiB)],
)
def test_the_pool_for_transfers_has_a_limit_of_its_own(option, variable, limit):
    settings = new_settings(environment={"TF_GPU_HOST_MEM_LIMIT_IN_MB": variable} if variable else {})
    settings.set_gpu_options(gpu_host_mem_limit_in_mb=option)
    with DeviceManager.create(settings) as manager:
        assert manager.gpu().allocator(BOTH).stats().bytes_limit == limit


def test_memory_of_a_simulated_gpu_can_be_computed_in(manager):
    device = manager.gpu(0)
    assert device.host_accessible
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
        assert not first.host_accessible
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
        # 224 MiB are left: TensorFlow's heap asks for 10 % less until it gets them.
        assert 190 * MiB < second.heap.stats().pool_bytes <= 224 * MiB
        assert first.memory.used == sum(each.heap.stats().pool_bytes for each in (first, second))
    assert first.memory.used == 0


def test_unified_memory_may_hold_more_than_the_gpu_has():
    settings = new_settings([1 * GiB])
    settings.set_per_process_gpu_memory_fraction(1.5)
    with DeviceManager.create(settings) as manager:
        manager.gpu().allocator().allocate(1400 * MiB)
        assert manager.gpu().memory.spilled == 512 * MiB


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


def test_a_cpu_has_threads(manager):
    assert list(manager["CPU:0"].thread_pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_the_journey_leads_from_the_session_to_the_manager(manager):
    stages = [step.stage for step in manager.journey.steps]
    expected = ["session", *["settings"] * 3, "factory", "device", "factory", "device", "device", "manager"]
    assert stages == expected
    factories = [step.words for step in manager.journey.steps if step.stage == "factory"]
    assert factories[0].startswith("GPUCompatibleCPUDeviceFactory")
    assert "/device:GPU:1" in manager.journey._repr_html_()
    manager.journey.note("<b>", "<i>")
    assert "&lt;b&gt;</td><td style='text-align:left'>&lt;i&gt;" in manager.journey._repr_html_()


def test_the_journey_is_a_trace_of_marks_and_begins_each_heaps_own(manager, tmp_path):
    trace = manager.journey.trace()
    assert set(trace.read(0, len(trace))["kind"]) == {Kind.MARK}
    trace.save(tmp_path / "journey.parquet")
    again = Trace.open(tmp_path / "journey.parquet")
    names = [again.labels.name(number) for number in again.read(0, len(again))["label"]]
    assert names == [step.label for step in manager.journey.steps]
    gpu = manager.gpu(0)
    gpu.allocator().allocate(100, label="first tensor")
    own = gpu.trace()
    told = [own.labels.name(number) for number in own.read(0, len(own))["label"]]
    assert told[0] == "session: begins"
    assert "created /job:localhost/replica:0/task:0/device:GPU:0 (simulated)" in told[7]
    assert told[-1] == "first tensor"
    assert own.origin.details["simulated"] is True


def test_a_heap_of_a_session_can_be_modelled_from_its_events(manager):
    heap = manager.gpu(1).heap
    held = [heap.allocate(size * MiB) for size in (1, 30, 5)]
    heap.free(held[1])
    assert_model_agrees(heap, Reader(heap.log, 0).read(1 << 20))


def test_a_session_can_be_recorded_to_a_folder(tmp_path):
    with DeviceManager.create(new_settings(), record=tmp_path / "run") as manager:
        manager.gpu(0).allocator().allocate(5 * MiB, label="weights")
        manager["CPU:0"].allocator().allocate(100)
        assert "weights" in manager.gpu(0).trace().labels.names
    folders = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert folders == ["GPU_0_bfc_simulated", "GPU_1_bfc_simulated", "cpu_bfc"]
    assert "weights" in bfcviz.open(tmp_path / "run" / "GPU_0_bfc_simulated").labels.names


def test_a_ring_that_was_too_small_says_so():
    with DeviceManager.create(new_settings(), capacity=64) as manager:
        heap = manager.gpu().heap
        for _ in range(100):
            heap.free(heap.allocate(100))
        with pytest.raises(DevicesError, match="record="):
            manager.gpu().trace()


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
    with pytest.raises(DevicesError, match="stream compute, which is closed"):
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
