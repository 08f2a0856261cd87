"""DeviceManager: creates the devices of a session by their factories, and finds them by name."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Self

from bfcviz._context_manager import Closing
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.devices.allocator_registry import AllocatorRegistry
from bfcviz.devices.device import Device, GPUDevice
from bfcviz.devices.device_factories import FACTORIES, CreationContext, FactoryRegistry
from bfcviz.devices.device_names import DeviceName, parse_name
from bfcviz.devices.device_plan import PlannedDevice
from bfcviz.devices.session_memory import HostMemory, SessionHeaps
from bfcviz.devices.session_steps import Journey
from bfcviz.devices.settings import Settings
from bfcviz.errors import DevicesError, UnknownDevice


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
