"""Device plan: which devices the settings give, the memory limit of each, and the reasons; and the plan in words."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.devices.physical import DeviceName, PhysicalDevice
from bfcviz.devices.settings.limits import Limit, single_device_limit
from bfcviz.devices.settings.setting_values import LogicalDeviceConfiguration, State, parse_visible_devices
from bfcviz.errors import SettingError
from bfcviz.units import GiB, MiB, format_bytes

FORCE_GROWTH: Final = "TF_FORCE_GPU_ALLOW_GROWTH"
HOST_LIMIT: Final = 64 * GiB
"""Default limit of each host heap, as in TensorFlow."""

POOL_LIMIT: Final = "TF_GPU_HOST_MEM_LIMIT_IN_MB"
COLLECTION: Final = "TF_ENABLE_GPU_GARBAGE_COLLECTION"


@dataclass(frozen=True)
class PlannedDevice:
    """One planned device of the session.

    Attributes:
        name: its name.
        physical: the physical device below it.
        memory_limit: bytes its heap may take.
        options: options of its heap.
        kept_back: bytes of the GPU kept back for the system.
        unified: whether it may exceed the GPU's memory.
        because: the reasons, one sentence each.
        ignored: settings without effect, one sentence each.
    """

    name: DeviceName
    physical: PhysicalDevice
    memory_limit: int
    options: AllocatorOptions
    kept_back: int = 0
    unified: bool = False
    because: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


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
    gpus = _ordered(state)
    growth = _growth(state)
    options = AllocatorOptions(
        allow_growth=growth.on,
        garbage_collection=_collects(state),
        fragmentation_fraction=state.options.internal_fragmentation_fraction,
        retry_s=state.options.retry_s,
    )
    limits = [(gpu, limit) for gpu in gpus for limit in _limits(state, gpu)]
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


def _ordered(state: State) -> list[PhysicalDevice]:
    gpus = state.of_type("GPU")
    text = state.options.visible_device_list
    if not text:
        return gpus
    everything = [each for each in state.physical if each.device_type == "GPU"]
    return [
        everything[number]
        for number in parse_visible_devices(text, len(everything))
        if everything[number] in gpus
    ]


def _limits(state: State, gpu: PhysicalDevice) -> Iterator[Limit]:
    """One limit for each logical device of a GPU."""
    configured = state.logical.get(gpu, ())
    if not configured:
        yield single_device_limit(gpu, state.options, state.environment)
    for number, each in enumerate(configured):
        words = (
            f"set_logical_device_configuration sets {format_bytes(each.limit_bytes)} "
            f"(logical device {number + 1} of {len(configured)} on this GPU)."
        )
        yield Limit(each.limit_bytes, 0, (words, *_crowded(gpu, state)))


def _crowded(gpu: PhysicalDevice, state: State) -> Iterator[str]:
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


def _growth(state: State) -> _GrowthDecision:
    wishes = {state.growth[gpu] for gpu in state.of_type("GPU")}
    if not state.logical:
        if len(wishes) > 1:
            raise SettingError(
                "memory growth cannot differ between GPU devices: call set_memory_growth with the same value for "
                "every visible GPU"
            )
        grows = True in wishes
        return _forced(state, _GrowthDecision(grows, ("Memory growth is on.",) if grows else ()))
    dropped = "Memory growth is on and has no effect: TensorFlow drops it when logical devices are set."
    return _forced(state, _GrowthDecision(on=False, ignored=(dropped,) if True in wishes else ()))


def _forced(state: State, wish: _GrowthDecision) -> _GrowthDecision:
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


def _collects(state: State) -> bool:
    return state.options.garbage_collection and state.environment.get(COLLECTION) != "false"


class Explanation(str):
    """Text that a notebook shows without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: "object", cycle: bool) -> None:  # noqa: ARG002, FBT001  IPython's call
        printer.text(str(self))  # type: ignore[attr-defined]


def explain(planned: Sequence[PlannedDevice], hidden: Sequence[str], notes: Sequence[str]) -> Explanation:
    """One paragraph per device, and one for hidden devices.

    Args:
        planned: the devices.
        hidden: names of physical devices that are not visible.
        notes: the origin of the settings.
    """
    paragraphs = [*notes]
    paragraphs += [_cpu(each) if each.name.device_type == "CPU" else _gpu(each) for each in planned]
    if all(each.name.device_type != "GPU" for each in planned):
        paragraphs.append("No GPU is visible: no GPU memory is taken.")
    if hidden:
        paragraphs.append(f"Not visible and not used: {', '.join(hidden)}.")
    paragraphs += dict.fromkeys(sentence for each in planned for sentence in each.ignored)
    return Explanation("\n\n".join(paragraphs))


def _cpu(each: PlannedDevice) -> str:
    return (
        f"{each.name.short} takes host memory as tensors need it, up to {format_bytes(each.memory_limit)}; a "
        "second pool holds memory for transfers to and from a GPU."
    )


def _gpu(each: PlannedDevice) -> str:
    gpu = each.physical
    how_much = (
        f"{each.name.short} takes {'up to ' if each.options.allow_growth else ''}{format_bytes(each.memory_limit)} "
        f"of {gpu.name} ({gpu.description}{_ordinal(each)})."
    )
    sentences = [how_much, _when(each), f"Why: {' '.join(each.because)}"]
    if each.unified:
        over = max(0, each.memory_limit - gpu.total_bytes)
        sentences.append(
            f"The memory is unified: it may exceed the GPU's memory by {format_bytes(over)}; pages move between the "
            "GPU and the host, which is slow."
            if over
            else "The memory is unified: pages move between the GPU and the host as they are used."
        )
    return " ".join(sentences)


def _ordinal(each: PlannedDevice) -> str:
    gpu = each.physical
    return "" if gpu.name.endswith(f":{gpu.ordinal}") else f", number {gpu.ordinal} of the machine"


def _when(each: PlannedDevice) -> str:
    if not each.options.allow_growth:
        return "When: all at once with the first tensor; it is kept until the session ends."
    first = min(each.memory_limit, 2 * MiB)
    back = (
        "free regions are released only when a request would fail"
        if each.options.garbage_collection
        else "no region is released before the session ends"
    )
    return f"When: {format_bytes(first)} with the first tensor, then twice as much each time more is needed; {back}."
