"""GPU options: refused values, and their effect on the heap."""

import pytest
from unit.devices.machines import simulated

from bfcviz.devices import DeviceManager, GPUOptions, LogicalDeviceConfiguration
from bfcviz.errors import SettingError
from bfcviz.units import GiB

NUMBERS_THAT_CANNOT_BE = [0, -1, float("nan"), float("inf"), float("-inf"), 10**400, True, "1024", [], 1j]


def limit(mib):
    return LogicalDeviceConfiguration(memory_limit=mib)


def names(settings):
    return [
        (each.name.short, each.physical.name) for each in settings.plan() if each.name.device_type == "GPU"
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
        ("0,x", "'x'"),
        ("0,3", "lists GPU 3"),
        ("-1", "GPU -1"),
        ("1,1", "twice"),
        (1, "text"),
    ],
)
def test_a_wrong_visible_device_list_is_refused(text, why):
    settings, _ = simulated()
    with pytest.raises(SettingError, match=why):
        settings.set_gpu_options(visible_device_list=text)


@pytest.mark.parametrize("fraction", [*NUMBERS_THAT_CANNOT_BE[1:], None])
def test_a_fraction_that_cannot_be_is_refused(fraction):
    settings, _ = simulated()
    with pytest.raises(SettingError, match="per_process_gpu_memory_fraction"):
        settings.set_per_process_gpu_memory_fraction(fraction)
    assert settings.options == GPUOptions()


@pytest.mark.parametrize(
    "options",
    [
        {"memory_fraction": 0.5},
        {"garbage_collection": 1},
        {"internal_fragmentation_fraction": 1.5},
        {"retry_s": -1},
        {"gpu_system_memory_size_in_mb": -1},
        {"gpu_system_memory_size_in_mb": 1.5},
        {"gpu_host_mem_limit_in_mb": True},
        {"use_unified_memory": None},
        {"per_process_gpu_memory_fraction": 0.5, "retry_s": float("nan")},
    ],
)
def test_wrong_gpu_options_are_refused_and_none_of_them_set(options):
    settings, _ = simulated()
    with pytest.raises(SettingError, match=next(reversed(options))):
        settings.set_gpu_options(**options)
    assert settings.options == GPUOptions()


def test_options_of_the_heap_reach_it():
    settings, _ = simulated()
    settings.set_gpu_options(garbage_collection=False, internal_fragmentation_fraction=0.25, retry_s=0.5)
    with DeviceManager.create(settings) as manager:
        options = manager.gpu().heap.options
        assert (options.garbage_collection, options.fragmentation_fraction, options.retry_s) == (
            False,
            0.25,
            0.5,
        )


@pytest.mark.parametrize(("text", "collects"), [("false", False), ("true", True), ("0", True)])
def test_the_environment_can_end_garbage_collection(text, collects):
    settings, _ = simulated(environment={"TF_ENABLE_GPU_GARBAGE_COLLECTION": text})
    assert settings.plan()[1].options.garbage_collection is collects
