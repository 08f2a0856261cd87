"""Sub-allocators that get a region by one call of CUDA's driver: device, managed or async memory."""

import ctypes
from typing import Final

from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.driver import address
from bfcviz.allocator.sub_allocators.cuda.driver_types import CAPTURE_UNSUPPORTED
from bfcviz.errors import DeviceError
from bfcviz.units import format_bytes

_ATTACH_GLOBAL: Final = 1
_PER_THREAD: Final = 2  # cudaStreamPerThread: another stream in each thread


class DeviceSubAllocator(CudaSubAllocator):
    """Memory of the device."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAlloc."""
        return self.ask_driver("cuMemAlloc_v2", ctypes.c_size_t(num_bytes))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFree: it waits for all work on the device."""
        self.driver.call("cuMemFree_v2", address(where))


class ManagedSubAllocator(DeviceSubAllocator):
    """Memory that device and host share; it may exceed the memory of the device."""

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocManaged."""
        return self.ask_driver("cuMemAllocManaged", ctypes.c_size_t(num_bytes), _ATTACH_GLOBAL)


class AsyncSubAllocator(CudaSubAllocator):
    """Memory of the driver's pool, in the order of one stream: only work on it, or after it, may use the memory.

    It grants nothing while the stream is captured: the memory would belong to the graph.
    """

    breaks_captures = True

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocAsync.

        Raises:
            DeviceError: the stream is being captured.
        """
        if self.driver.is_capturing(self.stream):
            raise DeviceError(
                f"{format_bytes(num_bytes)} of memory='async' were requested while stream {self.stream:#x} captures a "
                "graph: CUDA would allocate memory that belongs to the graph and exists only while it runs. Allocate "
                "it before the capture (run the code once), or use memory='device' or 'virtual'",
                CAPTURE_UNSUPPORTED,
            )
        return self.ask_driver("cuMemAllocAsync", ctypes.c_size_t(num_bytes), ctypes.c_void_p(self.stream))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFreeAsync. For a per-thread default stream it waits for the device: other threads lack its order."""
        if self.stream == _PER_THREAD:
            self.driver.call("cuCtxSynchronize")
        self.driver.call("cuMemFreeAsync", address(where), ctypes.c_void_p(self.stream))
