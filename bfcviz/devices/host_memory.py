"""Host memory, ordinary and pinned, shared by all devices of a session; a GPU copies pinned memory at full speed."""

import ctypes
from functools import cached_property
from threading import RLock
from typing import Final

from bfcviz.allocator.interface import Allocator, AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import CudaSubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.registry import AllocatorRegistry
from bfcviz.devices.session import SessionHeap, SessionHeaps
from bfcviz.devices.settings import State, pool_limit
from bfcviz.errors import DevicesError
from bfcviz.events.trace import Trace

_PORTABLE: Final = 1  # pinned for every context, not only this device's


class PinnedSubAllocator(CudaSubAllocator):
    """Grants pinned host memory, through the driver of one GPU."""

    def take(self, num_bytes: int) -> int:
        """Allocate with cuMemHostAlloc."""
        return self.ask_driver("cuMemHostAlloc", ctypes.c_size_t(num_bytes), _PORTABLE)

    def give_up(self, where: int, num_bytes: int) -> None:  # noqa: ARG002  the driver knows the size
        """Free with cuMemFreeHost, which waits for all work on the device."""
        self.driver.call("cuMemFreeHost", ctypes.c_void_p(where))


class HostMemory:
    """Two heaps, each created at its first use.

    Args:
        heaps: creates them.
        limit: limit of the ordinary heap in bytes.
        state: settings; they give limit and growth of the pinned heap.
        gpu: a real GPU whose driver pins the memory; None = no GPU, nothing is pinned.
        registry: creates and owns the allocator of ordinary memory; None = a heap is created here.
    """

    def __init__(
        self,
        heaps: SessionHeaps,
        limit: int,
        state: State,
        gpu: PhysicalDevice | None = None,
        registry: AllocatorRegistry | None = None,
    ) -> None:
        self._heaps = heaps
        self._limit = limit
        self._state = state
        self._gpu = gpu
        self._registry = registry
        self._made: list[SessionHeap] = []
        self._lock = RLock()  # cached_property has no lock: two threads would create two heaps

    @property
    def pinned(self) -> bool:
        """Whether the transfer pool is pinned."""
        return self._gpu is not None

    @property
    def allocator(self) -> Allocator:
        """The allocator of ordinary memory."""
        return self.ordinary.heap if self._registry is None else self._registry.allocator()

    def trace(self) -> Trace:
        """The events of the ordinary-memory heap so far.

        Raises:
            DevicesError: a registry created the allocator; it may not be a heap, and other sessions may share it.
        """
        if self._registry is not None:
            raise DevicesError(
                "the CPU's memory comes from an AllocatorRegistry: read the log of the allocator it created, or start "
                "the session without a registry"
            )
        return self.ordinary.trace()

    @property
    def ordinary(self) -> SessionHeap:
        """The heap of ordinary memory."""
        with self._lock:
            return self._ordinary

    @property
    def transfer_pool(self) -> SessionHeap:
        """The heap for transfers: pinned with a real GPU; without one its name says "not pinned"."""
        with self._lock:
            return self._transfer_pool

    @cached_property
    def _ordinary(self) -> SessionHeap:
        return self._make("cpu_bfc", HostSubAllocator(), self._limit, AllocatorOptions(allow_growth=True))

    @cached_property
    def _transfer_pool(self) -> SessionHeap:
        limit = pool_limit(self._state)
        options = AllocatorOptions(allow_growth=not self._state.options.gpu_host_mem_disallow_growth)
        if self._gpu is None:
            return self._make("gpu_host_bfc (not pinned)", HostSubAllocator(), limit, options)
        source = PinnedSubAllocator(self._gpu.ordinal, driver=self._gpu.driver)
        return self._make("gpu_host_bfc", source, limit, options)

    def close(self) -> None:
        """Close both heaps."""
        while self._made:
            self._made.pop().close()

    def _make(self, name: str, source: SubAllocator, limit: int, options: AllocatorOptions) -> SessionHeap:
        made = self._heaps.create(name, source, limit, options, {"pinned": name == "gpu_host_bfc"})
        self._made.append(made)
        return made
