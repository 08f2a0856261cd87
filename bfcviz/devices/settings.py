"""Memory settings by TensorFlow's names or JAX's variables, and the device plan they give, with its reasons."""

import math
import operator
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.devices.physical import DeviceName, PhysicalDevice, cuda_gpus, host_cpu
from bfcviz.errors import SettingError, SettingTooLate, UnknownDevice
from bfcviz.formats.tensorflow import (
    COLLECTION,
    FIRST_REGION,
    FORCE_GROWTH,
    HOST_LIMIT,
    POOL_LIMIT,
    RESERVED,
    SMALL_DEVICE,
    UNIT,
    min_system_memory,
)
from bfcviz.formats.xla import PREALLOCATE, ClientSettings, client_settings
from bfcviz.units import MiB, format_bytes

# ------------------------------------------------------------------------------
# Settings as values, and their checks: GPUOptions, LogicalDeviceConfiguration, and State (all at one moment).


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One logical device of a physical one.

    Attributes:
        memory_limit: its memory in MiB, as in TensorFlow; required for a GPU, forbidden for the CPU.

    Raises:
        SettingError: not a number, or less than 1 MiB.
    """

    memory_limit: float | None = None

    def __post_init__(self) -> None:
        limit = self.memory_limit
        if limit is not None and _checked_setting_number(limit, "memory_limit") < 1:
            raise SettingError(f"memory_limit is {self.memory_limit} MiB; give 1 MiB or more, such as 2048")

    @property
    def limit_bytes(self) -> int:
        """The limit in bytes; 0 = no limit."""
        return 0 if self.memory_limit is None else int(self.memory_limit) * MiB


@dataclass(frozen=True)
class GPUOptions:
    """Options of all GPUs of a session, with TensorFlow's names.

    Attributes:
        per_process_gpu_memory_fraction: limit each heap to this share of the GPU's total memory; above 1.0 the memory
            is unified and the rest is on the host; 0 = apply the rule for system memory.
        use_unified_memory: unified memory also at a share of 1.0 or less.
        visible_device_list: GPU indices in the wanted order: `"1,0"`; empty = all.
        gpu_system_memory_size_in_mb: MiB to keep back for the system; 0 = apply the rule.
        garbage_collection: before a request fails, release wholly free regions and retry once.
        internal_fragmentation_fraction: see `AllocatorOptions.fragmentation_fraction`.
        retry_s: seconds a failed request waits for a free; 0 = no wait (TensorFlow waits 10 s).
        force_gpu_compatible: pin all host memory.
        gpu_host_mem_limit_in_mb: limit of the pinned pool in MiB; 0 = 64 GiB.
        gpu_host_mem_disallow_growth: the pinned pool takes its whole limit at once.

    Raises:
        SettingError: an impossible number.
    """

    per_process_gpu_memory_fraction: float = 0.0
    use_unified_memory: bool = False
    visible_device_list: str = ""
    gpu_system_memory_size_in_mb: int = 0
    garbage_collection: bool = True
    internal_fragmentation_fraction: float = 0.0
    retry_s: float = 0.0
    force_gpu_compatible: bool = False
    gpu_host_mem_limit_in_mb: int = 0
    gpu_host_mem_disallow_growth: bool = False

    def __post_init__(self) -> None:
        for name in ("per_process_gpu_memory_fraction", "internal_fragmentation_fraction", "retry_s"):
            _checked_setting_number(getattr(self, name), name)
        fraction = float(self.per_process_gpu_memory_fraction)
        if fraction < 0:
            raise SettingError(
                f"per_process_gpu_memory_fraction is {fraction}; it is a share of the GPU's memory: give 0.5 for half, "
                "more than 1.0 for unified memory, or 0 for the default rule"
            )
        if not 0 <= self.internal_fragmentation_fraction <= 1:
            raise SettingError(
                f"internal_fragmentation_fraction is {self.internal_fragmentation_fraction}; give 0 to 1"
            )
        if self.retry_s < 0:
            raise SettingError(f"retry_s is {self.retry_s}; give 0 or more")
        for name in ("gpu_system_memory_size_in_mb", "gpu_host_mem_limit_in_mb"):
            _check_mib(name, getattr(self, name))
        names = (
            "use_unified_memory",
            "garbage_collection",
            "force_gpu_compatible",
            "gpu_host_mem_disallow_growth",
        )
        for name in names:
            check_setting_flag(name, getattr(self, name))
        if not isinstance(self.visible_device_list, str):
            raise SettingError(
                f"visible_device_list is {self.visible_device_list!r}; give text such as '1,0'"
            )

    @property
    def unified(self) -> bool:
        """Whether the heaps may exceed the GPU's memory."""
        return self.use_unified_memory or self.per_process_gpu_memory_fraction > 1.0


def parse_visible_devices(text: str, count: int) -> list[int]:
    """The GPU indices in a `visible_device_list`.

    Raises:
        SettingError: an entry is not a number, not a GPU, or appears twice.
    """
    order: list[int] = []
    for word in text.split(","):
        try:
            number = int(word)
        except ValueError:
            raise SettingError(
                f"visible_device_list {text!r} has an entry that cannot be parsed, {word!r}: give numbers such as '1,0'"
            ) from None
        if not 0 <= number < count:
            raise SettingError(f"visible_device_list {text!r} lists GPU {number}; give 0 to {count - 1}")
        if number in order:
            raise SettingError(f"visible_device_list {text!r} contains GPU {number} twice: list each once")
        order.append(number)
    return order


def check_setting_flag(name: str, value: object) -> None:
    """Raise SettingError if the value of a setting is not True or False."""
    if not isinstance(value, bool):
        raise SettingError(f"{name} is {value!r}; give True or False")


def check_logical(device: PhysicalDevice, each: LogicalDeviceConfiguration) -> None:
    """Raise SettingError if a device cannot have this logical device."""
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


def check_fraction(options: GPUOptions, configured: Sequence[LogicalDeviceConfiguration]) -> None:
    """Raise SettingError if both a fraction and logical devices are set."""
    if configured and options.per_process_gpu_memory_fraction > 0:
        raise SettingError(
            "per_process_gpu_memory_fraction cannot be set together with logical devices on a GPU: give each "
            "logical device a memory_limit instead"
        )


def _check_mib(name: str, value: object) -> None:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise SettingError(f"{name} is {value!r}; give whole MiB") from error
    if isinstance(value, bool) or not 0 <= number < 1 << 40:
        raise SettingError(f"{name} is {value!r}; give 0 or more MiB")


def _checked_setting_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{name} is {value!r}; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SettingError(f"{name} is {value!r}; give a finite number")
    return number


Logical = tuple[LogicalDeviceConfiguration, ...]


@dataclass(frozen=True)
class State:
    """All settings."""

    physical: tuple[PhysicalDevice, ...]  # all devices, the CPU first
    visible: tuple[PhysicalDevice, ...]  # the devices to use, in no particular order
    growth: Mapping[PhysicalDevice, bool]  # whether memory growth is on, by GPU
    # configured logical devices, by physical device
    logical: Mapping[PhysicalDevice, Logical] = field(default_factory=lambda: MappingProxyType({}))
    options: GPUOptions = field(default_factory=GPUOptions)
    # variables read when devices are created
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()  # the origin of the settings, in words

    def of_type(self, device_type: str) -> list[PhysicalDevice]:
        """The visible devices of a type, in the machine's order."""
        return [each for each in self.physical if each.device_type == device_type and each in self.visible]


# ------------------------------------------------------------------------------
# Limit of a GPU's heap: TensorFlow's arithmetic, with a reason for each number.
#
# The default is all free memory less a reserve for the system (`min_system_memory`). Source:
# SingleVirtualDeviceMemoryLimit in TensorFlow's gpu_device.cc.


class Limit(NamedTuple):
    """The limit that settings give a GPU's heap: its bytes, bytes kept back for the system, and the reasons."""

    num_bytes: int
    kept_back: int
    because: tuple[str, ...]


def single_device_limit(gpu: PhysicalDevice, options: GPUOptions, environment: Mapping[str, str]) -> Limit:
    """The limit of a GPU without configured logical devices.

    Raises:
        SettingError: the GPU does not support unified memory, or the limit leaves no heap.
    """
    if options.unified and gpu.compute_capability < (6, 0):
        major, minor = gpu.compute_capability
        raise SettingError(
            f"{gpu.name} has compute capability {major}.{minor}; GPUs below 6.0 (before Pascal) do not support unified "
            "memory: set per_process_gpu_memory_fraction to 1.0 or less"
        )
    available = gpu.available_bytes()
    fraction = options.per_process_gpu_memory_fraction
    limit = _limit_by_fraction(gpu, fraction) if fraction else _limit_by_rule(gpu, available)
    if options.gpu_system_memory_size_in_mb:
        limit = _limit_less_reserved(
            limit, available, options.gpu_system_memory_size_in_mb, "gpu_system_memory_size_in_mb"
        )
    if text := environment.get(RESERVED):
        limit = _limit_by_environment(limit, available, text)
    if limit.num_bytes < UNIT:
        raise SettingError(
            f"these settings leave a heap of {limit.num_bytes} bytes on {gpu.name}, of "
            f"{format_bytes(gpu.total_bytes)}: {' '.join(limit.because)} Raise the limit"
        )
    return limit


def _limit_by_fraction(gpu: PhysicalDevice, fraction: float) -> Limit:
    words = (
        f"per_process_gpu_memory_fraction is {fraction:g}: this share of all {format_bytes(gpu.total_bytes)}, free or "
        "in use; nothing is kept back."
    )
    if gpu.total_bytes * fraction >= 1 << 62:
        raise SettingError(
            f"per_process_gpu_memory_fraction {fraction:g} of {gpu.name} is more than 2^62 bytes"
        )
    return Limit(int(gpu.total_bytes * fraction), 0, (words,))


def _limit_by_rule(gpu: PhysicalDevice, available: int) -> Limit:
    major = gpu.compute_capability[0]
    kept = min_system_memory(available, major)
    free = f"No limit is set: all free memory ({format_bytes(available)} of {format_bytes(gpu.total_bytes)})"
    if kept >= available:
        words = f"{free}; keeping back {format_bytes(kept)} for the system is not possible, less is free."
        return Limit(available, 0, (words,))
    why = "less than 2 GiB are free" if available < SMALL_DEVICE else f"compute capability {major}.x"
    words = f"{free}, less {format_bytes(kept)} kept back for the system ({why})."
    return Limit(available - kept, kept, (words,))


def _limit_by_environment(limit: Limit, available: int, text: str) -> Limit:
    if re.fullmatch(r"\s*[0-9]{1,12}\s*", text) is None:
        words = f"{RESERVED} is {text!r}, not a number of MiB: it is ignored."
        return limit._replace(because=(*limit.because, words))
    return _limit_less_reserved(limit, available, int(text), RESERVED)


def _limit_less_reserved(limit: Limit, available: int, mib: int, name: str) -> Limit:
    """Keep MiB back as TensorFlow does: subtract them from all free memory and replace any earlier limit."""
    kept = mib * MiB
    if kept > available:
        words = f"{name} is {mib} MiB, more than the {format_bytes(available)} free: it is ignored."
        return limit._replace(because=(*limit.because, words))
    words = f"{name} is {mib} MiB: all free memory ({format_bytes(available)}) less {format_bytes(kept)}."
    return Limit(available - kept, kept, (words,))


# ------------------------------------------------------------------------------
# Device plan: which devices the settings give, the memory limit of each, and the reasons; and the plan in words.


@dataclass(frozen=True)
class PlannedDevice:
    """One device that the settings plan for the session, with the reasons."""

    name: DeviceName
    physical: PhysicalDevice  # the physical device below it
    memory_limit: int  # bytes its heap may take
    options: AllocatorOptions
    kept_back: int = 0  # bytes of the GPU kept back for the system
    unified: bool = False  # whether it may exceed the GPU's memory
    because: tuple[str, ...] = ()  # the reasons, one sentence each
    ignored: tuple[str, ...] = ()  # settings without effect, one sentence each


def plan_cpus(state: State) -> list[PlannedDevice]:
    """Plan the CPU, or its logical CPUs.

    Raises:
        SettingError: the CPU is not visible.
    """
    found: list[PlannedDevice] = []
    for cpu in state.of_type("CPU"):
        for _ in state.logical.get(cpu, (LogicalDeviceConfiguration(),)):
            name = DeviceName("CPU", len(found))
            limit = min(cpu.total_bytes, HOST_LIMIT)
            found.append(PlannedDevice(name, cpu, limit, AllocatorOptions(allow_growth=True)))
    if not found:
        raise SettingError(
            "no CPU devices are available in this process: set_visible_devices(..., 'GPU') hides GPUs only; without "
            "the second argument it also hides the CPU"
        )
    return found


def plan_gpus(state: State) -> list[PlannedDevice]:
    """Plan the GPUs, in the order of their names.

    Raises:
        SettingError: the settings contradict each other or the machine.
    """
    gpus = _visible_gpus_in_order(state)
    growth = _memory_growth_decision(state)
    options = AllocatorOptions(
        allow_growth=growth.on,
        garbage_collection=state.options.garbage_collection and state.environment.get(COLLECTION) != "false",
        fragmentation_fraction=state.options.internal_fragmentation_fraction,
        retry_s=state.options.retry_s,
    )
    limits = [(gpu, limit) for gpu in gpus for limit in _logical_device_limits(state, gpu)]
    return [
        PlannedDevice(
            DeviceName("GPU", number),
            gpu,
            limit.num_bytes,
            options,
            limit.kept_back,
            state.options.unified,
            (*limit.because, *growth.because),
            growth.ignored,
        )
        for number, (gpu, limit) in enumerate(limits)
    ]


def pool_limit(state: State) -> int:
    """Limit of the transfer pool in bytes: from the option, else the environment, else TensorFlow's default."""
    text = state.environment.get(POOL_LIMIT, "")
    by_environment = int(text) * MiB if re.fullmatch(r"[0-9]{1,12}", text) else 0
    return state.options.gpu_host_mem_limit_in_mb * MiB or by_environment or HOST_LIMIT


def _visible_gpus_in_order(state: State) -> list[PhysicalDevice]:
    gpus = state.of_type("GPU")
    text = state.options.visible_device_list
    if not text:
        return gpus
    everything = [each for each in state.physical if each.device_type == "GPU"]
    chosen = [everything[number] for number in parse_visible_devices(text, len(everything))]
    return [each for each in chosen if each in gpus]


def _logical_device_limits(state: State, gpu: PhysicalDevice) -> Iterator[Limit]:
    """One limit for each logical device of a GPU."""
    configured = state.logical.get(gpu, ())
    if not configured:
        yield single_device_limit(gpu, state.options, state.environment)
    for number, each in enumerate(configured):
        words = (
            f"set_logical_device_configuration sets {format_bytes(each.limit_bytes)} "
            f"(logical device {number + 1} of {len(configured)} on this GPU)."
        )
        yield Limit(each.limit_bytes, 0, (words, *_crowded_gpu_warning(gpu, state)))


def _crowded_gpu_warning(gpu: PhysicalDevice, state: State) -> Iterator[str]:
    """A sentence if the settings' logical devices may take more than their GPU has."""
    together = sum(each.limit_bytes for each in state.logical.get(gpu, ()))
    if together > gpu.total_bytes:
        yield (
            f"Together they may take {format_bytes(together)} of {format_bytes(gpu.total_bytes)}: TensorFlow allows "
            "this; the first request gets the memory."
        )


class _GrowthDecision(NamedTuple):
    """Whether heaps grow, the reasons, and the settings without effect."""

    on: bool
    because: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def _memory_growth_decision(state: State) -> _GrowthDecision:
    wishes = {state.growth[gpu] for gpu in state.of_type("GPU")}
    if not state.logical:
        if len(wishes) > 1:
            raise SettingError(
                "memory growth cannot differ between GPU devices: call set_memory_growth with the same value for "
                "every visible GPU"
            )
        grows = True in wishes
        wish = _GrowthDecision(grows, ("Memory growth is on.",) if grows else ())
    else:
        dropped = "Memory growth is on and has no effect: TensorFlow drops it when logical devices are set."
        wish = _GrowthDecision(on=False, ignored=(dropped,) if True in wishes else ())
    return _forced_growth_decision(state, wish)


def _forced_growth_decision(state: State, wish: _GrowthDecision) -> _GrowthDecision:
    """The environment overrides growth, with and without logical devices."""
    text = state.environment.get(FORCE_GROWTH)
    if text is None:
        return wish
    if text not in ("true", "false"):
        unread = f"{FORCE_GROWTH} is {text!r} and is ignored: it accepts only 'true' and 'false'."
        return wish._replace(ignored=(*wish.ignored, unread))
    forced = text == "true"
    told = "." if forced == wish.on else f": it overrides the setting, which was {wish.on}."
    return _GrowthDecision(forced, (f"{FORCE_GROWTH} is {text!r}{told}",), () if forced else wish.ignored)


class Explanation(str):
    """The plan that the settings give, in words; a notebook shows it without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: "object", cycle: bool) -> None:  # noqa: ARG002, FBT001  IPython's call
        printer.text(str(self))  # type: ignore[attr-defined]


def _gpu_plan_text(each: PlannedDevice) -> str:
    gpu = each.physical
    number = "" if gpu.name.endswith(f":{gpu.ordinal}") else f", number {gpu.ordinal} of the machine"
    how_much = (
        f"{each.name.short} takes {'up to ' if each.options.allow_growth else ''}{format_bytes(each.memory_limit)} "
        f"of {gpu.name} ({gpu.description}{number})."
    )
    sentences = [how_much, _when_gpu_takes_memory(each), f"Why: {' '.join(each.because)}"]
    if each.unified:
        over = max(0, each.memory_limit - gpu.total_bytes)
        sentences.append(
            f"The memory is unified: it may exceed the GPU's memory by {format_bytes(over)}; pages move between the "
            "GPU and the host, which is slow."
            if over
            else "The memory is unified: pages move between the GPU and the host as they are used."
        )
    return " ".join(sentences)


def _when_gpu_takes_memory(each: PlannedDevice) -> str:
    if not each.options.allow_growth:
        return "When: all at once with the first tensor; it is kept until the session ends."
    first = min(each.memory_limit, FIRST_REGION)
    back = (
        "free regions are released only when a request would fail"
        if each.options.garbage_collection
        else "no region is released before the session ends"
    )
    return f"When: {format_bytes(first)} with the first tensor, then twice as much each time more is needed; {back}."


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
        """All settings now."""
        environment = os.environ if self._environment is None else self._environment
        return replace(self._state, environment=MappingProxyType(dict(environment)))

    @property
    def options(self) -> GPUOptions:
        """Options of all GPUs."""
        return self._state.options

    def list_physical_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """All devices of the machine, visible or not."""
        return [each for each in self._state.physical if device_type in (None, each.device_type)]

    def copy(self) -> "Settings":
        """Copy the settings for another session; the copy can be changed."""
        made = Settings((), environment=self._environment)
        made._state = self._state
        return made

    # -- which devices ------------------------------------------------------------------------------------------

    def get_visible_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """The devices a session will use."""
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
        """Whether memory growth is on for a GPU."""
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
            check_logical(device, each)
        if device.device_type == "GPU":
            check_fraction(self._state.options, configured)
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
        check_fraction(made, [each for gpu in gpus for each in self._state.logical.get(gpu, ())])
        self._change("GPU options", options=made)

    # -- the plan ----------------------------------------------------------------------------------------------

    def plan(self) -> list[PlannedDevice]:
        """The devices a session would get now, the CPU first.

        Raises:
            SettingError: the settings contradict each other.
        """
        state = self.state
        gpus = plan_gpus(state)  # TensorFlow checks GPUs first
        return [*plan_cpus(state), *gpus]

    def explain(self) -> Explanation:
        """Say in words how much memory each device takes, when, and why; a paragraph each. Raises as `plan` does.

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
