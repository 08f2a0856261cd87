"""Device: the base class of CPUs and GPUs; it owns memory, allocators and streams."""

from bfcviz._context_manager import Closing
from bfcviz.allocator.interface.attributes import DEFAULT, AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.physical import DeviceName, PhysicalDevice
from bfcviz.devices.settings.device_plan import PlannedDevice
from bfcviz.devices.streams import Stream
from bfcviz.errors import DevicesError
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes


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
        """Such as `/device:GPU:0`."""
        return self.planned.name.short

    @property
    def full_name(self) -> str:
        """Such as `/job:localhost/replica:0/task:0/device:GPU:0`."""
        return self.planned.name.full

    @property
    def device_type(self) -> str:
        """`GPU` or `CPU`."""
        return self.planned.name.device_type

    @property
    def physical(self) -> PhysicalDevice:
        """The physical device below it."""
        return self.planned.physical

    @property
    def simulated(self) -> bool:
        """Whether the hardware is simulated."""
        return self.physical.simulated

    @property
    def memory_limit(self) -> int:
        """The most bytes its heap may take."""
        return self.planned.memory_limit

    @property
    def host_accessible(self) -> bool:
        """Whether NumPy can compute in memory of `allocator()`."""
        return self.physical.memory == "host"

    @property
    def description(self) -> str:
        """The device in words."""
        return f"{self.physical.description}, {format_bytes(self.memory_limit)} for tensors"

    def allocator(self, attributes: AllocatorAttributes = DEFAULT) -> Allocator:
        """The allocator for memory with these attributes; each call returns the same one.

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
        """Wait for the work of all streams."""
        for stream in self.streams.values():
            stream.synchronize()

    def close(self) -> None:
        """Finish all work and release all memory, including memory in use."""
        if not self.closed:
            self.closed = True
            self.release()

    def release(self) -> None:
        """Release what the device owns; called once."""

    def __repr__(self) -> str:
        mark = ", simulated" if self.simulated else ""
        end = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name}{mark}, {format_bytes(self.memory_limit)}{end}>"
