"""The device plan that settings give, by TensorFlow's rules: which devices, their limits, and why, in words."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.devices.gpu_options import (
    GPUOptions,
    checked_setting_number,
    parse_visible_devices,
)
from bfcviz.devices.physical_devices import DeviceName, PhysicalDevice
from bfcviz.errors import SettingError
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
from bfcviz.units import MiB, format_bytes

# ------------------------------------------------------------------------------
# The settings that a plan is made from.


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One logical device of a physical one, as it is to be planned.

    Attributes:
        memory_limit: its memory in MiB, as in TensorFlow; required for a GPU, forbidden for the CPU.

    Raises:
        SettingError: not a number, or less than 1 MiB.
    """

    memory_limit: float | None = None

    def __post_init__(self) -> None:
        limit = self.memory_limit
        if limit is not None and checked_setting_number(limit, "memory_limit") < 1:
            raise SettingError(f"memory_limit is {self.memory_limit} MiB; give 1 MiB or more, such as 2048")

    @property
    def limit_bytes(self) -> int:
        """The memory that a logical device is planned with, in bytes; 0 = no limit."""
        return 0 if self.memory_limit is None else int(self.memory_limit) * MiB


Logical = tuple[LogicalDeviceConfiguration, ...]


@dataclass(frozen=True)
class State:
    """What a device plan is made from: all memory settings at one moment, the GPU options among them."""

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
        """The visible devices of a type to plan for, in the machine's order."""
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
    """Keep MiB back in the plan as TensorFlow does: of all free memory, in place of any earlier limit."""
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
    """Plan the CPU device, or its logical CPUs.

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
    """Plan the GPU devices, in the order of their names.

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
    """Limit of the planned transfer pool in bytes: from the option, else the environment, else TensorFlow's default."""
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
    """One limit in the plan for each logical device of a GPU."""
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
    """Whether heaps in the plan grow, the reasons, and the settings without effect."""

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
