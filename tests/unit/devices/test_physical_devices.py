"""Physical devices: visibility, order, refused devices, and impossible sizes of simulated GPUs."""

import pytest
from fake_cuda import FakeCuda
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
from bfcviz.errors import DeviceError, SettingError, UnknownDevice
from bfcviz.units import GiB


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
