"""GPUOptions and LogicalDeviceConfiguration: TensorFlow's settings as values, checked when they are made."""

import math
import operator
from dataclasses import dataclass
from numbers import Real

from bfcviz.errors import SettingError
from bfcviz.units import MiB


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One logical device of a physical one.

    Attributes:
        memory_limit: its memory in MiB, as in TensorFlow; required for a GPU, forbidden for the CPU.

    Raises:
        SettingError: no number, or less than 1 MiB.
    """

    memory_limit: float | None = None

    def __post_init__(self) -> None:
        if self.memory_limit is not None and not _number(self.memory_limit, "memory_limit") >= 1:
            raise SettingError(
                f"a memory_limit of {self.memory_limit} MiB was given; it is in MiB: give 1 or more, such as 2048"
            )

    @property
    def limit_bytes(self) -> int:
        """The limit in bytes; 0 where there is none."""
        return 0 if self.memory_limit is None else int(self.memory_limit) * MiB


@dataclass(frozen=True)
class GPUOptions:
    """What holds for all GPUs of a session, in TensorFlow's names.

    Attributes:
        per_process_gpu_memory_fraction: limit each heap to this share of the GPU's whole memory; above 1.0 the memory
            is unified, and the rest lies with the host; 0 = by the rule for the system's memory.
        use_unified_memory: unified memory also at a share of 1.0 or less.
        visible_device_list: numbers of GPUs, in the order they are to have: `"1,0"`; empty = all.
        gpu_system_memory_size_in_mb: MiB kept back, in place of the rule; 0 = by the rule.
        garbage_collection: before failing, give wholly free regions back and ask once more.
        internal_fragmentation_fraction: see `AllocatorOptions.fragmentation_fraction`.
        retry_s: how long a failed request waits for a free; 0 = not at all (TensorFlow waits 10 s).
        force_gpu_compatible: all memory of the host is pinned.
        gpu_host_mem_limit_in_mb: MiB that the pool of pinned memory may grow to; 0 = 64 GiB.
        gpu_host_mem_disallow_growth: that pool takes its limit at once.

    Raises:
        SettingError: a number that cannot be.
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
        fraction = _number(self.per_process_gpu_memory_fraction, "per_process_gpu_memory_fraction")
        if not fraction >= 0:
            raise SettingError(
                f"per_process_gpu_memory_fraction {fraction} was given; it is a share of the GPU's memory: give more "
                "than 0, 0.5 for half of it, above 1.0 for unified memory; 0 leaves it to the rule"
            )
        if not 0 <= _number(self.internal_fragmentation_fraction, "internal_fragmentation_fraction") <= 1:
            raise SettingError(
                f"internal_fragmentation_fraction {self.internal_fragmentation_fraction} was given; give 0 to 1"
            )
        if not _number(self.retry_s, "retry_s") >= 0:
            raise SettingError(f"retry_s {self.retry_s} was given; give 0 or more")
        for name in ("gpu_system_memory_size_in_mb", "gpu_host_mem_limit_in_mb"):
            _check_mib(name, getattr(self, name))
        names = (
            "use_unified_memory",
            "garbage_collection",
            "force_gpu_compatible",
            "gpu_host_mem_disallow_growth",
        )
        for name in names:
            check_flag(name, getattr(self, name))
        if not isinstance(self.visible_device_list, str):
            raise SettingError(
                f"visible_device_list {self.visible_device_list!r} was given; give text, as '1,0'"
            )

    @property
    def unified(self) -> bool:
        """Whether the heaps may hold more than the GPU has."""
        return self.use_unified_memory or self.per_process_gpu_memory_fraction > 1.0


def listed(text: str, count: int) -> list[int]:
    """The numbers in a `visible_device_list`.

    Raises:
        SettingError: an entry that is no number, no GPU, or there twice.
    """
    order: list[int] = []
    for word in text.split(","):
        try:
            number = int(word)
        except ValueError:
            raise SettingError(
                f"visible_device_list {text!r} has an entry that could not be parsed, {word!r}: give numbers, as '1,0'"
            ) from None
        if not 0 <= number < count:
            raise SettingError(
                f"visible_device_list {text!r} lists GPU {number}; there are {count}, counted from 0"
            )
        if number in order:
            raise SettingError(f"visible_device_list {text!r} contains GPU {number} twice: list each once")
        order.append(number)
    return order


def check_flag(name: str, value: object) -> None:
    """Raise SettingError where a value is not True or False."""
    if not isinstance(value, bool):
        raise SettingError(f"{name} {value!r} was given; give True or False")


def _check_mib(name: str, value: object) -> None:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise SettingError(f"{name} {value!r} was given; give whole MiB") from error
    if isinstance(value, bool) or not 0 <= number < 1 << 40:
        raise SettingError(f"{name} {value!r} was given; give 0 or more MiB")


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{name} {value!r} was given; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SettingError(f"{name} {value!r} was given; give a finite number")
    return number
