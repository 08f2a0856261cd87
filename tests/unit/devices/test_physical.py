"""Physical devices: visibility, order, refused devices, and impossible sizes of simulated GPUs."""

import ctypes
import gc
import threading
import tracemalloc

import pytest
from fake_cuda import FakeCuda
from heaps import new_heap
from hypothesis import given
from hypothesis import strategies as st
from unit.devices.machines import fake, simulated

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.devices import (
    DeviceManager,
    LogicalDeviceConfiguration,
    PhysicalDevice,
    Settings,
    cuda_gpus,
    physical_gpus,
)
from bfcviz.devices.physical import LARGEST, SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.errors import DeviceError, OutOfMemory, SettingError, UnknownDevice
from bfcviz.units import GiB, KiB, MiB


def limit(mib):
    return LogicalDeviceConfiguration(memory_limit=mib)


def names(settings):
    return [
        (each.name.short, each.physical.name) for each in settings.plan() if each.name.device_type == "GPU"
    ]


def test_everything_is_visible_at_first():
    settings, gpus = simulated()
    assert settings.get_visible_devices() == settings.list_physical_devices()
    assert settings.get_visible_devices("GPU") == gpus


def test_a_hidden_gpu_is_not_made_and_the_others_count_from_0():
    settings, gpus = simulated([16 * GiB, 8 * GiB, 4 * GiB])
    settings.set_visible_devices(gpus[1:], "GPU")
    assert names(settings) == [
        ("/device:GPU:0", "/physical_device:GPU:1"),
        ("/device:GPU:1", "/physical_device:GPU:2"),
    ]
    settings.set_visible_devices(gpus[2], "GPU")
    assert names(settings) == [("/device:GPU:0", "/physical_device:GPU:2")]
    settings.set_visible_devices([], "GPU")
    assert names(settings) == []
    with DeviceManager.create(settings) as manager:
        assert manager.list_names() == ["/device:CPU:0"]


def test_visible_devices_keep_the_machines_order():
    settings, gpus = simulated()
    settings.set_visible_devices([gpus[1], gpus[0]], "GPU")
    assert [physical for _, physical in names(settings)] == [
        "/physical_device:GPU:0",
        "/physical_device:GPU:1",
    ]


@pytest.mark.parametrize(
    ("text", "ordinals"),
    [(None, [0, 1, 2]), ("1,0", [1, 0]), ("2", [2]), ("1,9,0", [1]), ("", []), ("-1", []), ("0,x,1", [0])],
)
def test_cuda_visible_devices_hides_and_orders_before_anything_counts(text, ordinals):
    gpus = bfcviz.simulate_gpus([16 * GiB, 8 * GiB, 4 * GiB], visible=text)
    assert [gpu.ordinal for gpu in gpus] == ordinals
    assert [gpu.name for gpu in gpus] == [f"/physical_device:GPU:{number}" for number in range(len(ordinals))]
    assert [gpu.total_bytes for gpu in gpus] == [(16, 8, 4)[ordinal] * GiB for ordinal in ordinals]


def test_without_a_kind_the_cpu_is_hidden_too_and_no_session_can_be():
    settings, gpus = simulated()
    settings.set_visible_devices(gpus[0])
    with pytest.raises(SettingError, match="no CPU devices"):
        DeviceManager.create(settings)
    settings.set_visible_devices([*settings.list_physical_devices("CPU"), gpus[0]])
    assert [each.name.short for each in settings.plan()] == ["/device:CPU:0", "/device:GPU:0"]


@pytest.mark.parametrize("device", ["/physical_device:GPU:0", None, 0, {}])
def test_what_is_no_device_of_the_machine_is_not_recognised(device):
    settings, _ = simulated()
    for call in (
        settings.set_visible_devices,
        settings.get_memory_growth,
        settings.get_logical_device_configuration,
        lambda each: settings.set_memory_growth(each, True),
        lambda each: settings.set_logical_device_configuration(each, [limit(100)]),
    ):
        with pytest.raises(UnknownDevice, match="unrecognised device"):
            call(device)


def test_devices_of_another_machine_or_kind_are_not_recognised():
    settings, gpus = simulated()
    (other,) = bfcviz.simulate_gpus([2 * GiB])
    with pytest.raises(UnknownDevice):
        settings.set_visible_devices([gpus[0], other], "GPU")
    with pytest.raises(UnknownDevice, match="'CPU'"):
        settings.set_visible_devices(gpus, "CPU")
    assert settings.get_visible_devices("GPU") == gpus


@pytest.mark.parametrize(
    "sizes", [None, 1.5, [0], [-1], [float("nan")], [True], ["lots"], [None], [1 << 50], 16 * GiB, "16 GiB"]
)
def test_a_simulated_gpu_of_no_possible_size_is_refused(sizes):
    with pytest.raises(SettingError, match="give "):
        bfcviz.simulate_gpus(sizes)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "disk"},
        {"compute_capability": 8},
        {"compute_capability": (-1, 0)},
        {"taken": -1},
        {"taken": 2 * GiB},
    ],
)
def test_a_simulated_gpu_that_cannot_be_is_refused(options):
    with pytest.raises(SettingError):
        bfcviz.simulate_gpus([GiB], **options)


def test_settings_take_physical_devices_only():
    (gpu,) = bfcviz.simulate_gpus(["2 GiB"])
    assert isinstance(gpu, PhysicalDevice)
    for wrong in ([16 * GiB], [gpu, gpu], ["/physical_device:GPU:0"]):
        with pytest.raises(SettingError, match="simulate_gpus"):
            Settings(wrong)


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


# ------------------------------------------------------------------------------
# Device names in all forms, and names that do not exist.


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


# ------------------------------------------------------------------------------
# The memory of a simulated GPU: addresses of regions, contents and cost.


PAGE = 4 * KiB


def new_memory(capacity=64 * MiB, *, readable=True):
    return SimulatedMemory(capacity, 2 * capacity, readable=readable)


@pytest.mark.parametrize("readable", [True, False])
@given(
    st.lists(
        st.tuples(st.integers(1, 12 * MiB), st.sampled_from([1, 256, PAGE, MiB]), st.booleans()), max_size=40
    )
)
def test_regions_are_apart_aligned_and_within_the_capacity(readable, asked):
    memory, held = new_memory(readable=readable), {}
    for num_bytes, alignment, drop in asked:
        where = memory.take(num_bytes, alignment, unified=False)
        if where:
            assert where % alignment == 0
            assert all(where >= at + size or where + num_bytes <= at for at, size in held.items())
            held[where] = num_bytes
        else:
            assert sum(held.values()) + num_bytes > memory.capacity
        if drop and held:
            where, _ = held.popitem()
            memory.give_back(where)
        assert memory.used == sum(held.values()) <= memory.capacity
        assert memory.spilled == 0


def test_a_region_that_went_back_is_zeroed_and_its_addresses_are_used_again():
    memory = new_memory()
    first = memory.take(5 * PAGE, 256, unified=False)
    ctypes.memset(first, 7, 5 * PAGE)
    memory.give_back(first)
    assert ctypes.string_at(first, 5 * PAGE) == bytes(5 * PAGE)  # also through the old address
    assert memory.take(3 * PAGE, 256, unified=False) == first


def test_neighbours_of_a_region_that_went_back_keep_what_was_written():
    memory = new_memory()
    first, second, third = (memory.take(PAGE + 300, 256, unified=False) for _ in range(3))
    for where in (first, second, third):
        ctypes.memset(where, 7, PAGE + 300)
    memory.give_back(second)
    for where in (first, third):
        assert ctypes.string_at(where, PAGE + 300) == b"\7" * (PAGE + 300)


def test_a_large_gpu_costs_what_is_written():
    tracemalloc.start()
    settings, _ = simulated([80 * GiB])
    with DeviceManager.create(settings) as manager:
        where = manager.gpu().allocator().allocate(64 * GiB)
        ctypes.memset(where + 32 * GiB, 1, 100)
        assert ctypes.string_at(where + 32 * GiB, 101) == b"\1" * 100 + b"\0"
    assert tracemalloc.get_traced_memory()[1] < 64 * MiB
    tracemalloc.stop()


def test_more_than_can_be_simulated_is_refused():
    with pytest.raises(DeviceError, match=r"8\.0 TiB"):
        SimulatedMemory(LARGEST + 1, 2 * LARGEST + 2)


def test_heaps_on_one_gpu_can_be_used_by_many_threads_at_once():
    memory = new_memory(256 * MiB)
    heaps = [
        new_heap(128 * MiB, SimulatedGpuSubAllocator(memory), allow_growth=True, garbage_collection=True)
        for _ in range(4)
    ]
    failures = []

    def work(heap, seed):
        try:
            for number in range(200):
                held = [heap.try_allocate((seed * 7919 + number * 104_729) % (8 * MiB) + 1) for _ in range(3)]
                for address in held:
                    heap.free(address or 0)
                if number % 20 == 0:
                    heap.trim()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(heap, seed)) for seed, heap in enumerate(heaps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory.used == sum(heap.stats().pool_bytes for heap in heaps)
    for heap in heaps:
        heap.check_invariants()
        heap.close()
    assert memory.used == 0


def test_a_full_gpu_is_out_of_memory_and_says_that_the_limit_allowed_more():
    settings, _ = simulated([4 * GiB], taken=2 * GiB)
    settings.set_per_process_gpu_memory_fraction(1.0)
    with DeviceManager.create(settings) as manager:
        with pytest.raises(OutOfMemory, match="the sub-allocator gave none"):
            manager.gpu().allocator().allocate(3 * GiB)
        assert manager.gpu().allocator().allocate(1 * GiB)


def test_a_session_that_is_forgotten_gives_its_memory_back():
    settings, _ = simulated([GiB])
    manager = DeviceManager.create(settings)
    memory = manager.gpu().memory
    manager.gpu().allocator().allocate(100)
    assert memory.used > 0
    del manager
    gc.collect()
    assert memory.used == 0
