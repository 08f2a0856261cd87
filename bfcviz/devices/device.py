"""Devices: CPUs and GPUs own memory, allocators and streams (CUDA's, or the threads of a simulated GPU)."""

import ctypes
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from bfcviz._context_manager import Closing
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.cuda import Memory, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.allocator.interface import DEFAULT, Allocator, AllocatorAttributes
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.devices.device_plan import PlannedDevice
from bfcviz.devices.physical_devices import (
    DeviceName,
    PhysicalDevice,
    SimulatedGpuSubAllocator,
    SimulatedMemory,
)
from bfcviz.devices.session_memory import HostMemory, SessionHeaps
from bfcviz.errors import DevicesError
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# The work queues of a GPU: CUDA streams on a real GPU, threads on a simulated one.

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


# ------------------------------------------------------------------------------
# Devices: CPUs and GPUs own memory, allocators and streams.


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
    """A device: the CPU, or one logical CPU of several; logical CPUs share memory.

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
    """A device: the CPU of a machine with GPUs; memory for transfers comes from the transfer pool.

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
    """A device: a logical GPU.

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
