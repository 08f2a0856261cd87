"""State: all settings at one moment, as one value that is replaced whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.gpu_options import GPUOptions, LogicalDeviceConfiguration

Logical = tuple[LogicalDeviceConfiguration, ...]


@dataclass(frozen=True)
class State:
    """What has been set.

    Attributes:
        physical: all devices there are, the CPU first.
        visible: those that may be used, in no particular order.
        growth: whether memory growth is on, by GPU.
        logical: logical devices, by the devices for which they were configured.
        options: what holds for all GPUs.
        environment: variables that are looked at when devices are made.
        notes: where settings came from, in words.
    """

    physical: tuple[PhysicalDevice, ...]
    visible: tuple[PhysicalDevice, ...]
    growth: Mapping[PhysicalDevice, bool]
    logical: Mapping[PhysicalDevice, Logical] = field(default_factory=lambda: MappingProxyType({}))
    options: GPUOptions = field(default_factory=GPUOptions)
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    def of_type(self, device_type: str) -> list[PhysicalDevice]:
        """The visible devices of a kind, in the machine's order: the order they were made visible in does not count."""
        return [each for each in self.physical if each.device_type == device_type and each in self.visible]
