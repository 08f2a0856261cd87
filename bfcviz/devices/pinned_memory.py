"""PinnedSubAllocator: pinned host memory from CUDA's driver; a GPU copies it at full speed and asynchronously."""

import ctypes
from typing import Final

from bfcviz.allocator.sub_allocators.cuda.choice import CudaSubAllocator

_PORTABLE: Final = 1  # pinned for every context, not only this device's


class PinnedSubAllocator(CudaSubAllocator):
    """Grants pinned host memory, through the driver of one GPU."""

    def take(self, num_bytes: int) -> int:
        """Allocate with cuMemHostAlloc."""
        return self.ask_driver("cuMemHostAlloc", ctypes.c_size_t(num_bytes), _PORTABLE)

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """Free with cuMemFreeHost, which waits for all work on the device."""
        self.driver.call("cuMemFreeHost", ctypes.c_void_p(where))
