"""Device factories: each makes the devices of one kind; of several for a kind the one of highest priority does."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bfcviz.devices.cpu import CPUDevice, GPUCompatibleCPUDevice
from bfcviz.devices.device import Device
from bfcviz.devices.gpu import GPUDevice
from bfcviz.devices.host_memory import HostMemory
from bfcviz.devices.session_heaps import Logs
from bfcviz.devices.settings.plan import Planned
from bfcviz.devices.settings.state import State
from bfcviz.devices.simulated_memory import SimulatedMemory
from bfcviz.errors import DevicesError


@dataclass
class Making:
    """What factories share while they make the devices of one session.

    Attributes:
        state: the settings.
        planned: the devices that are to be.
        logs: makes their heaps.
        host: the machine's memory.
        memories: of simulated GPUs, by the name of the physical device.
    """

    state: State
    planned: list[Planned]
    logs: Logs
    host: HostMemory
    memories: dict[str, SimulatedMemory] = field(default_factory=dict)

    def of_type(self, device_type: str) -> list[Planned]:
        """The planned devices of a kind."""
        return [each for each in self.planned if each.name.device_type == device_type]

    def memory_of(self, planned: Planned) -> SimulatedMemory | None:
        """The memory of a simulated GPU, one for all logical devices on it; None for real ones."""
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
    """Makes devices of one kind; derive from it and register what you made.

    Attributes:
        device_type: of what it makes.
    """

    device_type: ClassVar[str] = ""

    def create(self, making: Making) -> Iterator[Device]:
        """Make the session's devices of this kind, one after the other."""
        raise NotImplementedError


class ThreadPoolDeviceFactory(DeviceFactory):
    """Plain CPUs."""

    device_type = "CPU"

    def create(self, making: Making) -> Iterator[Device]:
        """A CPU for each that is planned."""
        for planned in making.of_type("CPU"):
            yield CPUDevice(planned, making.host)


class GPUCompatibleCPUDeviceFactory(DeviceFactory):
    """CPUs with a pool for transfers to GPUs."""

    device_type = "CPU"

    def create(self, making: Making) -> Iterator[Device]:
        """A CPU for each that is planned."""
        force = making.state.options.force_gpu_compatible
        for planned in making.of_type("CPU"):
            yield GPUCompatibleCPUDevice(planned, making.host, force_gpu_compatible=force)


class GPUDeviceFactory(DeviceFactory):
    """GPUs, real and simulated."""

    device_type = "GPU"

    def create(self, making: Making) -> Iterator[Device]:
        """A GPU for each that is planned."""
        force = making.state.options.force_gpu_compatible
        for planned in making.of_type("GPU"):
            memory = making.memory_of(planned)
            yield GPUDevice(planned, making.host, making.logs, memory, force_gpu_compatible=force)


class FactoryRegistry:
    """The factories there are, by kind."""

    def __init__(self) -> None:
        self._factories: dict[str, tuple[int, DeviceFactory]] = {}

    def register(self, factory: DeviceFactory, priority: int = 50) -> None:
        """Add a factory; it takes the place of one of lower priority, and stays behind one of higher.

        Raises:
            DevicesError: there is one of the same kind and priority.
        """
        kind = factory.device_type
        known = self._factories.get(kind)
        if known is not None and known[0] == priority:
            raise DevicesError(
                f"duplicate registration of a device factory for kind {kind!r} with the same priority {priority}: "
                f"{type(known[1]).__name__} is there; give {type(factory).__name__} another one"
            )
        if known is None or priority > known[0]:
            self._factories[kind] = (priority, factory)

    def get(self, device_type: str) -> DeviceFactory:
        """The factory of a kind.

        Raises:
            DevicesError: there is none.
        """
        if device_type not in self._factories:
            kinds = ", ".join(sorted(self._factories)) or "none"
            raise DevicesError(f"no factory makes devices of kind {device_type!r}; there are {kinds}")
        return self._factories[device_type][1]

    def priority(self, device_type: str) -> int:
        """The priority of a kind's factory; raises as `get` does."""
        self.get(device_type)
        return self._factories[device_type][0]

    @property
    def device_types(self) -> list[str]:
        """The kinds, in the order in which devices are made: the CPU first, then by priority."""
        return sorted(self._factories, key=lambda kind: (kind != "CPU", -self._factories[kind][0]))

    def copy(self) -> "FactoryRegistry":
        """The same factories in another registry."""
        made = FactoryRegistry()
        made._factories = dict(self._factories)
        return made


FACTORIES: Final = FactoryRegistry()
"""Those that sessions use if they are given no others; the priorities are TensorFlow's."""

FACTORIES.register(ThreadPoolDeviceFactory(), 60)
FACTORIES.register(GPUCompatibleCPUDeviceFactory(), 70)
FACTORIES.register(GPUDeviceFactory(), 210)
