"""How much a device may take: the rule for the system's memory, fractions, what is set in MiB; and the words for it."""

import pytest
from devices.machines import simulated

from bfcviz.devices import DeviceManager, LogicalDeviceConfiguration, jax_settings, simulate_gpus
from bfcviz.devices.settings.limits import min_system_memory
from bfcviz.errors import BfcvizError, SettingError
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
    assert "unified: 4.0 GiB more than the GPU has" in settings.explain()


def test_unified_memory_needs_pascal():
    settings, _ = simulated([16 * GiB], compute_capability=(5, 2))
    settings.set_per_process_gpu_memory_fraction(1.25)
    with pytest.raises(SettingError, match=r"5\.2; GPUs below 6\.0"):
        DeviceManager.create(settings)
    assert not settings.initialised
    settings.set_per_process_gpu_memory_fraction(1.0)
    assert limits(settings) == [16 * GiB]


def test_unified_memory_can_be_had_without_more_than_the_gpu_has():
    settings, _ = simulated([16 * GiB])
    settings.set_gpu_options(use_unified_memory=True)
    assert "pages move between the GPU and the host" in settings.explain()


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


def test_the_explanation_says_how_much_when_and_why():
    settings, gpus = simulated()
    text = settings.explain()
    for words in (
        "/device:GPU:0 takes 14.5 GiB of /physical_device:GPU:0 (simulated GPU of 16.0 GiB)",
        "all of it at once, with the first tensor",
        "1.5 GiB kept back for the system (compute capability 8.x)",
        "/device:GPU:1 takes 6.5 GiB",
        "/device:CPU:0 takes memory of the machine",
    ):
        assert words in text
    for gpu in gpus:
        settings.set_memory_growth(gpu, True)
    settings.set_visible_devices(gpus[0], "GPU")
    settings.set_gpu_options(garbage_collection=False)
    text = settings.explain()
    for words in (
        "takes up to 14.5 GiB",
        "2.0 MiB with the first tensor, twice as much each time",
        "none goes back before the session ends",
        "Memory growth is on.",
        "Not visible, and not touched: /physical_device:GPU:1.",
    ):
        assert words in text
    settings.set_logical_device_configuration(gpus[0], [LogicalDeviceConfiguration(1024)] * 2)
    assert "(logical device 2 of 2 on this GPU)" in settings.explain()


def test_the_explanation_of_an_order_gives_the_machines_number():
    settings, _ = simulated([16 * GiB, 8 * GiB], visible="1,0")
    assert (
        "/device:GPU:0 takes 6.5 GiB of /physical_device:GPU:0 (simulated GPU of 8.0 GiB, number 1 of"
        in settings.explain()
    )


def test_the_explanation_without_a_gpu_says_so():
    settings, _ = simulated([])
    assert "There is no GPU" in settings.explain()


def test_what_is_explained_is_what_is_taken():
    for growth in (False, True):
        settings, gpus = simulated([16 * GiB, 8 * GiB])
        for gpu in gpus:
            settings.set_memory_growth(gpu, growth)
        planned = settings.plan()[1:]
        with DeviceManager.create(settings) as manager:
            for each, device in zip(planned, manager.list_devices("GPU"), strict=True):
                heap = device.heap
                assert heap.stats().bytes_limit == device.memory_limit == each.memory_limit
                while (address := heap.try_allocate(256 * MiB)) is not None:
                    last = address
                assert last
                assert heap.stats().pool_bytes == each.memory_limit


# -- JAX ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "limit", "growth"),
    [
        ({}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "0"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".50"}, 8 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25", "XLA_PYTHON_CLIENT_ALLOCATOR": "BFC"}, 4 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "2", "TF_FORCE_UNIFIED_MEMORY": "1"}, 32 * GiB, False),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, 12 * GiB, False),  # TensorFlow's, not JAX's
    ],
)
def test_variables_of_jax_are_the_same_options(variables, limit, growth):
    settings = jax_settings(simulate_gpus([16 * GiB]), variables)
    (planned,) = settings.plan()[1:]
    assert (planned.memory_limit, planned.options.allow_growth) == (limit, growth)
    assert planned.unified is ("TF_FORCE_UNIFIED_MEMORY" in variables)
    assert settings.explain().startswith("As JAX sets it: XLA_PYTHON_CLIENT_MEM_FRACTION")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "half", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "nan", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "1.5", "TF_FORCE_UNIFIED_MEMORY"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform", "straight from the device"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "driver"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "best", "JAX knows"),
    ],
)
def test_variables_that_jax_refuses_or_that_have_no_bfc_heap_are_refused(name, value, why):
    with pytest.raises(SettingError, match=why):
        jax_settings(simulate_gpus([16 * GiB]), {name: value})


def test_the_share_of_jax_is_what_xla_logs():
    # "XLA backend allocating 3825205248 bytes on device 0 for BFCAllocator" on an A100 MIG 1g.5gb
    assert limits(jax_settings(simulate_gpus([5_100_273_664]), {})) == [3_825_205_248]


def test_jax_settings_are_the_process_s_by_default(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
    assert limits(jax_settings(simulate_gpus([16 * GiB]))) == [4 * GiB]
