"""Device: a place where tensors lie and work is done, with the allocators of its memory."""

from bfcviz._closing import Closing
from bfcviz.allocator.interface.attributes import DEFAULT, AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.device_names import DeviceName
from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.settings.plan import Planned
from bfcviz.devices.streams import Stream
from bfcviz.errors import DevicesError
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes


class Device(Closing):
    """What all devices have; made by a factory.

    Attributes:
        planned: how it was planned: limit, options and reasons.
        streams: queues of work, by name; none on a CPU.
        closed: its memory is given back.
    """

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.streams: dict[str, Stream] = {}
        self.closed = False

    @property
    def parsed_name(self) -> DeviceName:
        """Kind and number."""
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
        """What it lies on."""
        return self.planned.physical

    @property
    def simulated(self) -> bool:
        """There is no such hardware."""
        return self.physical.simulated

    @property
    def memory_limit(self) -> int:
        """Bytes its memory may grow to."""
        return self.planned.memory_limit

    @property
    def host_accessible(self) -> bool:
        """Whether NumPy can compute in what `allocator()` hands out."""
        return self.physical.memory == "host"

    @property
    def description(self) -> str:
        """What it is, in words."""
        return f"{self.physical.description}, {format_bytes(self.memory_limit)} for tensors"

    def allocator(self, attributes: AllocatorAttributes = DEFAULT) -> Allocator:
        """The allocator of the memory that has these attributes; the same one each time.

        Raises:
            DevicesError: the device is closed.
        """
        if self.closed:
            raise DevicesError(f"memory of {self.name} was asked for, which is closed: begin another session")
        return self.choose(attributes)

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """Which allocator that is; each kind of device has its rule."""
        raise NotImplementedError

    def trace(self) -> Trace:
        """What happened in the heap of the device's own memory so far."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for all work of all streams."""
        for stream in self.streams.values():
            stream.synchronize()

    def close(self) -> None:
        """Finish all work, and give all memory back, whatever is still in use."""
        if not self.closed:
            self.closed = True
            self.release()

    def release(self) -> None:
        """Give back what the device has; called once."""

    def __repr__(self) -> str:
        mark = ", simulated" if self.simulated else ""
        end = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name}{mark}, {format_bytes(self.memory_limit)}{end}>"
