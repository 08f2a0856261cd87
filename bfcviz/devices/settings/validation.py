"""What TensorFlow forbids of logical devices, each with its reason."""

from collections.abc import Sequence

from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.gpu_options import GPUOptions, LogicalDeviceConfiguration
from bfcviz.errors import SettingError
from bfcviz.units import format_bytes


def check_logical(device: PhysicalDevice, each: LogicalDeviceConfiguration) -> None:
    """Raise SettingError where a device cannot have such a logical one."""
    if not isinstance(each, LogicalDeviceConfiguration):
        raise SettingError(f"{each!r} was given; give LogicalDeviceConfiguration(memory_limit=MiB)")
    if device.device_type == "CPU" and each.memory_limit is not None:
        raise SettingError("a memory limit on logical CPU devices is not supported: leave memory_limit out")
    if device.device_type == "GPU" and each.memory_limit is None:
        raise SettingError("a memory limit is required for logical GPU devices: give memory_limit in MiB")
    if each.limit_bytes > device.total_bytes:
        raise SettingError(
            f"a memory_limit of {format_bytes(each.limit_bytes)} was given for {device.name}, which has "
            f"{format_bytes(device.total_bytes)}: give less; it is in MiB"
        )


def check_fraction(options: GPUOptions, configured: Sequence[LogicalDeviceConfiguration]) -> None:
    """Raise SettingError where there is a fraction, and logical devices too."""
    if configured and options.per_process_gpu_memory_fraction > 0:
        raise SettingError(
            "per_process_gpu_memory_fraction cannot be set together with logical devices on a GPU: give each its "
            "memory_limit instead"
        )
