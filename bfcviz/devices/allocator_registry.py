"""The registry of allocators of host memory: factories by name and priority, by TensorFlow's rules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Final

from bfcviz import _forks
from bfcviz.allocator.interface import Allocator
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import AllocatorError, InvalidRequest

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
