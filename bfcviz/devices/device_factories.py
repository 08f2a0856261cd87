"""Factories of devices: they create those of one type for a session, and a registry has the one of highest priority."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bfcviz.devices.device import CPUDevice, Device, GPUCompatibleCPUDevice, GPUDevice
from bfcviz.devices.device_plan import PlannedDevice, State
from bfcviz.devices.session_memory import HostMemory, SessionHeaps
from bfcviz.devices.simulated_gpu_memory import SimulatedMemory
from bfcviz.errors import DevicesError


@dataclass
class CreationContext:
    """What the factories of a `DeviceManager` share while they create its devices.

    Attributes:
        memories: memory of simulated GPUs, by the name of the physical device.
    """

    state: State
    planned: list[PlannedDevice]
    heaps: SessionHeaps
    host: HostMemory
    memories: dict[str, SimulatedMemory] = field(default_factory=dict)

    def of_type(self, device_type: str) -> list[PlannedDevice]:
        """The planned devices of a type, for its factory."""
        return [each for each in self.planned if each.name.device_type == device_type]

    def memory_of(self, planned: PlannedDevice) -> SimulatedMemory | None:
        """The memory of a simulated GPU, for the factory of its logical devices, which share it; of a real GPU None."""
        gpu = planned.physical
        if not gpu.simulated:
            return None
        if gpu.name not in self.memories:
            limits = [each.memory_limit for each in self.planned if each.physical == gpu]
            self.memories[gpu.name] = SimulatedMemory(
                gpu.available_bytes(),
                2 * max(gpu.total_bytes, sum(limits)),
                gpu.ordinal,
                readable=gpu.memory == "host",
            )
        return self.memories[gpu.name]


class DeviceFactory:
    """Factory of a `DeviceManager`'s devices of one type; derive from it and register an instance."""

    device_type: ClassVar[str] = ""

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create the session's devices of this type, one after the other."""
        raise NotImplementedError


class ThreadPoolDeviceFactory(DeviceFactory):
    """Factory of a `DeviceManager`'s CPU devices."""

    device_type = "CPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one CPU device per planned CPU."""
        for planned in context.of_type("CPU"):
            yield CPUDevice(planned, context.host)


class GPUCompatibleCPUDeviceFactory(DeviceFactory):
    """Factory of CPU devices with a pool for transfers to GPUs."""

    device_type = "CPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one CPU device per planned CPU, with a pool for transfers."""
        force = context.state.options.force_gpu_compatible
        for planned in context.of_type("CPU"):
            yield GPUCompatibleCPUDevice(planned, context.host, force_gpu_compatible=force)


class GPUDeviceFactory(DeviceFactory):
    """Factory of a `DeviceManager`'s GPU devices, real and simulated."""

    device_type = "GPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one GPU device per planned GPU."""
        force = context.state.options.force_gpu_compatible
        for planned in context.of_type("GPU"):
            memory = context.memory_of(planned)
            yield GPUDevice(planned, context.host, context.heaps, memory, force_gpu_compatible=force)


class FactoryRegistry:
    """Factories of devices by device type."""

    def __init__(self) -> None:
        self._factories: dict[str, tuple[int, DeviceFactory]] = {}

    def register(self, factory: DeviceFactory, priority: int = 50) -> None:
        """Add a factory of devices. It replaces one of lower priority; one of higher priority stays in use.

        Raises:
            DevicesError: a factory of the same type and priority is registered.
        """
        kind = factory.device_type
        known = self._factories.get(kind)
        if known is not None and known[0] == priority:
            raise DevicesError(
                f"duplicate registration of a device factory for type {kind!r} with the same priority {priority}: "
                f"{type(known[1]).__name__} has it; give {type(factory).__name__} another priority"
            )
        if known is None or priority > known[0]:
            self._factories[kind] = (priority, factory)

    def get(self, device_type: str) -> DeviceFactory:
        """The factory of devices in use for a type.

        Raises:
            DevicesError: no factory is registered for it.
        """
        if device_type not in self._factories:
            kinds = ", ".join(sorted(self._factories)) or "none"
            raise DevicesError(
                f"no factory creates devices of type {device_type!r}; registered types: {kinds}"
            )
        return self._factories[device_type][1]

    def priority(self, device_type: str) -> int:
        """The priority of the factory of devices in use for a type; raises as `get` does."""
        self.get(device_type)
        return self._factories[device_type][0]

    @property
    def device_types(self) -> list[str]:
        """The types of devices in creation order: the CPU first, then by priority."""
        return sorted(self._factories, key=lambda kind: (kind != "CPU", -self._factories[kind][0]))

    def copy(self) -> "FactoryRegistry":
        """Copy the registry of factories of devices."""
        made = FactoryRegistry()
        made._factories = dict(self._factories)
        return made


FACTORIES: Final = FactoryRegistry()
"""The default factories of a session; the priorities are TensorFlow's."""

FACTORIES.register(ThreadPoolDeviceFactory(), 60)
FACTORIES.register(GPUCompatibleCPUDeviceFactory(), 70)
FACTORIES.register(GPUDeviceFactory(), 210)
