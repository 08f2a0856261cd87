"""Settings by TensorFlow's rules: what may be set, what contradicts what, when it is too late; nothing half-done."""

import pytest
from devices.machines import simulated
from hypothesis import given
from hypothesis import strategies as st

import bfcviz
from bfcviz.devices import (
    DeviceManager,
    GPUOptions,
    LogicalDeviceConfiguration,
    PhysicalDevice,
    SettingIgnored,
    Settings,
)
from bfcviz.errors import BfcvizError, SettingError, SettingTooLate, UnknownDevice
from bfcviz.units import GiB, MiB

NUMBERS_THAT_CANNOT_BE = [0, -1, float("nan"), float("inf"), float("-inf"), 10**400, True, "1024", [], 1j]


def limit(mib):
    return LogicalDeviceConfiguration(memory_limit=mib)


def names(settings):
    return [
        (each.name.short, each.physical.name) for each in settings.plan() if each.name.device_type == "GPU"
    ]


# -- visible devices ----------------------------------------------------------------------------------------------


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
    assert "does nothing" in settings.explain()
    with pytest.warns(SettingIgnored, match="TensorFlow drops it"):
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
        ([limit(1024), limit(16 * 1024 + 1)], "which has 16.0 GiB"),
        ([1024], "LogicalDeviceConfiguration"),
        (limit(1024), "give a list"),
        (None, "give a list"),
    ):
        with pytest.raises(SettingError, match=why):
            settings.set_logical_device_configuration(gpus[0], wrong)
    assert settings.get_logical_device_configuration(gpus[0]) is None


def test_limits_that_together_exceed_the_gpu_are_allowed_and_told():
    settings, gpus = simulated()
    settings.set_logical_device_configuration(gpus[0], [limit(10 * 1024)] * 2)
    assert "who asks first gets it" in settings.explain()


# -- GPU options --------------------------------------------------------------------------------------------------


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
        {"retry_seconds": -1},
        {"gpu_system_memory_size_in_mb": -1},
        {"gpu_system_memory_size_in_mb": 1.5},
        {"gpu_host_mem_limit_in_mb": True},
        {"use_unified_memory": None},
        {"per_process_gpu_memory_fraction": 0.5, "retry_seconds": float("nan")},
    ],
)
def test_wrong_gpu_options_are_refused_and_none_of_them_set(options):
    settings, _ = simulated()
    with pytest.raises(SettingError, match=next(reversed(options))):
        settings.set_gpu_options(**options)
    assert settings.options == GPUOptions()


def test_options_of_the_heap_reach_it():
    settings, _ = simulated()
    settings.set_gpu_options(
        garbage_collection=False, internal_fragmentation_fraction=0.25, retry_seconds=0.5
    )
    with DeviceManager.create(settings) as manager:
        options = manager.gpu().heap.options
        assert (options.garbage_collection, options.fragmentation_fraction, options.retry_seconds) == (
            False,
            0.25,
            0.5,
        )


@pytest.mark.parametrize(
    ("text", "collects"), [("false", False), ("False", False), ("0", False), ("true", True)]
)
def test_the_environment_can_end_garbage_collection(text, collects):
    settings, _ = simulated(environment={"TF_ENABLE_GPU_GARBAGE_COLLECTION": text})
    assert settings.plan()[1].options.garbage_collection is collects


@pytest.mark.parametrize(
    "sizes", [[0], [-1], [float("nan")], [True], ["lots"], [None], [1 << 50], 16 * GiB, "16 GiB"]
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


# -- too late -----------------------------------------------------------------------------------------------------


def test_after_devices_are_made_nothing_can_be_changed_but_what_is_so_already_can_be_said():
    settings, gpus = simulated()
    (cpu,) = settings.list_physical_devices("CPU")
    settings.set_gpu_options(retry_seconds=0.5)
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
        settings.set_gpu_options(retry_seconds=0.5)
        assert settings.state == before
    with pytest.raises(RuntimeError):  # the devices are closed, the settings stay what they were made with
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


# -- nothing half-done --------------------------------------------------------------------------------------------

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
