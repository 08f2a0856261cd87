"""Devices: CPUs and GPUs own memory, allocators and streams; DeviceManager creates those of a session."""

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar, Final, ParamSpec, Self, TypeVar

from bfcviz._context_manager import Closing
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.cuda import Memory, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.interface import DEFAULT, Allocator, AllocatorAttributes
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.devices.allocator_registry import AllocatorRegistry
from bfcviz.devices.device_names import DeviceName, parse_name
from bfcviz.devices.device_plan import PlannedDevice
from bfcviz.devices.gpu_options import State
from bfcviz.devices.physical_devices import PhysicalDevice
from bfcviz.devices.session_memory import HostMemory, SessionHeaps
from bfcviz.devices.session_steps import Journey
from bfcviz.devices.settings import Settings
from bfcviz.devices.simulated_gpu_memory import SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.errors import DevicesError, UnknownDevice
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes

P = ParamSpec("P")
T = TypeVar("T")

NAMES: Final = ("compute", "host_to_device", "device_to_host", "device_to_device")
"""Names of a GPU's streams, as in TensorFlow; stream numbers in events count from 1."""

_NON_BLOCKING: Final = 1


class Stream:
    """A work queue of a GPU, which runs in parallel to others: a CUDA stream on a real GPU, a thread otherwise.

    Attributes:
        name: one of NAMES.
        number: stream number in events, 1..4.
        handle: handle of the CUDA stream; 0 for a simulated GPU.
        closed: whether it refuses new work.
    """

    def __init__(self, name: str, number: int, driver: Driver | None = None, device: int = 0) -> None:
        self.name = name
        self.number = number
        self.handle = 0
        self._driver = driver
        self._device = device
        self.closed = False
        self._used = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"bfcviz-{name}")
        if driver is not None:
            created = ctypes.c_void_p()
            with driver.on(device):
                driver.call("cuStreamCreate", ctypes.byref(created), _NON_BLOCKING)
            self.handle = created.value or 0
            self._destroy = weakref.finalize(self, _destroy_cuda_stream, driver, device, self.handle)
            self._destroy.atexit = False  # a process that exits, or a forked one, must not call CUDA

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a host function after all work submitted to the stream before; on CUDA, after the stream's work is done.

        Raises:
            DevicesError: the stream is closed.
        """
        if self.closed:
            raise DevicesError(f"stream {self.name} is closed and takes no work: start another session")
        self._used = True

        def after_cuda() -> T:
            self._wait_for_cuda()
            return function(*args, **kwargs)

        return self._worker.submit(after_cuda)

    def synchronize(self) -> None:
        """Wait until all work submitted to the stream is done."""
        if self._used and not self.closed:
            self._worker.submit(int).result()
        self._wait_for_cuda()

    def close(self) -> None:
        """Finish the submitted work and close the stream."""
        self.closed = True
        self._worker.shutdown()
        if self._driver is not None:
            self._destroy()

    def __cuda_stream__(self) -> tuple[int, int]:
        """CUDA's stream protocol (version, handle), for CuPy's `Stream.from_external` and others.

        Raises:
            DevicesError: the GPU is simulated.
        """
        if self._driver is None:
            raise DevicesError(
                f"stream {self.name} belongs to a simulated GPU: it has no CUDA stream to share"
            )
        return 0, self.handle

    def _wait_for_cuda(self) -> None:
        if self._driver is not None and self._destroy.alive:
            with self._driver.on(self._device):
                self._driver.call("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def __repr__(self) -> str:
        return f"<Stream {self.number} {self.name}{'' if self._driver else ', simulated'}>"


def _destroy_cuda_stream(driver: Driver, device: int, handle: int) -> None:
    if driver.is_forked:
        return  # the parent owns the stream
    with driver.on(device):
        driver.try_call("cuStreamDestroy_v2", ctypes.c_void_p(handle))


class Device(Closing):
    """The common part of all devices; a factory creates them.

    Attributes:
        planned: the plan for this device: limit, options and reasons.
        streams: work queues by name; empty on a CPU.
        closed: whether its memory is released.
    """

    def __init__(self, planned: PlannedDevice) -> None:
        self.planned = planned
        self.streams: dict[str, Stream] = {}
        self.closed = False

    @property
    def parsed_name(self) -> DeviceName:
        """Device type and index."""
        return self.planned.name

    @property
    def name(self) -> str:
        """The short name of the device, such as `/device:GPU:0`."""
        return self.planned.name.short

    @property
    def full_name(self) -> str:
        """The full name of the device, such as `/job:localhost/replica:0/task:0/device:GPU:0`."""
        return self.planned.name.full

    @property
    def device_type(self) -> str:
        """The type of the device, `GPU` or `CPU`."""
        return self.planned.name.device_type

    @property
    def physical(self) -> PhysicalDevice:
        """The physical device below the device."""
        return self.planned.physical

    @property
    def simulated(self) -> bool:
        """Whether the hardware of the device is simulated."""
        return self.physical.simulated

    @property
    def memory_limit(self) -> int:
        """The most bytes that the heap of the device may take."""
        return self.planned.memory_limit

    @property
    def description(self) -> str:
        """The device in words."""
        return f"{self.physical.description}, {format_bytes(self.memory_limit)} for tensors"

    def allocator(self, attributes: AllocatorAttributes = DEFAULT) -> Allocator:
        """The allocator of the device for memory with these attributes; each call returns the same one.

        Raises:
            DevicesError: the device is closed.
        """
        if self.closed:
            raise DevicesError(f"{self.name} is closed and has no memory: start another session")
        return self.choose(attributes)

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """Choose the allocator by the rule of this device type."""
        raise NotImplementedError

    def trace(self) -> Trace:
        """The events of the device's own heap so far."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the work of all streams of the device."""
        for stream in self.streams.values():
            stream.synchronize()

    def close(self) -> None:
        """Finish all work of the device and release all memory, including memory in use."""
        if not self.closed:
            self.closed = True
            self.release()

    def release(self) -> None:
        """Release what the device owns; called once."""

    def __repr__(self) -> str:
        mark = ", simulated" if self.simulated else ""
        end = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name}{mark}, {format_bytes(self.memory_limit)}{end}>"


class CPUDevice(Device):
    """The CPU, or one logical CPU of several; logical CPUs share memory.

    Args:
        planned: the plan for this device.
        host: the machine's memory; the session closes it.

    Attributes:
        thread_pool: threads for work on this device; started on demand, Python chooses the maximum.
    """

    def __init__(self, planned: PlannedDevice, host: HostMemory) -> None:
        super().__init__(planned)
        self.host = host
        self.thread_pool = ThreadPoolExecutor(thread_name_prefix=f"bfcviz-cpu{self.parsed_name.index}")

    def choose(self, attributes: AllocatorAttributes) -> Allocator:  # noqa: ARG002  one heap serves all requests
        """The CPU's ordinary memory for all attributes."""
        return self.host.allocator

    def trace(self) -> Trace:
        """The events of the ordinary-memory heap so far."""
        return self.host.trace()

    def release(self) -> None:
        """Stop the threads of the CPU after their work is done."""
        self.thread_pool.shutdown()


class GPUCompatibleCPUDevice(CPUDevice):
    """A CPU of a machine with GPUs: memory for transfers comes from the transfer pool.

    Args:
        planned: the plan for this device.
        host: the machine's memory.
        force_gpu_compatible: take all memory from the transfer pool.
    """

    def __init__(
        self, planned: PlannedDevice, host: HostMemory, *, force_gpu_compatible: bool = False
    ) -> None:
        super().__init__(planned, host)
        self.force_gpu_compatible = force_gpu_compatible

    @property
    def pinned(self) -> bool:
        """Whether the transfer pool is pinned; without CUDA it is not."""
        return self.host.pinned

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """The CPU's transfer pool if a GPU must reach the memory; otherwise ordinary memory."""
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.transfer_pool.heap if compatible else self.host.allocator

    @property
    def description(self) -> str:
        """The device in words."""
        return f"{super().description}; transfer memory is {'' if self.pinned else 'not '}pinned"


class GPUDevice(Device):
    """A logical GPU.

    Args:
        planned: the plan for this device.
        host: the machine's memory, for host allocations.
        heaps: creates its heap.
        memory: memory of a simulated GPU, shared by its logical devices; None = a real GPU.
        force_gpu_compatible: take all host memory from the transfer pool.
    """

    def __init__(
        self,
        planned: PlannedDevice,
        host: HostMemory,
        heaps: SessionHeaps,
        memory: SimulatedMemory | None = None,
        *,
        force_gpu_compatible: bool = False,
    ) -> None:
        super().__init__(planned)
        self.host = host
        self.memory = memory
        self.force_gpu_compatible = force_gpu_compatible
        name = f"GPU_{planned.name.index}_bfc{' (simulated)' if self.simulated else ''}"
        details = {
            "device": self.full_name, "physical": self.physical.name, "description": self.physical.description,
            "simulated": self.simulated, "because": list(planned.because),
        }  # fmt: skip
        self._session_heap = heaps.create(
            name, self._source(), planned.memory_limit, planned.options, details
        )
        try:
            for number, stream in enumerate(NAMES, 1):
                self.streams[stream] = Stream(stream, number, self.physical.driver, self.physical.ordinal)
        except BaseException:
            self.close()
            raise

    @property
    def heap(self) -> BFCAllocator:
        """The heap in the memory of the GPU."""
        return self._session_heap.heap

    @property
    def compute_stream(self) -> Stream:
        """The stream for computation; the others copy."""
        return self.streams["compute"]

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """The GPU's heap; with `on_host` host memory, from the transfer pool if `gpu_compatible`."""
        if not attributes.on_host:
            return self.heap
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.transfer_pool.heap if compatible else self.host.allocator

    def trace(self) -> Trace:
        """The events of the GPU's heap so far; the first ones are marks of the session's set-up."""
        return self._session_heap.trace()

    def release(self) -> None:
        """Close the streams of the GPU, then release the memory."""
        try:
            for stream in self.streams.values():
                stream.close()
        finally:
            self._session_heap.close()

    def _source(self) -> SubAllocator:
        if self.memory is not None:
            return SimulatedGpuSubAllocator(self.memory, unified=self.planned.unified)
        kind: Memory = "managed" if self.planned.unified else "device"
        return cuda_sub_allocator(kind, self.physical.ordinal, driver=self.physical.driver)


# ------------------------------------------------------------------------------
# DeviceManager: creates the devices of a session and finds them by name.


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
        """The planned devices of a type."""
        return [each for each in self.planned if each.name.device_type == device_type]

    def memory_of(self, planned: PlannedDevice) -> SimulatedMemory | None:
        """The memory of a simulated GPU, shared by its logical devices; None for a real GPU."""
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
    """Creates a `DeviceManager`'s devices of one type; derive from it and register an instance."""

    device_type: ClassVar[str] = ""

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create the session's devices of this type, one after the other."""
        raise NotImplementedError


class ThreadPoolDeviceFactory(DeviceFactory):
    """Creates a `DeviceManager`'s CPUs."""

    device_type = "CPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one CPU per planned CPU."""
        for planned in context.of_type("CPU"):
            yield CPUDevice(planned, context.host)


class GPUCompatibleCPUDeviceFactory(DeviceFactory):
    """Creates CPUs with a pool for transfers to GPUs."""

    device_type = "CPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one CPU per planned CPU."""
        force = context.state.options.force_gpu_compatible
        for planned in context.of_type("CPU"):
            yield GPUCompatibleCPUDevice(planned, context.host, force_gpu_compatible=force)


class GPUDeviceFactory(DeviceFactory):
    """Creates a `DeviceManager`'s GPUs, real and simulated."""

    device_type = "GPU"

    def create(self, context: CreationContext) -> Iterator[Device]:
        """Create one GPU per planned GPU."""
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
