"""Create a sub-allocator of GPU memory by the kind of memory.

============  =======================  ===========================================================================
memory        allocated by             properties
============  =======================  ===========================================================================
`device`      cuMemAlloc               returning a region waits for the whole device
`managed`     cuMemAllocManaged        may exceed the device: pages move between it and the host
`async`       cuMemAllocAsync          in the order of one stream, nothing waits; the driver keeps a pool of its own
`virtual`     cuMemCreate, cuMemMap    regions grow in place, so that free memory at their ends is joined
============  =======================  ===========================================================================
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final, Literal

from bfcviz.allocator.sub_allocators.cuda.base import Budget as Budget
from bfcviz.allocator.sub_allocators.cuda.base import CudaSubAllocator as CudaSubAllocator
from bfcviz.allocator.sub_allocators.cuda.driver import CAPTURE_UNSUPPORTED, AccessDescriptor, Driver, address
from bfcviz.allocator.sub_allocators.cuda.virtual_memory import Sharing as Sharing
from bfcviz.allocator.sub_allocators.cuda.virtual_memory import VirtualSubAllocator
from bfcviz.errors import DeviceError, InvalidRequest
from bfcviz.units import format_bytes

_ATTACH_GLOBAL: Final = 1


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

    It grants nothing while the stream is captured: the memory would belong to the graph. Other devices that can access
    the device's memory may use the pool, as they may use plain memory once CuPy or PyTorch has enabled their access.
    """

    breaks_captures = True

    def __init__(self, device: int = 0, **options: Any) -> None:
        super().__init__(device, **options)
        self._peers = self.driver.peers(device)

    def take(self, num_bytes: int) -> int:
        """See cuMemAllocAsync.

        Raises:
            DeviceError: the stream is being captured.
        """
        stream = self.stream
        if self.driver.is_capturing(stream):
            raise DeviceError(
                f"{format_bytes(num_bytes)} of memory='async' were requested while stream {stream:#x} captures a "
                "graph: CUDA would allocate memory that belongs to the graph and exists only while it runs. Allocate "
                "it before the capture (run the code once), or use memory='device' or 'virtual'",
                CAPTURE_UNSUPPORTED,
            )
        self._share_pool()
        return self.ask_driver("cuMemAllocAsync", ctypes.c_size_t(num_bytes), ctypes.c_void_p(stream))

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """See cuMemFreeAsync."""
        self.driver.call("cuMemFreeAsync", address(where), ctypes.c_void_p(self.last_user))

    def _share_pool(self) -> None:
        """Let the other devices access the driver's pool: by default only its own device may."""
        if self._peers and self.driver.has("cuMemPoolSetAccess"):
            pool = ctypes.c_void_p()
            self.driver.call("cuDeviceGetMemPool", ctypes.byref(pool), ctypes.c_int(self.device))
            access = (AccessDescriptor * len(self._peers))(*map(AccessDescriptor.to_all, self._peers))
            self.driver.call("cuMemPoolSetAccess", pool, ctypes.byref(access), ctypes.c_size_t(len(access)))
        self._peers = []


Memory = Literal["device", "managed", "async", "virtual"]
KINDS: Final = ("device", "managed", "async", "virtual")


def cuda_sub_allocator(
    memory: Memory,
    device: int = 0,
    stream: int | Callable[[], int] = 0,
    *,
    budget: Budget | None = None,
    driver: Driver | None = None,
    sharing: Sharing | None = None,
) -> CudaSubAllocator:
    """A sub-allocator of a GPU, by the kind of memory.

    Args:
        memory: see the table above.
        device: number of the device.
        stream: handle of the stream that uses the memory, or a function that returns it: `async` memory is allocated
            in its order, and no region is returned while it captures a graph.
        budget: limit shared with other sub-allocators.
        driver: by default the machine's.
        sharing: for `virtual` memory: other devices, processes and network cards that may use it. By default, as for
            `async` memory, all devices that can.

    Raises:
        InvalidRequest: the kind of memory is unknown, or cannot be shared this way.
        DeviceError: there is no driver or no such device.
    """
    if memory not in KINDS:
        raise InvalidRequest(f"memory {memory!r} is unknown; give one of {', '.join(map(repr, KINDS))}")
    if memory == "virtual":
        return VirtualSubAllocator(device, sharing=sharing, stream=stream, budget=budget, driver=driver)
    if sharing is not None:
        raise InvalidRequest(
            f"memory {memory!r} cannot be shared; `sharing` is an option of memory='virtual'"
        )
    kinds: dict[str, type[CudaSubAllocator]] = {
        "device": DeviceSubAllocator, "managed": ManagedSubAllocator, "async": AsyncSubAllocator,
    }  # fmt: skip
    return kinds[memory](device, stream=stream, budget=budget, driver=driver)
