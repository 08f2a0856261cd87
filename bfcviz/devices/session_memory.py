"""What the devices of a session share: its heaps, which record to memory or a folder, and allocators of host memory."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple

from bfcviz import _forks
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.cuda import PinnedSubAllocator
from bfcviz.allocator.interface import Allocator, AllocatorOptions
from bfcviz.allocator.sub_allocators import HostSubAllocator, SubAllocator
from bfcviz.devices.device_plan import State, pool_limit
from bfcviz.devices.physical_devices import PhysicalDevice
from bfcviz.errors import AllocatorError, DevicesError, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

# ------------------------------------------------------------------------------
# The registry of allocators of host memory: factories by name and priority, by TensorFlow's rules.

NO_AFFINITY: Final = -1  # no particular NUMA node


@dataclass(frozen=True)
class AllocatorFactory:
    """Creates the allocators and sub-allocators of host memory."""

    create_allocator: Callable[[], Allocator]  # creates the allocator; called once
    # creates the sub-allocator of a NUMA node, or of `NO_AFFINITY`; called once for each
    create_sub_allocator: Callable[[int], SubAllocator]
    numa_enabled: bool = False  # whether sub-allocators of different nodes differ


@dataclass
class _HostAllocatorEntry:
    """A factory of the registry of host memory, with the allocators it has created."""

    name: str
    priority: int
    factory: AllocatorFactory
    allocator: Allocator | None = None
    sub_allocators: dict[int, SubAllocator] = field(default_factory=dict)


class AllocatorRegistry:
    """Factories of allocators for host memory, by name and priority; that of highest priority is used. Thread-safe.

    TensorFlow's rules: factories register before the first allocator is created, each name and priority only once. For
    sub-allocators, a factory that supports NUMA nodes precedes one that does not, regardless of priority.
    """

    def __init__(self) -> None:
        self._entries: list[_HostAllocatorEntry] = []
        self._used = False
        self._lock = _forks.keep(RLock())  # a factory may call the registry

    def register(self, name: str, priority: int, factory: AllocatorFactory) -> None:
        """Add a factory of allocators to the registry.

        Raises:
            AllocatorError: another factory has this priority (TensorFlow would pick either), or an allocator was
                created already.
        """
        with self._lock:
            if self._used:
                raise AllocatorError(
                    f"{name!r} cannot be registered: allocators were created already. Register it before the first"
                )
            for entry in self._entries:
                if entry.priority == priority:
                    raise AllocatorError(
                        f"{name!r} cannot be registered with priority {priority}: {entry.name!r} has it. Give another "
                        "priority"
                    )
            self._entries.append(_HostAllocatorEntry(name, priority, factory))
            self._entries.sort(key=lambda entry: -entry.priority)

    @property
    def names(self) -> list[str]:
        """Names of all factories in the registry of allocators, highest priority first."""
        return [entry.name for entry in self._entries]

    def allocator(self) -> Allocator:
        """The allocator of the factory of highest priority in the registry, the same each time.

        Raises:
            AllocatorError: no factory is registered.
        """
        with self._lock:
            entry = self._best(self._entries)
            if entry.allocator is None:
                entry.allocator = entry.factory.create_allocator()
            return entry.allocator

    def sub_allocator(self, numa_node: int = NO_AFFINITY) -> SubAllocator:
        """The registry's sub-allocator of a NUMA node, the same each time; one for all if no factory supports nodes.

        Raises:
            AllocatorError: no factory is registered.
            InvalidRequest: the node is negative and not `NO_AFFINITY`.
        """
        if numa_node < NO_AFFINITY:
            raise InvalidRequest(f"the NUMA node is {numa_node}; give 0 or more, or -1 for none")
        with self._lock:
            entry = self._best(
                [entry for entry in self._entries if entry.factory.numa_enabled] or self._entries
            )
            node = numa_node if entry.factory.numa_enabled else NO_AFFINITY
            if node not in entry.sub_allocators:
                entry.sub_allocators[node] = entry.factory.create_sub_allocator(node)
            return entry.sub_allocators[node]

    def _best(self, entries: list[_HostAllocatorEntry]) -> _HostAllocatorEntry:
        if not entries:
            raise AllocatorError(
                "there is no allocator, because no factory is registered: register one first"
            )
        self._used = True
        return entries[0]


# ------------------------------------------------------------------------------
# What the devices of a session share: its heaps, which record to rings in memory or to a folder, and host memory.


class SessionHeap(NamedTuple):
    """A heap of a session, and its recording if there is one."""

    heap: BFCAllocator
    recording: Recording | None
    details: Mapping[str, object]

    def trace(self) -> Trace:
        """The events of a session's heap so far.

        Raises:
            DevicesError: the ring was too small for all events.
        """
        if self.recording is not None:
            return self.recording.trace()
        log, head = self.heap.log, self.heap.log.head
        self._expect_all_events(head)
        events = log.copy(0, head)
        self._expect_all_events(head)  # the heap may have overwritten the oldest ones during the copy
        pool = Pool(self.heap.name, self.heap.limit, vars(self.heap.options))
        return Trace.from_events(
            events, self.heap.labels, Origin(pools=(pool,), details=self.details, source=self.heap.name)
        )

    def _expect_all_events(self, head: int) -> None:
        log = self.heap.log
        if log.oldest > 0:
            raise DevicesError(
                f"{head:,} events happened in {self.heap.name}; its ring keeps {log.capacity:,}: pass a folder as "
                "record=, or a larger capacity= to the session"
            )

    def close(self) -> None:
        """Close the heap of a session, then its recording."""
        try:
            self.heap.close()
        finally:
            if self.recording is not None:
                self.recording.close()


class SessionHeaps:
    """Creates the heaps of a session.

    Args:
        record: a folder for one recording per heap; None = rings in memory.
        capacity: events in each ring.
    """

    def __init__(self, record: str | os.PathLike[str] | None = None, capacity: int = 1 << 16) -> None:
        self.folder = None if record is None else Path(record)
        self.capacity = capacity
        self._recordings: list[Recording] = []

    def discard(self) -> None:
        """Delete the recordings because the session failed to start; close the heaps first."""
        while self._recordings:
            self._recordings.pop().discard()

    def create(
        self,
        name: str,
        source: SubAllocator,
        limit: int,
        options: AllocatorOptions,
        details: Mapping[str, object],
    ) -> SessionHeap:
        """Create a heap of a session that records its events."""
        if self.folder is None:
            log, labels = EventLog(self.capacity), Labels()
            return SessionHeap(
                BFCAllocator(source, limit, options, name=name, log=log, labels=labels), None, details
            )
        folder = self.folder / re.sub(r"\W+", "_", name).strip("_")
        recording = Recording(folder, [Pool(name, limit, vars(options))], details=details)
        self._recordings.append(recording)
        try:
            heap = BFCAllocator(source, limit, options, name=name, log=recording.log, labels=recording.labels)
        except BaseException:
            recording.close()
            raise
        return SessionHeap(heap, recording, details)


# ------------------------------------------------------------------------------
# Host memory, ordinary and pinned, shared by all devices of a session.


class HostMemory:
    """Two heaps for all devices of a session, each created at its first use: of ordinary and of pinned memory.

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
        """Whether the session's transfer pool is pinned."""
        return self._gpu is not None

    @property
    def allocator(self) -> Allocator:
        """The session's allocator of ordinary memory."""
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
        """The session's heap of ordinary memory."""
        with self._lock:
            return self._ordinary

    @property
    def transfer_pool(self) -> SessionHeap:
        """The session's heap for transfers: pinned with a real GPU; without one its name says "not pinned"."""
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
