"""GPUOptions: the options of all GPUs of a session, with TensorFlow's names, and the checks of their values."""

import math
import operator
from dataclasses import dataclass
from numbers import Real

from bfcviz.errors import SettingError


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
            checked_setting_number(getattr(self, name), name)
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
        """Whether the GPU options let the heaps exceed the GPU's memory."""
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
    """Raise SettingError if the value of a GPU option, or of another memory setting, is not True or False."""
    if not isinstance(value, bool):
        raise SettingError(f"{name} is {value!r}; give True or False")


def _check_mib(name: str, value: object) -> None:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise SettingError(f"{name} is {value!r}; give whole MiB") from error
    if isinstance(value, bool) or not 0 <= number < 1 << 40:
        raise SettingError(f"{name} is {value!r}; give 0 or more MiB")


def checked_setting_number(value: object, name: str) -> float:
    """The value of a GPU option, or of another memory setting, as a finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{name} is {value!r}; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SettingError(f"{name} is {value!r}; give a finite number")
    return number
