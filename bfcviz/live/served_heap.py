"""The heaps that a framework is served from, one for each stream of each device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from bfcviz import _compiled
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.cuda import Budget, CudaSubAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import AllocatorError, LiveError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.units import format_bytes

OPTIONS: Final = AllocatorOptions(allow_growth=True, garbage_collection=True, exact_growth=True)
"""For a machine shared with other programs: a heap starts small, releases wholly free regions before it fails, and at
last requests no more than it needs, because the heaps of a device share its limit."""


class ServedHeap(BFCAllocator):
    """A heap that serves a framework, which uses its chunks; it cannot be closed while the framework does."""

    is_serving = False  # whether the framework may request more
    users: ClassVar[str]  # what uses the chunks, for errors
    advice: ClassVar[str]  # how to free them, for errors

    def give_back(self) -> None:
        """Release the served heap's wholly free regions, and those that a capture delayed."""
        self.trim()
        if isinstance(self.sub_allocator, CudaSubAllocator):
            self.sub_allocator.free_waiting()

    @property
    def holds_memory(self) -> bool:
        """Whether the device still has memory of the served heap: of its pool, or what waits for a capture to end."""
        waiting = isinstance(self.sub_allocator, CudaSubAllocator) and self.sub_allocator.used
        return bool(self.stats().pool_bytes or waiting)

    def close(self) -> None:
        """Release the served heap's memory; raises AllocatorError while the framework uses any, or may request more."""
        held = self.stats()
        if self.is_serving or held.chunks_in_use:
            raise AllocatorError(
                f"{held.chunks_in_use} chunks ({format_bytes(held.bytes_in_use)}) are in use by {self.users}: "
                f"{self.advice}"
            )
        super().close()


H = TypeVar("H", bound=ServedHeap)


@dataclass
class HeapFactory(Generic[H]):
    """Makes the served heap of each stream. The heaps of a device share one budget."""

    kind: type[H]
    framework: str  # the start of their names
    # makes the sub-allocator of a device and a stream, within a budget
    source: Callable[[int, int, Budget], SubAllocator]
    limit: Callable[[int], int]  # returns the budget of a device in bytes; called once per device
    logs: Iterator[EventLog | None]  # the log of each heap in turn (`heap_provider.logs_of_heaps`)
    labels: Labels  # the label table of all heaps
    options: AllocatorOptions  # the options of all heaps
    _budgets: dict[int, Budget] = field(default_factory=dict)
    _made: dict[int, int] = field(default_factory=dict)

    def __call__(self, device: int, stream: int) -> H:
        """Make the served heap of a stream that has none."""
        if device not in self._budgets:
            self._budgets[device] = Budget(self.limit(device))
        budget = self._budgets[device]
        source = self.source(device, stream, budget)  # may fail: then the next heap gets the log
        number = self._made[device] = self._made.get(device, -1) + 1
        return self.kind(
            source,
            budget.limit,
            self.options,
            name=f"{self.framework}:{device}" + (f" stream {number}" if number else ""),
            log=next(self.logs),
            labels=self.labels,
        )


IS_COMPILED: Final = all(_compiled.load(name) for name in ("bfcviz._heap", "bfcviz._live"))
"""Whether the heap and the functions that frameworks call run as machine code in this process."""


def require_compiled(what: str) -> None:
    """Refuse to serve a heap, or what else the compiled build alone can do; call this before anything changes.

    Args:
        what: the request, as the subject of a sentence: "Serving NumPy".

    Raises:
        LiveError: bfcviz runs as plain Python here.
    """
    if not IS_COMPILED:
        why, advice = _compiled.why_uncompiled()
        raise LiveError(f"{what} needs the compiled build of bfcviz, and {why}. {advice}")
