"""GPUs: a BFC heap on the device, and streams."""

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.choice import Memory, cuda_sub_allocator
from bfcviz.devices.device import Device
from bfcviz.devices.host_memory import HostMemory
from bfcviz.devices.session_heaps import Logs
from bfcviz.devices.settings.plan import Planned
from bfcviz.devices.simulated_memory import SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.devices.streams import NAMES, Stream
from bfcviz.events.trace import Trace


class GPUDevice(Device):
    """A logical GPU.

    Args:
        planned: how it was planned.
        host: the machine's memory, for what must lie there.
        logs: makes its heap.
        memory: of a simulated GPU, shared with the other logical devices on it; None = a real one.
        force_gpu_compatible: memory of the host always comes from the pool for transfers.
    """

    def __init__(
        self,
        planned: Planned,
        host: HostMemory,
        logs: Logs,
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
        self._recorded = logs.heap(name, self._source(), planned.memory_limit, planned.options, details)
        try:
            for number, stream in enumerate(NAMES, 1):
                self.streams[stream] = Stream(stream, number, self.physical.driver, self.physical.ordinal)
        except BaseException:
            self.close()
            raise

    @property
    def heap(self) -> BFCAllocator:
        """The heap on the device."""
        return self._recorded.heap

    @property
    def compute_stream(self) -> Stream:
        """The stream that computes; the others copy."""
        return self.streams["compute"]

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """The device's heap; with `on_host` the host's memory, from the pool for transfers if `gpu_compatible`."""
        if not attributes.on_host:
            return self.heap
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.for_gpus.heap if compatible else self.host.allocator

    def trace(self) -> Trace:
        """What happened in its heap so far; first the marks of how the session came to it."""
        return self._recorded.trace()

    def release(self) -> None:
        """End the streams, then give the memory back."""
        try:
            for stream in self.streams.values():
                stream.close()
        finally:
            self._recorded.close()

    def _source(self) -> SubAllocator:
        if self.memory is not None:
            return SimulatedGpuSubAllocator(self.memory, unified=self.planned.unified)
        kind: Memory = "managed" if self.planned.unified else "device"
        return cuda_sub_allocator(kind, self.physical.ordinal, driver=self.physical.driver)
