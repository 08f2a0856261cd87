"""Memory of the machine that all devices of a session share: ordinary, and pinned for transfers to a GPU."""

from functools import cached_property
from threading import RLock

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.interface.registry import AllocatorRegistry
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.devices.physical import PhysicalDevice
from bfcviz.devices.pinned_memory import PinnedSubAllocator
from bfcviz.devices.session_heaps import Logs, Recorded
from bfcviz.devices.settings.plan import pool_limit
from bfcviz.devices.settings.state import State
from bfcviz.errors import DevicesError
from bfcviz.events.trace import Trace


class HostMemory:
    """Two heaps, each made when it is first asked for.

    Args:
        logs: makes them.
        limit: bytes of the ordinary one.
        state: settings, for limit and growth of the pinned one.
        gpu: a real GPU, by whose driver memory is pinned; None = there is none, and nothing is pinned.
        registry: makes the ordinary memory's allocator, and keeps it; None = a heap is made here.
    """

    def __init__(
        self,
        logs: Logs,
        limit: int,
        state: State,
        gpu: PhysicalDevice | None = None,
        registry: AllocatorRegistry | None = None,
    ) -> None:
        self._logs = logs
        self._limit = limit
        self._state = state
        self._gpu = gpu
        self._registry = registry
        self._made: list[Recorded] = []
        self._lock = RLock()  # cached_property has none: two threads would make two heaps

    @property
    def pinned(self) -> bool:
        """Whether the memory for transfers is pinned."""
        return self._gpu is not None

    @property
    def allocator(self) -> Allocator:
        """The allocator of ordinary memory."""
        return self.ordinary.heap if self._registry is None else self._registry.allocator()

    def trace(self) -> Trace:
        """What happened in the heap of ordinary memory so far.

        Raises:
            DevicesError: a registry made the allocator, which may be no heap, and is not this session's alone.
        """
        if self._registry is not None:
            raise DevicesError(
                "the CPU's memory comes from an AllocatorRegistry: look at the log of what it made, or begin the "
                "session without a registry"
            )
        return self.ordinary.trace()

    @property
    def ordinary(self) -> Recorded:
        """Memory as the operating system gives it."""
        with self._lock:
            return self._ordinary

    @property
    def for_gpus(self) -> Recorded:
        """Memory for transfers: pinned where there is a GPU to pin it for, and called "not pinned" elsewhere."""
        with self._lock:
            return self._for_gpus

    @cached_property
    def _ordinary(self) -> Recorded:
        return self._make("cpu_bfc", HostSubAllocator(), self._limit, AllocatorOptions(allow_growth=True))

    @cached_property
    def _for_gpus(self) -> Recorded:
        limit = pool_limit(self._state)
        options = AllocatorOptions(allow_growth=not self._state.options.gpu_host_mem_disallow_growth)
        if self._gpu is None:
            return self._make("gpu_host_bfc (not pinned)", HostSubAllocator(), limit, options)
        source = PinnedSubAllocator(self._gpu.ordinal, driver=self._gpu.driver)
        return self._make("gpu_host_bfc", source, limit, options)

    def close(self) -> None:
        """Give all of it back."""
        while self._made:
            self._made.pop().close()

    def _make(self, name: str, source: SubAllocator, limit: int, options: AllocatorOptions) -> Recorded:
        made = self._logs.heap(name, source, limit, options, {"pinned": name == "gpu_host_bfc"})
        self._made.append(made)
        return made
