"""GPU devices: a BFC heap in device memory, and streams."""

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.attributes import AllocatorAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Memory, cuda_sub_allocator
from bfcviz.devices.device import Device
from bfcviz.devices.host_memory import HostMemory
from bfcviz.devices.session_heaps import SessionHeaps
from bfcviz.devices.settings.device_plan import PlannedDevice
from bfcviz.devices.simulated_memory import SimulatedGpuSubAllocator, SimulatedMemory
from bfcviz.devices.streams import NAMES, Stream
from bfcviz.events.trace import Trace


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
        """The heap in device memory."""
        return self._session_heap.heap

    @property
    def compute_stream(self) -> Stream:
        """The stream for computation; the others copy."""
        return self.streams["compute"]

    def choose(self, attributes: AllocatorAttributes) -> Allocator:
        """The device's heap; with `on_host` host memory, from the transfer pool if `gpu_compatible`."""
        if not attributes.on_host:
            return self.heap
        compatible = attributes.gpu_compatible or self.force_gpu_compatible
        return self.host.transfer_pool.heap if compatible else self.host.allocator

    def trace(self) -> Trace:
        """The events of its heap so far; the first ones are marks of the session's set-up."""
        return self._session_heap.trace()

    def release(self) -> None:
        """Close the streams, then release the memory."""
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
