"""CPU devices: host memory and a thread pool."""

from concurrent.futures import ThreadPoolExecutor

from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.device import Device
from bfcviz.devices.host_memory import HostMemory
from bfcviz.devices.settings.device_plan import PlannedDevice
from bfcviz.events.trace import Trace


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
        """Ordinary memory for all attributes."""
        return self.host.allocator

    def trace(self) -> Trace:
        """The events of the ordinary-memory heap so far."""
        return self.host.trace()

    def release(self) -> None:
        """Stop the threads after their work is done."""
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
        """The transfer pool if a GPU must reach the memory; otherwise ordinary memory."""
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.transfer_pool.heap if compatible else self.host.allocator

    @property
    def description(self) -> str:
        """The device in words."""
        return f"{super().description}; transfer memory is {'' if self.pinned else 'not '}pinned"
