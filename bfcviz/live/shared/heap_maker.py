"""Maker: makes the heaps that serve a framework, one for each stream of each device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.live.shared.lent_heap import LentHeap
from bfcviz.units import format_bytes

H = TypeVar("H", bound=LentHeap)


@dataclass
class Maker(Generic[H]):
    """Makes the heap of a stream; those of a device have one budget together, and the first of all has the log.

    Attributes:
        kind: of the heaps.
        framework: what their names begin with.
        source: makes what their regions come from: of a device and a stream, from a budget.
        limit: tells the bytes of a device's budget, asked once.
        log: of the first heap; None once it is made.
        labels: of all of them.
        options: how they behave.
    """

    kind: type[H]
    framework: str
    source: Callable[[int, int, Budget], SubAllocator]
    limit: Callable[[int], int]
    log: EventLog | None
    labels: Labels
    options: AllocatorOptions
    _budgets: dict[int, Budget] = field(default_factory=dict)
    _made: dict[int, int] = field(default_factory=dict)

    def __call__(self, device: int, stream: int) -> H:
        """The heap of a stream that has none."""
        if device not in self._budgets:
            self._budgets[device] = Budget(self.limit(device))
        budget = self._budgets[device]
        source = self.source(device, stream, budget)  # may fail: the log is then the next heap's
        number = self._made[device] = self._made.get(device, -1) + 1
        log, self.log = self.log, None
        return self.kind(
            source,
            budget.limit,
            self.options,
            name=f"{self.framework}:{device}" + (f" stream {number}" if number else ""),
            log=log,
            labels=self.labels,
        )


def check_limit(limit: int | None, total: int, device: int, memory: Memory) -> None:
    """Raises where heaps of at most `limit` bytes cannot be had of a device that has `total`.

    Raises:
        InvalidRequest: a limit that cannot be.
        LiveError: it is above the device, and the memory cannot exceed it.
    """
    if limit is None:
        return
    if not 1 <= limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {limit} bytes was given; give one from 1 to 2^62")
    if limit > total and memory != "managed":
        raise LiveError(
            f"heaps of at most {format_bytes(limit)} were asked for, and device {device} has "
            f"{format_bytes(total)}: give a lower limit or none, or memory='managed', which may exceed the device"
        )
