"""State: all settings at one moment, as one immutable value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.gpu_options import GPUOptions, LogicalDeviceConfiguration

Logical = tuple[LogicalDeviceConfiguration, ...]


@dataclass(frozen=True)
class State:
    """All settings.

    Attributes:
        physical: all devices, the CPU first.
        visible: the devices to use, in no particular order.
        growth: whether memory growth is on, by GPU.
        logical: configured logical devices, by physical device.
        options: options of all GPUs.
        environment: variables read when devices are created.
        notes: the origin of the settings, in words.
    """

    physical: tuple[PhysicalDevice, ...]
    visible: tuple[PhysicalDevice, ...]
    growth: Mapping[PhysicalDevice, bool]
    logical: Mapping[PhysicalDevice, Logical] = field(default_factory=lambda: MappingProxyType({}))
    options: GPUOptions = field(default_factory=GPUOptions)
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    def of_type(self, device_type: str) -> list[PhysicalDevice]:
        """The visible devices of a type, in the machine's order."""
        return [each for each in self.physical if each.device_type == device_type and each in self.visible]
