"""TorchServed: PyTorch's CUDA memory comes from instrumented heaps."""

from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Protocol, Self

from bfcviz.allocator.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import Budget
from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.live import marks, torch_api
from bfcviz.live.keeper import Keeper
from bfcviz.live.lanes import Lane, Lanes
from bfcviz.live.lent import LentHeap
from bfcviz.live.stacks import Capture
from bfcviz.units import format_bytes

Way = Literal["pool", "replace"]

SPARE: Final = 4
"""Heaps made ahead for each device: a new stream takes one without any Python."""

_SAYS: Final = {
    "pool": "PyTorch is served by bfcviz through a memory pool: its own caching allocator stays, and every "
    "segment it asks "
    "for is a chunk of bfcviz's heap; tensors are inside those",
    "replace": "PyTorch is served by bfcviz's heap in place of its own allocator, every tensor from a "
    "chunk of its own, until "
    "the process ends: PyTorch swaps no allocator in use. Its memory statistics and snapshots are not to be had",
}


class Memory(Protocol):
    """Where the heaps' memory comes from."""

    def total(self, device: int) -> int:
        """Bytes a device has."""

    def source(self, device: int, budget: Budget) -> SubAllocator:
        """Where a heap's regions come from."""


def _name(device: int) -> str:
    return f"torch cuda:{device}"


class TorchHeap(LentHeap):
    """A heap behind tensors."""

    users = "PyTorch"
    advice = "drop the tensors and call torch.cuda.empty_cache() first"


class TorchServed:
    """What `serve_torch` returns; serves for the length of a `with`, all threads and devices.

    Attributes:
        way: `serve`.
        labels: where names are interned.
    """

    way: Final = "serve"
    _numbers: ClassVar[Iterator[int]] = count(1)
    _under_way: ClassVar["TorchServed | None"] = None
    _replaced: ClassVar["TorchServed | None"] = None

    def __init__(
        self,
        limit: int | None,
        by: Way,
        log: EventLog | None,
        capture: Capture,
        options: AllocatorOptions,
        memory: Memory,
    ) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._by = by
        self._limit = limit
        self._log = log
        self._options = options
        self._memory = memory
        self._lanes = Lanes(next(TorchServed._numbers), capture.use())
        self._torch: Any = None
        self._keeper: Keeper | None = None
        self._pool: torch_api.Pool | None = None
        self._heaps: list[TorchHeap] = []
        self._budgets: dict[int, Budget] = {}
        self._failures = 0

    @property
    def says(self) -> str:
        """Which way, and what that means."""
        return _SAYS[self._by]

    @property
    def trace_sources(self) -> list[TorchHeap]:
        """A heap for each stream that came; more may come. The log that was given is the first one's."""
        used = [lane.allocator for lane in self._lanes.in_use()]
        return [heap for heap in self._heaps if heap in used] or self._heaps[:1]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers behind the last request that failed; the heap may have changed since."""
        lane = self._last_failure()
        if lane is None:
            return None
        _, requested, pool, in_use, largest = lane.failure
        return OutOfMemory(
            requested=requested,
            rounded=(requested + 255) // 256 * 256,
            free_bytes=pool - in_use,
            largest_free_chunk=largest,
            pool_bytes=pool,
            bytes_limit=lane.allocator.memory_limit,
        )

    def settle(self) -> None:
        """Carry out the frees that need not wait for other streams any more."""
        if self._keeper is not None:
            self._keeper.let_go(0, 0, 0)

    def __enter__(self) -> Self:
        if TorchServed._under_way not in (None, *([self] if TorchServed._replaced is self else [])):
            raise LiveError(
                "PyTorch is served already: leave that `with` first; one service at a time is in place"
            )
        if TorchServed._replaced not in (None, self):
            raise LiveError(
                "PyTorch's allocator was replaced in this process before, and stays so: enter that service again"
            )
        self._torch = torch_api.torch_with_cuda("served")
        self._capture.use()
        self._failures = self._number_of_failures()
        if TorchServed._replaced is not self:
            self._begin()
        TorchServed._under_way = self
        marks.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        marks.end(self)
        TorchServed._under_way = None
        if self._pool is not None:
            self._pool.end()
            self._pool = (
                None  # what PyTorch caches of it goes with torch.cuda.empty_cache(), once no tensor is in it
            )
            self._lanes.stop(self._keeper)
        try:
            self.settle()
        except RuntimeError:
            if error is None:  # else it is the GPU's answer to everything since that one
                raise
        if isinstance(error, RuntimeError) and self._number_of_failures() > self._failures:
            error.add_note(f"bfcviz, of the heap PyTorch was served from: {self.out_of_memory}")
            for heap in self._heaps:
                if heap.sub_allocator.error is not None:
                    error.add_note(f"bfcviz, of where its memory comes from: {heap.sub_allocator.error}")

    # -- how it begins ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        torch = self._torch
        self._check_limit(torch.cuda.device_count())
        throws = 0
        if self._by == "replace":
            if not self._lanes.can_throw():
                raise LiveError(
                    "PyTorch's allocator was to be replaced, but bfcviz is not compiled here, and only C code can tell "
                    "PyTorch that memory has run out: it does not look at what it gets. Install a compiler and bfcviz "
                    "again, or give way='pool'"
                )
            throws = torch_api.thrower()
        else:
            torch.cuda.init()
        allocator = torch_api.allocator_of(torch, self._lanes.functions())
        if is_new := self._keeper is None:
            self._keeper = Keeper(self._lanes, self._add, torch_api.TorchStreams(torch), self._make_room)
        if self._by == "replace":
            self._replace(allocator, throws)
        if is_new:
            current = torch.cuda.current_device()
            for device in sorted(range(torch.cuda.device_count()), key=lambda device: device != current):
                for _ in range(SPARE):
                    self._add(device)
        if self._by == "pool":
            pool = torch_api.Pool(torch, allocator)
            self._lanes.serve(throws, self._keeper)
            pool.begin()
            self._pool = pool

    def _replace(self, allocator: Any, throws: int) -> None:
        """From here on PyTorch may ask, whatever else goes wrong; a NULL it would take for an address."""
        self._lanes.serve(throws, self._keeper)
        try:
            torch_api.replace(self._torch, allocator)
        except BaseException:
            self._lanes.stop(self._keeper)
            raise
        TorchServed._replaced = self

    def _check_limit(self, devices: int) -> None:
        for device in range(devices):
            if self._limit is not None and self._limit > (there := self._memory.total(device)):
                raise LiveError(
                    f"heaps of at most {format_bytes(self._limit)} were asked for, and device {device} has "
                    f"{format_bytes(there)}: give a lower limit, or none"
                )

    def _add(self, device: int) -> None:
        """A spare heap for a device. The first of all writes to the log that was given, others to rings."""
        log, self._log = self._log, None
        if device not in self._budgets:
            self._budgets[device] = Budget(self._memory.total(device) if self._limit is None else self._limit)
        budget = self._budgets[device]
        source, name = self._memory.source(device, budget), _name(device)
        heap = TorchHeap(source, budget.limit, self._options, name=name, log=log, labels=self.labels)
        self._heaps.append(heap)
        self._lanes.add(heap, device)

    def _make_room(self, device: int) -> bool:
        """Give free regions of a device's heaps back: the next request may be another heap's."""
        name = _name(device)
        return sum(heap.trim() for heap in self._heaps if heap.name == name) > 0

    # -- what failed --------------------------------------------------------------------------------------------

    def _last_failure(self) -> Lane | None:
        failed = [lane for lane in self._lanes.in_use() if lane.failure[0]]
        return max(failed, key=lambda lane: lane.failure[0], default=None)

    def _number_of_failures(self) -> int:
        lane = self._last_failure()
        return 0 if lane is None else lane.failure[0]
