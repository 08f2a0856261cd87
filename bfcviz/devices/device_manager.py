"""DeviceManager: creates the devices of a session by their factories, and finds them by name; its steps, as a list."""

import html
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, Self

from bfcviz._context_manager import Closing
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.devices.device import CPUDevice, Device, GPUCompatibleCPUDevice, GPUDevice
from bfcviz.devices.device_plan import PlannedDevice, State
from bfcviz.devices.physical_devices import DeviceName, SimulatedMemory, parse_name
from bfcviz.devices.session_memory import AllocatorRegistry, HostMemory, SessionHeaps
from bfcviz.devices.settings import Settings
from bfcviz.errors import DevicesError, UnknownDevice
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# The steps in which a session made its devices: settings, factories, devices, manager; as a list, and as a trace.


class Step(NamedTuple):
    """One step of a session. `stage`: session, settings, factory, device or manager; `num_bytes`: 0 without a size."""

    time_ns: int
    stage: str
    words: str
    num_bytes: int

    @property
    def label(self) -> str:
        """The label of the MARK of a session's step."""
        return f"{self.stage}: {self.words}"


class Journey:
    """The steps of a session as MARK events: settings, factories, devices, manager, in order; prints as a list."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.labels = Labels()
        self._steps: list[tuple[str, str]] = []

    def note(self, stage: str, words: str, num_bytes: int = 0) -> None:
        """Record one step of a session."""
        self._steps.append((stage, words))
        number = self.labels.intern(f"{stage}: {words}")
        thread = self.log.begin_operation(-1)
        self.log.put(Kind.MARK, 0, 0, 0, num_bytes, 0, 0, number, thread, 0, -1, 0)

    @property
    def steps(self) -> list[Step]:
        """All steps of a session so far."""
        marks = self.log.copy(0, self.log.head)
        return [
            Step(int(mark["time"]), stage, words, int(mark["size"]))
            for mark, (stage, words) in zip(marks, self._steps, strict=True)
        ]

    def trace(self) -> Trace:
        """The steps of a session as a trace, to view or to save next to the traces of the heaps."""
        origin = Origin(pools=(Pool("journey of a session"),))
        return Trace.from_events(self.log.copy(0, self.log.head), self.labels, origin)

    def __str__(self) -> str:
        return "\n".join(
            f"{_session_step_time(step)}  {step.stage:<8}  {_session_step_text(step)}" for step in self.steps
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_session_step_time(step)}</td><td>{html.escape(step.stage)}</td>"
            f"<td style='text-align:left'>{html.escape(_session_step_text(step))}</td></tr>"
            for step in self.steps
        )
        return f"<table><tr><th>time</th><th>stage</th><th>what happened</th></tr>{rows}</table>"


def _session_step_text(step: Step) -> str:
    return f"{step.words} ({format_bytes(step.num_bytes)})" if step.num_bytes else step.words


def _session_step_time(step: Step) -> str:
    return f"{step.time_ns / 1e6:9.3f} ms"


# ------------------------------------------------------------------------------
# Factories of devices: they create those of one type for a session, and a registry has the one of highest priority.


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


# ------------------------------------------------------------------------------
# DeviceManager: creates the devices of a session by their factories, and finds them by name.


class DeviceManager(Closing):
    """Owns devices and finds them by name.

    Args:
        devices: devices with distinct names.
        host: host memory they share; closed with them.
        journey: the steps of their creation.

    Attributes:
        closed: whether all memory is released.
    """

    def __init__(
        self, devices: Iterable[Device], host: HostMemory | None = None, journey: Journey | None = None
    ) -> None:
        self._devices: dict[DeviceName, Device] = {}
        for each in devices:
            if each.parsed_name in self._devices:
                raise DevicesError(f"two devices are named {each.name}: give each a unique name")
            self._devices[each.parsed_name] = each
        self._host = host
        self.journey = Journey() if journey is None else journey
        self.closed = False

    @classmethod
    def create(
        cls,
        settings: Settings | None = None,
        *,
        factories: FactoryRegistry = FACTORIES,
        record: str | os.PathLike[str] | None = None,
        capacity: int = 1 << 16,
        registry: AllocatorRegistry | None = None,
    ) -> Self:
        """Create the planned devices; after that the settings are fixed.

        Args:
            settings: None = the defaults.
            factories: create the devices.
            record: a new folder for a recording of each heap; None = rings in memory.
            capacity: events in each ring, a multiple of 64.
            registry: creates the allocator of the CPU's memory, like TensorFlow's registry; None = the session creates
                a heap.

        Raises:
            SettingError: the settings contradict each other; they stay unchanged.
            DeviceError: CUDA failed.
        """
        settings = Settings() if settings is None else settings
        journey = Journey()
        _note_visible_devices(journey, settings)
        plan = settings.plan()
        state = settings.state
        heaps = SessionHeaps(record, capacity)
        real = [each.physical for each in plan if each.physical.driver is not None]
        with ExitStack() as undo:
            undo.callback(heaps.discard)
            host = HostMemory(heaps, plan[0].memory_limit, state, next(iter(real), None), registry)
            undo.callback(host.close)
            devices: list[Device] = []
            for each in _devices_of(CreationContext(state, plan, heaps, host), factories, journey):
                undo.callback(each.close)
                devices.append(each)
            made = cls(devices, host, journey)
            settings.initialise(plan)
            undo.pop_all()
        journey.note("manager", f"has {len(devices)} devices: {', '.join(made.list_names())}")
        return made

    @property
    def devices(self) -> list[Device]:
        """All devices of a session, the CPU first."""
        return list(self._devices.values())

    def list_devices(self, device_type: str | None = None) -> list[Device]:
        """The devices of a type, `GPU` or `CPU`; None = all."""
        return [each for each in self._devices.values() if device_type in (None, each.device_type)]

    def list_names(self) -> list[str]:
        """The short names of all devices of a session."""
        return [each.name for each in self._devices.values()]

    def device(self, name: str) -> Device:
        """A device by its full or short name, or `GPU:0`.

        Raises:
            UnknownDevice: no device has that name.
        """
        found = self._devices.get(parse_name(name))
        if found is None:
            raise UnknownDevice(
                f"no device is named {name!r}; the devices are {', '.join(self.list_names())}"
            )
        return found

    def gpu(self, index: int = 0) -> GPUDevice:
        """A GPU by its index; raises UnknownDevice if it does not exist."""
        found = self.device(f"GPU:{index}")
        if not isinstance(found, GPUDevice):
            raise UnknownDevice(
                f"{found!r} is not a GPUDevice, another factory created it: get it with device()"
            )
        return found

    def close(self) -> None:
        """Close all devices, the last one first, and release all memory, including memory in use."""
        if self.closed:
            return
        self.closed = True
        with ExitStack() as everything:
            if self._host is not None:
                everything.callback(self._host.close)
            for each in self._devices.values():
                everything.callback(each.close)
        self.journey.note("manager", "closed: all memory is released")

    def __getitem__(self, name: str) -> Device:
        return self.device(name)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and parse_name(name) in self._devices
        except UnknownDevice:
            return False

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    def __len__(self) -> int:
        return len(self._devices)

    def __repr__(self) -> str:
        return f"<DeviceManager {'closed, ' if self.closed else ''}{', '.join(map(repr, self._devices.values()))}>"


def _note_visible_devices(journey: Journey, settings: Settings) -> None:
    journey.note("session", "begins")
    for each in settings.list_physical_devices():
        visible = "visible" if each in settings.get_visible_devices() else "not visible"
        journey.note("settings", f"{each.name} is {visible}: {each.description}", each.total_bytes)


def _devices_of(context: CreationContext, factories: FactoryRegistry, journey: Journey) -> Iterator[Device]:
    """Create a `DeviceManager`'s devices; note each step in the journey and as marks in each GPU's heap."""
    for kind in factories.device_types:
        factory = factories.get(kind)
        name = type(factory).__name__
        journey.note("factory", f"{name} creates devices of type {kind}, priority {factories.priority(kind)}")
        for device in factory.create(context):
            journey.note("device", _created_device_words(device.planned, device), device.memory_limit)
            if isinstance(heap := getattr(device, "heap", None), BFCAllocator):
                for step in journey.steps:
                    heap.mark(step.label, step.num_bytes)
            yield device


def _created_device_words(planned: PlannedDevice, device: Device) -> str:
    growth = "growing" if planned.options.allow_growth else "taken at once"
    mark = " (simulated)" if device.simulated else ""
    return f"created {device.full_name}{mark} on {planned.physical.name}, {growth}"
