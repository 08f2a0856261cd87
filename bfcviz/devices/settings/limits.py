"""Limit of a GPU's heap: TensorFlow's arithmetic, with a reason for each number.

The default is all free memory less a reserve for the system (CUDA's libraries, its context, other programs). The
reserve is 225 MiB if less than 2 GiB are free, otherwise it depends on the compute capability: 500 (up to 6), 1050
(7), 1536 (8) or 1800 MiB (9 and up). Source: MinSystemMemory and SingleVirtualDeviceMemoryLimit in TensorFlow's
gpu_device.cc.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.setting_values import GPUOptions
from bfcviz.errors import SettingError
from bfcviz.live.common.headroom import min_system_memory as min_system_memory
from bfcviz.units import GiB, MiB, format_bytes

RESERVED: Final = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
_SMALL: Final = 2 * GiB


class Limit(NamedTuple):
    """Bytes a heap may take, bytes kept back for the system, and the reasons as sentences."""

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
    limit = _by_fraction(gpu, fraction) if fraction else _by_rule(gpu, available)
    if options.gpu_system_memory_size_in_mb:
        limit = _reserving(
            limit, available, options.gpu_system_memory_size_in_mb, "gpu_system_memory_size_in_mb"
        )
    if text := environment.get(RESERVED):
        limit = _by_environment(limit, available, text)
    if limit.num_bytes < 256:
        raise SettingError(
            f"these settings leave a heap of {limit.num_bytes} bytes on {gpu.name}, of "
            f"{format_bytes(gpu.total_bytes)}: {' '.join(limit.because)} Raise the limit"
        )
    return limit


def _by_fraction(gpu: PhysicalDevice, fraction: float) -> Limit:
    words = (
        f"per_process_gpu_memory_fraction is {fraction:g}: this share of all {format_bytes(gpu.total_bytes)}, free or "
        "in use; nothing is kept back."
    )
    if gpu.total_bytes * fraction >= 1 << 62:
        raise SettingError(
            f"per_process_gpu_memory_fraction {fraction:g} of {gpu.name} is more than 2^62 bytes"
        )
    return Limit(int(gpu.total_bytes * fraction), 0, (words,))


def _by_rule(gpu: PhysicalDevice, available: int) -> Limit:
    major = gpu.compute_capability[0]
    kept = min_system_memory(available, major)
    free = f"No limit is set: all free memory ({format_bytes(available)} of {format_bytes(gpu.total_bytes)})"
    if kept >= available:
        words = f"{free}; keeping back {format_bytes(kept)} for the system is not possible, less is free."
        return Limit(available, 0, (words,))
    why = "less than 2 GiB are free" if available < _SMALL else f"compute capability {major}.x"
    words = f"{free}, less {format_bytes(kept)} kept back for the system ({why})."
    return Limit(available - kept, kept, (words,))


def _by_environment(limit: Limit, available: int, text: str) -> Limit:
    if re.fullmatch(r"\s*[0-9]{1,12}\s*", text) is None:
        words = f"{RESERVED} is {text!r}, not a number of MiB: it is ignored."
        return limit._replace(because=(*limit.because, words))
    return _reserving(limit, available, int(text), RESERVED)


def _reserving(limit: Limit, available: int, mib: int, name: str) -> Limit:
    """Keep MiB back as TensorFlow does: subtract them from all free memory and replace any earlier limit."""
    kept = mib * MiB
    if kept > available:
        words = f"{name} is {mib} MiB, more than the {format_bytes(available)} free: it is ignored."
        return limit._replace(because=(*limit.because, words))
    words = f"{name} is {mib} MiB: all free memory ({format_bytes(available)}) less {format_bytes(kept)}."
    return Limit(available - kept, kept, (words,))
