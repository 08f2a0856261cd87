"""The limit of a device: the rule for system memory, fractions, and limits in MiB."""

import pytest
from unit.devices.machines import simulated

from bfcviz.devices import DeviceManager
from bfcviz.errors import BfcvizError, SettingError
from bfcviz.formats.tensorflow import min_system_memory
from bfcviz.units import GiB, MiB


def limits(settings):
    return [each.memory_limit for each in settings.plan() if each.name.device_type == "GPU"]


@pytest.mark.parametrize(
    ("available", "major", "mib"),
    [
        (2 * GiB - 1, 9, 225),
        (2 * GiB, 3, 500),
        (2 * GiB, 6, 500),
        (2 * GiB, 7, 1050),
        (80 * GiB, 8, 1536),
        (80 * GiB, 9, 1800),
        (80 * GiB, 12, 1800),
    ],
)
def test_the_rule_keeps_memory_back_for_the_system(available, major, mib):
    assert min_system_memory(available, major) == mib * MiB


@pytest.mark.parametrize(
    ("size", "capability", "taken", "limit"),
    [
        (16 * GiB, (7, 5), 0, 16 * GiB - 1050 * MiB),
        (16 * GiB, (8, 0), 15 * GiB, GiB - 225 * MiB),
        (2 * GiB, (6, 1), 0, 2 * GiB - 500 * MiB),
        (300 * MiB, (8, 0), 0, 75 * MiB),
        (225 * MiB, (8, 0), 0, 225 * MiB),
        (100 * MiB, (8, 0), 0, 100 * MiB),
    ],
)
def test_by_default_a_gpu_gives_what_is_free_less_what_is_kept_back(size, capability, taken, limit):
    settings, _ = simulated([size], compute_capability=capability, taken=taken)
    assert limits(settings) == [limit]


def test_a_fraction_is_of_the_whole_gpu_free_or_not():
    settings, _ = simulated([16 * GiB], taken=10 * GiB)
    settings.set_per_process_gpu_memory_fraction(0.5)
    assert limits(settings) == [8 * GiB]
    with DeviceManager.create(settings) as manager:
        heap = manager.gpu().heap
        heap.allocate(100)
        assert (
            5 * GiB < heap.stats().pool_bytes <= 6 * GiB
        )  # what is there, found by asking for less and less


def test_a_fraction_of_0_is_none():
    settings, _ = simulated([16 * GiB])
    before = limits(settings)
    settings.set_per_process_gpu_memory_fraction(0.5)
    settings.set_per_process_gpu_memory_fraction(0)
    assert limits(settings) == before


def test_a_fraction_above_1_is_unified_memory():
    settings, _ = simulated([16 * GiB])
    settings.set_per_process_gpu_memory_fraction(1.25)
    (planned,) = settings.plan()[1:]
    assert (planned.memory_limit, planned.unified) == (20 * GiB, True)
    assert "4.0 GiB; pages" in settings.explain()


def test_unified_memory_needs_pascal():
    settings, _ = simulated([16 * GiB], compute_capability=(5, 2))
    settings.set_per_process_gpu_memory_fraction(1.25)
    with pytest.raises(SettingError, match=r"5\.2; GPUs below 6\.0"):
        DeviceManager.create(settings)
    assert not settings.initialised
    settings.set_per_process_gpu_memory_fraction(1.0)
    assert limits(settings) == [16 * GiB]


def test_unified_memory_does_not_need_more_than_the_gpu_has():
    settings, _ = simulated([16 * GiB])
    settings.set_gpu_options(use_unified_memory=True)
    assert "memory is unified" in settings.explain()


def test_a_fraction_that_leaves_no_heap_is_refused():
    settings, _ = simulated([16 * GiB])
    settings.set_per_process_gpu_memory_fraction(1e-9)
    with pytest.raises(SettingError, match="leave a heap of 17 bytes"):
        settings.plan()


@pytest.mark.parametrize("fraction", [1e300, 1e6])
def test_a_fraction_that_no_address_space_holds_is_refused(fraction):
    settings, _ = simulated([16 * GiB])
    settings.set_per_process_gpu_memory_fraction(fraction)
    with pytest.raises(BfcvizError, match=r"2\^62|TiB"):
        DeviceManager.create(settings).close()
    assert not settings.initialised


@pytest.mark.parametrize("by_option", [False, True])
def test_what_is_kept_back_can_be_set_in_mib(by_option):
    environment = {} if by_option else {"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "1024"}
    settings, _ = simulated([16 * GiB], environment=environment)
    if by_option:
        settings.set_gpu_options(gpu_system_memory_size_in_mb=1024)
    assert limits(settings) == [15 * GiB]
    assert settings.plan()[1].kept_back == GiB
    assert "1024 MiB" in settings.explain()


def test_as_in_tensorflow_memory_kept_back_in_mib_overrides_a_fraction():
    settings, _ = simulated([16 * GiB], environment={"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "1024"})
    settings.set_per_process_gpu_memory_fraction(0.5)
    assert limits(settings) == [15 * GiB]


@pytest.mark.parametrize("text", ["many", "-5", "20000", "1.5"])
def test_memory_kept_back_that_cannot_be_is_ignored_and_that_is_told(text):
    settings, _ = simulated([16 * GiB], environment={"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": text})
    assert limits(settings) == [16 * GiB - 1536 * MiB]
    assert "it is ignored" in settings.explain()
