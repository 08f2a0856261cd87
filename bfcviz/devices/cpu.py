"""CPUs: host memory, and threads that do work."""

from concurrent.futures import ThreadPoolExecutor

from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.device import Device
from bfcviz.devices.host_memory import HostMemory
from bfcviz.devices.settings.plan import Planned
from bfcviz.events.trace import Trace


class CPUDevice(Device):
    """The CPU, or one of the logical ones it was divided into; they share memory.

    Args:
        planned: how it was planned.
        host: the machine's memory, which the session closes.

    Attributes:
        thread_pool: threads for work on this device, begun as they are needed, as many as Python thinks fit.
    """

    def __init__(self, planned: Planned, host: HostMemory) -> None:
        super().__init__(planned)
        self.host = host
        self.thread_pool = ThreadPoolExecutor(thread_name_prefix=f"bfcviz-cpu{self.parsed_name.index}")

    def choose(self, attributes: AllocatorAttributes) -> Allocator:  # noqa: ARG002  one heap serves all
        """Ordinary memory, whatever the attributes."""
        return self.host.allocator

    def trace(self) -> Trace:
        """What happened in the heap of ordinary memory so far."""
        return self.host.trace()

    def release(self) -> None:
        """End the threads, once their work is done."""
        self.thread_pool.shutdown()


class GPUCompatibleCPUDevice(CPUDevice):
    """A CPU beside GPUs: what goes to and from them comes from the pool for transfers.

    Args:
        planned: how it was planned.
        host: the machine's memory.
        force_gpu_compatible: all of it comes from that pool.
    """

    def __init__(self, planned: Planned, host: HostMemory, *, force_gpu_compatible: bool = False) -> None:
        super().__init__(planned, host)
        self.force_gpu_compatible = force_gpu_compatible

    @property
    def pinned(self) -> bool:
        """Whether the pool for transfers is really pinned; without CUDA it is not."""
        return self.host.pinned

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """The pool for transfers where a GPU must reach the memory; else ordinary memory."""
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.for_gpus.heap if compatible else self.host.allocator

    @property
    def description(self) -> str:
        """What it is, in words."""
        return f"{super().description}; memory for transfers is {'' if self.pinned else 'not '}pinned"
