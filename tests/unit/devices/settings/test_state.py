"""When settings can be changed; a failed call changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.devices.machines import simulated

import bfcviz
from bfcviz.devices import DeviceManager, GPUOptions, LogicalDeviceConfiguration
from bfcviz.errors import BfcvizError, SettingError, SettingTooLate, UnknownDevice
from bfcviz.units import GiB


def limit(mib):
    return LogicalDeviceConfiguration(memory_limit=mib)


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
