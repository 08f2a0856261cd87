"""Which devices are used, in which order, and how what is none is refused; sizes that no simulated GPU has."""

import pytest
from devices.machines import simulated

import bfcviz
from bfcviz.devices import DeviceManager, LogicalDeviceConfiguration, PhysicalDevice, Settings
from bfcviz.errors import SettingError, UnknownDevice
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


def test_visible_device_list_has_an_order_of_its_own():
    settings, _ = simulated([16 * GiB, 8 * GiB, 4 * GiB])
    settings.set_gpu_options(visible_device_list="2,0")
    assert names(settings) == [
        ("/device:GPU:0", "/physical_device:GPU:2"),
        ("/device:GPU:1", "/physical_device:GPU:0"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0,x", "could not be parsed, 'x'"),
        ("0,3", "lists GPU 3"),
        ("-1", "GPU -1"),
        ("1,1", "twice"),
        (1, "give text"),
    ],
)
def test_a_wrong_visible_device_list_is_refused(text, why):
    settings, _ = simulated()
    with pytest.raises(SettingError, match=why):
        settings.set_gpu_options(visible_device_list=text)


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
    with pytest.raises(UnknownDevice, match="kind 'CPU'"):
        settings.set_visible_devices(gpus, "CPU")
    assert settings.get_visible_devices("GPU") == gpus


@pytest.mark.parametrize(
    "sizes", [None, 1.5, [0], [-1], [float("nan")], [True], ["lots"], [None], [1 << 50], 16 * GiB, "16 GiB"]
)
def test_a_simulated_gpu_of_no_possible_size_is_refused(sizes):
    with pytest.raises(SettingError, match="given"):
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
