"""Settings by TensorFlow's rules: memory growth, logical devices, and their contradictions."""

import pytest
from unit.devices.machines import simulated

import bfcviz
from bfcviz.devices import (
    DeviceManager,
    LogicalDeviceConfiguration,
    SettingIgnored,
    Settings,
)
from bfcviz.errors import SettingError
from bfcviz.units import GiB, MiB

NUMBERS_THAT_CANNOT_BE = [0, -1, float("nan"), float("inf"), float("-inf"), 10**400, True, "1024", [], 1j]


def limit(mib):
    return LogicalDeviceConfiguration(memory_limit=mib)


# -- memory growth ------------------------------------------------------------------------------------------------


def test_with_growth_a_heap_begins_small_and_without_it_takes_its_limit():
    for growth, pool in ((False, 14.5 * GiB), (True, 2 * MiB)):
        settings, gpus = simulated()
        for gpu in gpus:
            settings.set_memory_growth(gpu, growth)
            assert settings.get_memory_growth(gpu) is growth
        with DeviceManager.create(settings) as manager:
            heap = manager.gpu().heap
            assert heap.stats().pool_bytes == 0  # nothing is taken before the first tensor
            heap.allocate(1000)
            assert heap.stats().pool_bytes == pool


def test_growth_must_be_the_same_for_all_visible_gpus_when_devices_are_made():
    settings, gpus = simulated()
    settings.set_memory_growth(gpus[0], True)
    with pytest.raises(SettingError, match="memory growth cannot differ between GPU devices"):
        DeviceManager.create(settings)
    settings.set_visible_devices(gpus[0], "GPU")
    assert settings.plan()[1].options.allow_growth


def test_only_gpus_grow():
    settings, _ = simulated()
    with pytest.raises(SettingError, match="only GPUs"):
        settings.set_memory_growth(settings.list_physical_devices("CPU")[0], True)
    for wrong in (1, "yes", None):
        with pytest.raises(SettingError, match="True or False"):
            settings.set_memory_growth(settings.list_physical_devices("GPU")[0], wrong)


@pytest.mark.parametrize("wish", [False, True])
@pytest.mark.parametrize(("text", "forced"), [("true", True), ("false", False), ("1", None), ("", None)])
def test_the_environment_has_the_last_word_on_growth(wish, text, forced):
    settings, gpus = simulated(environment={"TF_FORCE_GPU_ALLOW_GROWTH": text})
    for gpu in gpus:
        settings.set_memory_growth(gpu, wish)
    assert settings.plan()[1].options.allow_growth is (wish if forced is None else forced)
    assert "TF_FORCE_GPU_ALLOW_GROWTH" in settings.explain()
    if forced is None:
        with pytest.warns(SettingIgnored, match="'true' and 'false'"):
            DeviceManager.create(settings).close()


def test_the_environment_is_the_process_s_at_the_time_devices_are_made(monkeypatch):
    settings = Settings(bfcviz.simulate_gpus([16 * GiB]))
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    assert settings.plan()[1].options.allow_growth
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert not settings.plan()[1].options.allow_growth


# -- logical devices ----------------------------------------------------------------------------------------------


def test_a_gpu_can_be_several_logical_ones_with_limits():
    settings, gpus = simulated()
    settings.set_logical_device_configuration(gpus[0], [limit(4096), limit(1024.9)])
    assert settings.get_logical_device_configuration(gpus[0]) == (limit(4096), limit(1024.9))
    assert settings.get_logical_device_configuration(gpus[1]) is None
    planned = [each for each in settings.plan() if each.name.device_type == "GPU"]
    assert [each.memory_limit for each in planned] == [4 * GiB, 1 * GiB, 8 * GiB - 1536 * MiB]
    assert [each.physical for each in planned] == [gpus[0], gpus[0], gpus[1]]


def test_the_cpu_can_be_several_logical_ones_that_share_memory():
    settings, _ = simulated()
    (cpu,) = settings.list_physical_devices("CPU")
    settings.set_logical_device_configuration(cpu, [LogicalDeviceConfiguration()] * 2)
    with DeviceManager.create(settings) as manager:
        first, second = manager.list_devices("CPU")
        assert second.name == "/device:CPU:1"
        assert first.allocator() is second.allocator()
    with pytest.raises(SettingError, match="not supported"):
        settings.set_logical_device_configuration(cpu, [limit(100)])


def test_growth_cannot_be_set_once_logical_devices_are():
    settings, gpus = simulated()
    settings.set_logical_device_configuration(gpus[0], [limit(1024)])
    with pytest.raises(SettingError, match="logical devices are configured"):
        settings.set_memory_growth(gpus[0], True)


def test_growth_set_before_logical_devices_is_dropped_and_that_is_told():
    settings, gpus = simulated()
    for gpu in gpus:
        settings.set_memory_growth(gpu, True)
    settings.set_logical_device_configuration(gpus[0], [limit(1024)])
    assert [each.options.allow_growth for each in settings.plan()[1:]] == [False, False]
    assert "has no effect" in settings.explain()
    with pytest.warns(SettingIgnored, match="growth"):
        DeviceManager.create(settings).close()


def test_the_environment_lets_even_logical_devices_grow():
    settings, gpus = simulated(environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})
    settings.set_logical_device_configuration(gpus[0], [limit(1024)])
    assert settings.plan()[1].options.allow_growth


@pytest.mark.parametrize("fraction_first", [False, True])
def test_a_fraction_and_logical_devices_contradict_each_other(fraction_first):
    settings, gpus = simulated()
    calls = [
        lambda: settings.set_per_process_gpu_memory_fraction(0.5),
        lambda: settings.set_logical_device_configuration(gpus[0], [limit(1024)]),
    ]
    first, second = calls if fraction_first else reversed(calls)
    first()
    before = settings.state
    with pytest.raises(SettingError, match="cannot be set together"):
        second()
    assert settings.state == before


@pytest.mark.parametrize("mib", [*NUMBERS_THAT_CANNOT_BE, 0.5])
def test_a_memory_limit_that_cannot_be_is_refused(mib):
    with pytest.raises(SettingError, match="memory_limit"):
        limit(mib)


def test_a_memory_limit_is_required_on_a_gpu_and_must_fit_it():
    settings, gpus = simulated()
    for wrong, why in (
        ([LogicalDeviceConfiguration()], "required"),
        ([limit(1024), limit(16 * 1024 + 1)], "has 16.0 GiB"),
        ([1024], "LogicalDeviceConfiguration"),
        (limit(1024), "give a list"),
        (None, "give a list"),
        ([], "give at least one"),
    ):
        with pytest.raises(SettingError, match=why):
            settings.set_logical_device_configuration(gpus[0], wrong)
    assert settings.get_logical_device_configuration(gpus[0]) is None


def test_limits_that_together_exceed_the_gpu_are_allowed_and_told():
    settings, gpus = simulated()
    settings.set_logical_device_configuration(gpus[0], [limit(10 * 1024)] * 2)
    assert "Together they may take" in settings.explain()
