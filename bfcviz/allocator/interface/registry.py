"""AllocatorRegistry: who can make an allocator of the host's memory; the one of highest priority does.

TensorFlow's rules: factories register before the first allocator is made, a name and priority only once; for
sub-allocators one that knows NUMA nodes goes before one that does not, whatever their priorities.
"""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import RLock
from typing import Final

from bfcviz import _forks
from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.host import HostSubAllocator
from bfcviz.errors import AllocatorError, InvalidRequest
from bfcviz.units import GiB

NO_AFFINITY: Final = -1
"""The number of no NUMA node: memory of whichever."""


@dataclass(frozen=True)
class AllocatorFactory:
    """Makes allocators, and what they take their regions from.

    Attributes:
        create_allocator: makes one; called once.
        create_sub_allocator: makes one for a NUMA node, or for `NO_AFFINITY`; called once for each.
        numa_enabled: whether those for different nodes differ.
    """

    create_allocator: Callable[[], Allocator]
    create_sub_allocator: Callable[[int], SubAllocator]
    numa_enabled: bool = False


@dataclass
class _Entry:
    name: str
    priority: int
    factory: AllocatorFactory
    allocator: Allocator | None = None
    sub_allocators: dict[int, SubAllocator] = field(default_factory=dict)


class AllocatorRegistry:
    """Factories by name and priority. Any thread may use it."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._used = False
        self._lock = _forks.keep(RLock())  # a factory may ask for what another makes

    def register(self, name: str, priority: int, factory: AllocatorFactory) -> None:
        """Add a factory.

        Raises:
            AllocatorError: there is one of this name and priority, or of this priority (TensorFlow would pick
                either), or an allocator was made already.
        """
        with self._lock:
            if self._used:
                raise AllocatorError(
                    f"{name!r} was to be registered, but allocators were made already: register before the first"
                )
            for entry in self._entries:
                if entry.priority == priority:
                    raise AllocatorError(
                        f"{name!r} was to be registered with priority {priority}, which {entry.name!r} has: give it "
                        "another one"
                    )
            self._entries.append(_Entry(name, priority, factory))
            self._entries.sort(key=lambda entry: -entry.priority)

    @property
    def names(self) -> list[str]:
        """Of all factories, the best first."""
        return [entry.name for entry in self._entries]

    def allocator(self) -> Allocator:
        """The allocator of the best factory, the same each time.

        Raises:
            AllocatorError: no factory is registered.
        """
        with self._lock:
            entry = self._best(self._entries)
            if entry.allocator is None:
                entry.allocator = entry.factory.create_allocator()
            return entry.allocator

    def sub_allocator(self, numa_node: int = NO_AFFINITY) -> SubAllocator:
        """A sub-allocator for a NUMA node, the same each time; where no factory knows nodes, one for all.

        Raises:
            AllocatorError: no factory is registered.
            InvalidRequest: a negative node that is not `NO_AFFINITY`.
        """
        if numa_node < NO_AFFINITY:
            raise InvalidRequest(f"NUMA node {numa_node} was asked for; give 0 or more, or -1 for none")
        with self._lock:
            entry = self._best(
                [entry for entry in self._entries if entry.factory.numa_enabled] or self._entries
            )
            node = numa_node if entry.factory.numa_enabled else NO_AFFINITY
            if node not in entry.sub_allocators:
                entry.sub_allocators[node] = entry.factory.create_sub_allocator(node)
            return entry.sub_allocators[node]

    def _best(self, entries: list[_Entry]) -> _Entry:
        if not entries:
            raise AllocatorError(
                "an allocator was asked for, and no factory is registered: register one first"
            )
        self._used = True
        return entries[0]


@cache
def default_registry() -> AllocatorRegistry:
    """This process's registry, with a factory of growing heaps of host memory at priority 100."""
    registry = AllocatorRegistry()
    factory = AllocatorFactory(_host_heap, lambda _: HostSubAllocator())
    registry.register("host_bfc", 100, factory)
    return registry


def _host_heap() -> BFCAllocator:
    options = AllocatorOptions(allow_growth=True, garbage_collection=True)
    heap = BFCAllocator(HostSubAllocator(), 64 * GiB, options, name="cpu_bfc")
    atexit.register(heap.close)  # lives as long as the process: its modules may be gone before it
    return heap
