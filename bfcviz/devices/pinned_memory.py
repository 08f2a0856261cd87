"""Pinned memory of the host, from CUDA's driver: a GPU copies from and to it at full speed, and without waiting."""

import ctypes
from typing import Final

from bfcviz.allocator.sub_allocators.cuda.choice import CudaSubAllocator

_PORTABLE: Final = 1  # pinned for every context, not only this device's


class PinnedSubAllocator(CudaSubAllocator):
    """Pinned memory of the machine, reached by way of one of its GPUs."""

    def take(self, num_bytes: int) -> int:
        """See cuMemHostAlloc."""
        return self.ask_driver("cuMemHostAlloc", ctypes.c_size_t(num_bytes), _PORTABLE)

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFreeHost: it waits for all work on the device."""
        self.driver.call("cuMemFreeHost", ctypes.c_void_p(where))
