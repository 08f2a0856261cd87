"""GPU options: refused values, and their effect on the heap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.devices.machines import simulated

import bfcviz
from bfcviz.devices import (
    DeviceManager,
    GPUOptions,
    LogicalDeviceConfiguration,
    SettingIgnored,
    Settings,
    jax_settings,
    simulate_gpus,
)
from bfcviz.errors import BfcvizError, SettingError, SettingTooLate, UnknownDevice
from bfcviz.formats.tensorflow import min_system_memory
from bfcviz.units import GiB, MiB

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


# ------------------------------------------------------------------------------
# The limit of a device: the rule for system memory, fractions, and limits in MiB.


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


# ------------------------------------------------------------------------------
# The plan in words: how much each device takes, when, and why.


def test_the_explanation_says_how_much_when_and_why():
    settings, gpus = simulated()
    text = settings.explain()
    for words in (
        "/device:GPU:0 takes 14.5 GiB of /physical_device:GPU:0 (simulated GPU of 16.0 GiB)",
        "at once with the first tensor",
        "1.5 GiB kept back for the system (compute capability 8.x)",
        "/device:GPU:1 takes 6.5 GiB",
        "/device:CPU:0 takes host memory",
    ):
        assert words in text
    for gpu in gpus:
        settings.set_memory_growth(gpu, True)
    settings.set_visible_devices(gpus[0], "GPU")
    settings.set_gpu_options(garbage_collection=False)
    text = settings.explain()
    for words in (
        "takes up to 14.5 GiB",
        "When: 2.0 MiB with the first tensor",
        "no region is released",
        "Memory growth is on.",
        "/physical_device:GPU:1",
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
    assert "No GPU" in settings.explain()


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


# ------------------------------------------------------------------------------
# When settings can be changed; a failed call changes nothing.


# -- too late -----------------------------------------------------------------------------------------------------


def test_after_devices_are_made_nothing_can_be_changed_but_what_is_so_already_can_be_said():
    settings, gpus = simulated()
    (cpu,) = settings.list_physical_devices("CPU")
    settings.set_gpu_options(retry_s=0.5)
    with DeviceManager.create(settings):
        before = settings.state
        for call, what in (
            (lambda: settings.set_visible_devices(gpus[0], "GPU"), "visible devices"),
            (lambda: settings.set_memory_growth(gpus[0], True), "physical devices"),
            (lambda: settings.set_logical_device_configuration(gpus[0], [limit(100)]), "logical devices"),
            (
                lambda: settings.set_logical_device_configuration(cpu, [LogicalDeviceConfiguration()]),
                "logical",
            ),
            (lambda: settings.set_per_process_gpu_memory_fraction(0.5), "GPU options"),
        ):
            with pytest.raises(SettingTooLate, match=f"{what}.* cannot be modified after being initialised"):
                call()
        settings.set_visible_devices(gpus, "GPU")
        settings.set_memory_growth(gpus[0], False)
        settings.set_gpu_options(retry_s=0.5)
        assert settings.state == before
    with pytest.raises(RuntimeError):  # the devices are closed, their settings stay
        settings.set_memory_growth(gpus[0], True)


def test_a_copy_can_be_changed_again_and_leaves_the_original_alone():
    settings, gpus = simulated()
    settings.set_visible_devices(gpus[0], "GPU")
    with DeviceManager.create(settings):
        copy = settings.copy()
        assert copy.state == settings.state
        copy.set_memory_growth(gpus[0], True)
        assert not settings.get_memory_growth(gpus[0])
        with DeviceManager.create(copy) as manager:
            assert manager.gpu().heap.options.allow_growth


def test_errors_are_those_that_tensorflow_programs_catch():
    assert issubclass(SettingError, ValueError)
    assert issubclass(UnknownDevice, ValueError)
    assert issubclass(SettingTooLate, RuntimeError)


# -- all or nothing -----------------------------------------------------------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 20_000),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([10**400, 0.5, 1.5]),
)


@given(made=st.booleans(), data=st.data())
def test_a_call_that_fails_leaves_all_settings_as_they_were(made, data):
    settings, _ = simulated(environment={"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, memory="addresses")
    devices = st.sampled_from(
        [*settings.list_physical_devices(), None, "GPU:0", *bfcviz.simulate_gpus([GiB])]
    )
    option = st.sampled_from([*vars(GPUOptions()), "no_such"])
    calls = st.one_of(
        st.tuples(
            st.just("set_visible_devices"),
            st.lists(devices, max_size=3),
            st.sampled_from(["GPU", "CPU", None]),
        ),
        st.tuples(st.just("set_memory_growth"), devices, ODD),
        st.tuples(st.just("set_logical_device_configuration"), devices, st.lists(ODD, max_size=3)),
        st.tuples(st.just("set_gpu_options"), st.dictionaries(option, ODD, max_size=3)),
        st.tuples(st.just("create")),
    )
    if made:
        DeviceManager.create(settings).close()
    for name, *arguments in data.draw(st.lists(calls, max_size=8)):
        before, initialised = settings.state, settings.initialised
        try:
            _call(settings, name, arguments)
        except BfcvizError:
            assert (settings.state, settings.initialised) == (before, initialised)
        if made:
            assert settings.state == before


def _call(settings, name, arguments):
    if name == "create":
        if not any(settings.state.growth.values()):  # no warnings here
            DeviceManager.create(settings).close()
    elif name == "set_gpu_options":
        settings.set_gpu_options(**arguments[0])
    elif name == "set_logical_device_configuration":
        device, limits = arguments
        settings.set_logical_device_configuration(device, [limit(each) for each in limits])
    else:
        getattr(settings, name)(*arguments)


# ------------------------------------------------------------------------------
# JAX's variables give the same options.


@pytest.mark.parametrize(
    ("variables", "limit", "growth"),
    [
        ({}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "0"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".50"}, 8 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25", "XLA_PYTHON_CLIENT_ALLOCATOR": "BFC"}, 4 * GiB, False),
        ({"XLA_CLIENT_MEM_FRACTION": ".50"}, 8 * GiB, False),
        ({"XLA_CLIENT_MEM_FRACTION": ".50", "XLA_PYTHON_CLIENT_MEM_FRACTION": ""}, 8 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "2", "TF_FORCE_UNIFIED_MEMORY": "1"}, 32 * GiB, False),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, 12 * GiB, False),  # TensorFlow's, not JAX's
    ],
)
def test_variables_of_jax_are_the_same_options(variables, limit, growth):
    settings = jax_settings(simulate_gpus([16 * GiB]), variables)
    (planned,) = settings.plan()[1:]
    assert (planned.memory_limit, planned.options.allow_growth) == (limit, growth)
    assert planned.unified is ("TF_FORCE_UNIFIED_MEMORY" in variables)
    name = (
        "XLA_CLIENT_MEM_FRACTION"
        if "XLA_CLIENT_MEM_FRACTION" in variables
        else "XLA_PYTHON_CLIENT_MEM_FRACTION"
    )
    assert f"{name} is" in settings.explain()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "half", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "nan", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "1.5", "TF_FORCE_UNIFIED_MEMORY"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform", "'platform'"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "driver"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "best", "'default', 'bfc'"),
    ],
)
def test_variables_that_jax_refuses_or_that_have_no_bfc_heap_are_refused(name, value, why):
    with pytest.raises(SettingError, match=why):
        jax_settings(simulate_gpus([16 * GiB]), {name: value})


def test_both_names_of_the_share_are_refused_as_by_jax():
    both = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5", "XLA_CLIENT_MEM_FRACTION": ".5"}
    with pytest.raises(SettingError, match="together"):
        jax_settings(simulate_gpus([16 * GiB]), both)


def test_the_share_of_jax_is_what_xla_logs():
    # "XLA backend allocating 3825205248 bytes on device 0 for BFCAllocator" on an A100 MIG 1g.5gb
    assert limits(jax_settings(simulate_gpus([5_100_273_664]), {})) == [3_825_205_248]


def test_jax_settings_are_the_process_s_by_default(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
    assert limits(jax_settings(simulate_gpus([16 * GiB]))) == [4 * GiB]


# ------------------------------------------------------------------------------
# Settings by TensorFlow's rules: memory growth, logical devices, and their contradictions.


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
