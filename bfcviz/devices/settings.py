"""Memory settings by TensorFlow's names or JAX's variables, and the device plan they give, with its reasons."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from bfcviz.devices.device_plan import (
    Explanation,
    LogicalDeviceConfiguration,
    PlannedDevice,
    State,
    _gpu_plan_text,
    plan_cpus,
    plan_gpus,
)
from bfcviz.devices.gpu_options import GPUOptions, check_setting_flag, parse_visible_devices
from bfcviz.devices.physical_devices import PhysicalDevice, cuda_gpus, host_cpu
from bfcviz.errors import SettingError, SettingTooLate, UnknownDevice
from bfcviz.formats.xla import PREALLOCATE, ClientSettings, client_settings
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Settings: visible devices and their memory limits, with TensorFlow's names and rules.
#
# A failed call changes nothing. After the devices are created, only calls that change nothing succeed. TensorFlow
# has one set of settings per process; here they are an object, so that sessions with different settings can be
# compared.


class SettingIgnored(UserWarning):
    """One of the memory settings of the devices has no effect."""


class Settings:
    """Memory settings, to be set before the first device is created.

    Args:
        gpus: physical GPUs, as `simulate_gpus` gives them; None = those that CUDA lists.
        environment: the variables (TF_FORCE_GPU_ALLOW_GROWTH, TF_ENABLE_GPU_GARBAGE_COLLECTION,
            TF_DEVICE_MIN_SYS_MEMORY_IN_MB, TF_GPU_HOST_MEM_LIMIT_IN_MB); None = those of the process, read when
            devices are created.
        notes: the origin of the settings, for `explain`.
    """

    def __init__(
        self,
        gpus: Iterable[PhysicalDevice] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        found = tuple(cuda_gpus() if gpus is None else gpus)
        names = [getattr(each, "name", None) for each in found]
        if not all(isinstance(each, PhysicalDevice) for each in found) or len(set(names)) < len(names):
            raise SettingError(f"gpus is {found!r}; give the result of simulate_gpus or cuda_gpus")
        physical = (host_cpu(), *found)
        growth = MappingProxyType(dict.fromkeys(found, False))
        self._environment = environment
        self._state = State(physical, physical, growth, notes=tuple(notes))
        self._initialised = False

    # -- what exists -------------------------------------------------------------------------------------------

    @property
    def initialised(self) -> bool:
        """Whether the devices are created, which fixes the settings."""
        return self._initialised

    @property
    def state(self) -> State:
        """All memory settings now."""
        environment = os.environ if self._environment is None else self._environment
        return replace(self._state, environment=MappingProxyType(dict(environment)))

    @property
    def options(self) -> GPUOptions:
        """The setting of the options of all GPUs."""
        return self._state.options

    def list_physical_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """All devices of the machine, visible or not."""
        return [each for each in self._state.physical if device_type in (None, each.device_type)]

    def copy(self) -> "Settings":
        """Copy the memory settings for another session; the copy can be changed."""
        made = Settings((), environment=self._environment)
        made._state = self._state
        return made

    # -- which devices ------------------------------------------------------------------------------------------

    def get_visible_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """The setting of the devices that a session will use."""
        return [each for each in self._state.visible if device_type in (None, each.device_type)]

    def set_visible_devices(
        self, devices: PhysicalDevice | Iterable[PhysicalDevice], device_type: str | None = None
    ) -> None:
        """Use these devices only; with `device_type`, devices of other types stay as they are.

        GPUs get their names in the machine's order, not in the order given here.

        Raises:
            UnknownDevice: a device is not of this machine, or of another type.
            SettingTooLate: the devices are created.
        """
        wanted = tuple(devices) if isinstance(devices, list | tuple | set | Iterator) else (devices,)
        for each in wanted:
            self._check_known(each)
            if device_type not in (None, each.device_type):
                raise UnknownDevice(
                    f"{each!r} is not of type {device_type!r}: give devices of that type only"
                )
        others = [each for each in self._state.visible if device_type not in (None, each.device_type)]
        self._change("visible devices", visible=(*others, *wanted))

    # -- how much memory ----------------------------------------------------------------------------------------

    def get_memory_growth(self, device: PhysicalDevice) -> bool:
        """The setting whether memory growth is on for a GPU."""
        self._check_known(device)
        return self._state.growth.get(device, False)

    def set_memory_growth(self, device: PhysicalDevice, enable: bool) -> None:  # noqa: FBT001  TensorFlow's signature
        """Let a GPU's heap start small and grow. The value must be equal for all visible GPUs when devices are created.

        Raises:
            UnknownDevice: the device is not of this machine.
            SettingError: the device is not a GPU or has logical devices, or the value is not True or False.
            SettingTooLate: the devices are created.
        """
        self._check_known(device)
        if device in self._state.logical:
            raise SettingError(
                f"memory growth cannot be set on {device.name}: logical devices are configured on it and take their "
                "limits at once"
            )
        if device.device_type != "GPU":
            raise SettingError(f"memory growth cannot be set on {device.name}: only GPUs support it")
        check_setting_flag("memory growth", enable)
        self._change("physical devices", growth=MappingProxyType({**self._state.growth, device: enable}))

    def get_logical_device_configuration(
        self, device: PhysicalDevice
    ) -> tuple[LogicalDeviceConfiguration, ...] | None:
        """The logical devices configured on a device; None = none."""
        self._check_known(device)
        return self._state.logical.get(device)

    def set_logical_device_configuration(
        self, device: PhysicalDevice, logical_devices: Iterable[LogicalDeviceConfiguration]
    ) -> None:
        """Divide a device into logical devices, each with its own heap; on a GPU each needs a memory limit.

        After this, memory growth has no effect on any GPU unless the environment forces it.

        Raises:
            UnknownDevice: the device is not of this machine.
            SettingError: a limit is missing, above the device's memory, or contradicts other settings.
            SettingTooLate: the devices are created.
        """
        self._check_known(device)
        if not isinstance(logical_devices, list | tuple | Iterator):
            raise SettingError(
                f"logical_devices is {logical_devices!r}; give a list of LogicalDeviceConfiguration"
            )
        configured = tuple(logical_devices)
        if not configured:
            raise SettingError(
                f"the list of logical devices for {device.name} is empty: give at least one configuration"
            )
        for each in configured:
            _check_logical(device, each)
        if device.device_type == "GPU":
            _check_fraction(self._state.options, configured)
        logical = MappingProxyType({**self._state.logical, device: configured})
        self._change("logical devices", logical=logical)

    def set_per_process_gpu_memory_fraction(self, fraction: float) -> None:
        """Limit each GPU's heap to a share of the GPU; see `GPUOptions`."""
        self.set_gpu_options(per_process_gpu_memory_fraction=fraction)

    def set_gpu_options(self, **options: Any) -> None:
        """Set the named fields of `GPUOptions`; the others stay.

        Raises:
            SettingError: an unknown name, an impossible value, or a contradiction to other settings.
            SettingTooLate: the devices are created.
        """
        known = [each.name for each in fields(GPUOptions)]
        if unknown := sorted(set(options) - set(known)):
            raise SettingError(f"unknown GPU option {unknown[0]!r}; the options are {', '.join(known)}")
        made = replace(self._state.options, **options)
        gpus = self.list_physical_devices("GPU")
        if made.visible_device_list:
            parse_visible_devices(made.visible_device_list, len(gpus))
        _check_fraction(made, [each for gpu in gpus for each in self._state.logical.get(gpu, ())])
        self._change("GPU options", options=made)

    # -- the plan ----------------------------------------------------------------------------------------------

    def plan(self) -> list[PlannedDevice]:
        """The devices a session would get now by the settings, the CPU first.

        Raises:
            SettingError: the settings contradict each other.
        """
        state = self.state
        gpus = plan_gpus(state)  # TensorFlow checks GPUs first
        return [*plan_cpus(state), *gpus]

    def explain(self) -> Explanation:
        """Say in words how much memory each device takes by the settings, when, and why. Raises as `plan` does.

        For real GPUs this asks the driver for free memory.
        """
        planned = self.plan()
        used = {each.physical for each in planned}
        hidden = [each.name for each in self._state.physical if each not in used]
        paragraphs = [*self._state.notes]
        paragraphs += [
            f"{each.name.short} takes host memory as tensors need it, up to {format_bytes(each.memory_limit)}; a "
            "second pool holds memory for transfers to and from a GPU."
            if each.name.device_type == "CPU"
            else _gpu_plan_text(each)
            for each in planned
        ]
        if all(each.name.device_type != "GPU" for each in planned):
            paragraphs.append("No GPU is visible: no GPU memory is taken.")
        if hidden:
            paragraphs.append(f"Not visible and not used: {', '.join(hidden)}.")
        paragraphs += dict.fromkeys(sentence for each in planned for sentence in each.ignored)
        return Explanation("\n\n".join(paragraphs))

    def initialise(self, planned: Sequence[PlannedDevice]) -> None:
        """Fix the settings after the devices are created, and warn of settings without effect."""
        for sentence in dict.fromkeys(sentence for each in planned for sentence in each.ignored):
            warnings.warn(sentence, SettingIgnored, stacklevel=3)
        self._initialised = True

    def __repr__(self) -> str:
        state = "initialised" if self._initialised else "not initialised"
        return f"<Settings of {len(self._state.growth)} GPUs, {state}>"

    # -- checks -------------------------------------------------------------------------------------------------

    def _change(self, what: str, **parts: Any) -> None:
        changed = replace(self._state, **parts)
        if changed == self._state:
            return
        if self._initialised:
            raise SettingTooLate(
                f"{what} cannot be modified after being initialised: set them before the first device is created, or "
                "start another session with settings.copy()"
            )
        self._state = changed

    def _check_known(self, device: PhysicalDevice) -> None:
        if device not in self._state.physical:
            names = ", ".join(each.name for each in self._state.physical)
            raise UnknownDevice(f"unrecognised device {device!r}: give one of list_physical_devices, {names}")


def _check_logical(device: PhysicalDevice, each: LogicalDeviceConfiguration) -> None:
    """Raise SettingError if a device cannot have this setting of a logical device."""
    if not isinstance(each, LogicalDeviceConfiguration):
        raise SettingError(
            f"{each!r} is not a configuration; give LogicalDeviceConfiguration(memory_limit=MiB)"
        )
    if device.device_type == "CPU" and each.memory_limit is not None:
        raise SettingError("a memory limit on logical CPU devices is not supported: leave memory_limit out")
    if device.device_type == "GPU" and each.memory_limit is None:
        raise SettingError("a memory limit is required for logical GPU devices: give memory_limit in MiB")
    if each.limit_bytes > device.total_bytes:
        raise SettingError(
            f"memory_limit is {format_bytes(each.limit_bytes)}, {device.name} has {format_bytes(device.total_bytes)}: "
            "give less; the unit is MiB"
        )


def _check_fraction(options: GPUOptions, configured: Sequence[LogicalDeviceConfiguration]) -> None:
    """Raise SettingError if both the GPU option of a fraction and logical devices are set."""
    if configured and options.per_process_gpu_memory_fraction > 0:
        raise SettingError(
            "per_process_gpu_memory_fraction cannot be set together with logical devices on a GPU: give each "
            "logical device a memory_limit instead"
        )


def jax_settings(
    gpus: Iterable[PhysicalDevice] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Settings from JAX's variables (`bfcviz.formats.xla`): the same heap with other defaults.

    PREALLOCATE=false is memory growth on every GPU, the share is per_process_gpu_memory_fraction,
    TF_FORCE_UNIFIED_MEMORY is use_unified_memory. TensorFlow's own variables are ignored.

    Args:
        gpus: physical GPUs; None = those that CUDA lists.
        environment: the variables; None = those of the process.

    Raises:
        SettingError: a value that JAX refuses, or an allocator that is not a BFC heap.
    """
    found = os.environ if environment is None else environment
    client = client_settings(found)
    settings = Settings(gpus, environment={}, notes=[_jax_settings_note(found, client)])
    settings.set_gpu_options(
        per_process_gpu_memory_fraction=client.fraction,
        use_unified_memory=client.unified,
        garbage_collection=False,
    )
    for gpu in settings.list_physical_devices("GPU"):
        settings.set_memory_growth(gpu, not client.preallocate)
    return settings


def _jax_settings_note(found: Mapping[str, str], client: ClientSettings) -> str:
    """Which of JAX's variables the settings of `jax_settings` come from, in words."""
    share = f"{client.fraction_name} is {client.fraction:g}"
    share += "" if found.get(client.fraction_name) else ", JAX's default"
    way = f"{PREALLOCATE} is {found[PREALLOCATE]!r}" if PREALLOCATE in found else f"{PREALLOCATE} is not set"
    taken = "taken at once" if client.preallocate else "taken as needed"
    return f"Settings from JAX's variables: {share}; {way}: memory is {taken}."
