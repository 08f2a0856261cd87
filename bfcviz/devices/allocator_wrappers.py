"""Allocators that wrap an allocator: each adds one feature, all can be combined, and each is an allocator itself.

In: an allocator. Out: one with the same methods that also tracks, limits, waits for memory, reports thresholds, fills
with NaN or guards against overruns. Free through the wrapper that allocated: it does not see requests that go directly
to the heap.
"""

import operator
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock, RLock, local
from typing import Any, Final, Literal, NamedTuple

from numpy.typing import DTypeLike

from bfcviz import _forks
from bfcviz._context_manager import Closing
from bfcviz.allocator.free_signal import FreeSignal
from bfcviz.allocator.interface import AllocationAttributes, Allocator, Stats, bytes_of
from bfcviz.devices.memory_access import Access, access_to
from bfcviz.errors import (
    BrokenInvariant,
    ForeignPointer,
    GuardOverrun,
    InteriorPointer,
    InvalidFree,
    InvalidRequest,
    OutOfMemory,
    OutOfMemoryTotals,
)
from bfcviz.formats.tensorflow import round_up
from bfcviz.native import MAX_REQUEST
from bfcviz.thresholds import Hysteresis, Threshold
from bfcviz.units import format_bytes, parse_bytes


class AllocationRequest(NamedTuple):
    """The arguments of `allocate`, as a wrapper passes them on."""

    num_bytes: int
    alignment: int
    label: str | int | None
    attributes: AllocationAttributes | None

    def to(self, allocator: Allocator) -> int:
        """Make the request of an allocator; raises as its `allocate` does."""
        return allocator.allocate(self.num_bytes, self.alignment, self.label, attributes=self.attributes)


class AllocatorWrapper(Closing):
    """Forwards every call to the allocator inside. A wrapper overrides `serve` and `free`; other methods call these.

    Args:
        wrapped: the allocator inside; the wrapper owns it from now on.

    Raises:
        TypeError: `wrapped` is not an allocator.
    """

    def __init__(self, wrapped: Allocator) -> None:
        if isinstance(wrapped, type) or not isinstance(wrapped, Allocator):
            raise TypeError(f"{wrapped!r} is not an allocator: give a BFCAllocator, or a wrapper around one")
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        """Name of the allocator inside the wrapper."""
        return self.wrapped.name

    @property
    def layers(self) -> tuple[Allocator, ...]:
        """This wrapper and all allocators inside it, outermost first."""
        inner = self.wrapped.layers if isinstance(self.wrapped, AllocatorWrapper) else (self.wrapped,)
        return (self, *inner)

    @property
    def base(self) -> Any:
        """The innermost allocator; a BFCAllocator there has the log, labels and memory map."""
        return self.layers[-1]

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`; raises as `serve` does."""
        return self.serve(AllocationRequest(num_bytes, alignment, label, attributes))

    def serve(self, request: AllocationRequest) -> int:
        """Serve a request of `allocate`; raises as the allocator inside does."""
        return request.to(self.wrapped)

    def try_allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int | None:
        """Allocate as `allocate` does; None instead of OutOfMemory."""
        try:
            return self.allocate(num_bytes, alignment, label, attributes=attributes)
        except OutOfMemory:
            return None

    def allocate_elements(
        self,
        dtype: DTypeLike,
        count: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `count` elements of a NumPy dtype; raises as `allocate` does."""
        return self.allocate(bytes_of(dtype, count), alignment, label, attributes=attributes)

    def free(self, address: int) -> None:
        """Free an address that `allocate` returned; 0 is ignored."""
        self.wrapped.free(address)

    def tracks_allocation_sizes(self) -> bool:
        """Whether the three methods below work."""
        return self.wrapped.tracks_allocation_sizes()

    def requested_size(self, address: int) -> int:
        """Bytes that the caller requested."""
        return self.wrapped.requested_size(address)

    def allocated_size(self, address: int) -> int:
        """Bytes of the chunk."""
        return self.wrapped.allocated_size(address)

    def allocation_id(self, address: int) -> int:
        """Number of the request, counting successes from 1."""
        return self.wrapped.allocation_id(address)

    def should_allocate_empty(self) -> bool:
        """Whether a request for 0 bytes gets an address of its own."""
        return self.wrapped.should_allocate_empty()

    def stats(self) -> Stats:
        """Current totals."""
        return self.wrapped.stats()

    def clear_stats(self) -> None:
        """Restart the counts of requests and the peaks."""
        self.wrapped.clear_stats()

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: allow merging of chunks freed before this count."""
        self.wrapped.set_safe_frontier(count)

    def check_invariants(self) -> None:
        """Compare all tables, also of the wrappers; raises BrokenInvariant where they disagree."""
        self.wrapped.check_invariants()

    def close(self) -> None:
        """Release all memory; afterwards a free does nothing."""
        self.wrapped.close()

    def label_text(self, label: str | int | None) -> str:
        """A label as text, also if it is given as an id of the heap's table."""
        if label is None or isinstance(label, str):
            return label or ""
        labels = getattr(self.base, "labels", None)
        return str(label) if labels is None else str(labels.name(label))

    def _size_to_free(self, address: int) -> int:
        """Bytes requested for it by the wrapper's caller; 0 for an invalid free, which the allocator inside reports."""
        try:
            return self.wrapped.requested_size(address) if address else 0
        except InvalidFree:
            return 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wrapped!r})"


class Tracked(NamedTuple):
    """A chunk in use that a `TrackingAllocator` recorded; sizes in bytes, `number` counts its successes from 1."""

    number: int
    address: int
    requested_size: int
    allocated_size: int
    label: str


class Leak(NamedTuple):
    """What the wrapper `TrackingAllocator` found of one label, not freed: number of chunks, bytes, the oldest chunk."""

    label: str
    chunks: int
    num_bytes: int
    oldest: Tracked


class TrackingAllocator(AllocatorWrapper):
    """Counts bytes, and records every chunk in use, to find leaks. It tracks sizes if the allocator inside does not."""

    def __init__(self, wrapped: Allocator) -> None:
        super().__init__(wrapped)
        self.total_bytes = 0  # sum of the allocated sizes of all requests
        self.high_water = 0  # the maximum of `live_bytes`
        self.live_bytes = 0  # sum of the allocated sizes of the chunks in use
        self.count = 0  # number of successful requests; an argument for `leaks(since=...)`
        self._in_use: dict[int, Tracked] = {}
        self._lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes`, and record them in the wrapper with the label."""
        address = request.to(self.wrapped)
        if address == 0:
            return 0
        requested = operator.index(request.num_bytes)
        sized = self.wrapped.tracks_allocation_sizes()
        size = self.wrapped.allocated_size(address) if sized else requested
        text = self.label_text(request.label)
        with self._lock:
            self.count += 1
            self._in_use[address] = Tracked(self.count, address, requested, size, text)
            self.total_bytes += size
            self.live_bytes += size
            self.high_water = max(self.high_water, self.live_bytes)
        return address

    def free(self, address: int) -> None:
        """Free a chunk, and remove its record from the wrapper."""
        # Remove it first: after the free another thread may get the same address.
        with self._lock:
            chunk = self._in_use.pop(operator.index(address), None)
            self.live_bytes -= chunk.allocated_size if chunk else 0
        try:
            self.wrapped.free(address)
        except BaseException:
            if chunk:
                with self._lock:
                    self._in_use[chunk.address] = chunk
                    self.live_bytes += chunk.allocated_size
            raise

    def tracks_allocation_sizes(self) -> bool:
        """True: this wrapper tracks sizes."""
        return True

    def requested_size(self, address: int) -> int:
        """Bytes that the caller requested."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.requested_size(address)
        return self._find(address).requested_size

    def allocated_size(self, address: int) -> int:
        """Bytes of the chunk; the requested bytes if the allocator inside does not track sizes."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.allocated_size(address)
        return self._find(address).allocated_size

    def allocation_id(self, address: int) -> int:
        """Number of the request, counting successes from 1."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.allocation_id(address)
        return self._find(address).number

    def in_use(self) -> list[Tracked]:
        """Every chunk in use that the wrapper recorded, oldest first."""
        with self._lock:
            return sorted(self._in_use.values())

    def leaks(self, since: int = 0) -> list[Leak]:
        """Memory not freed of requests to the wrapper after the first `since`, by label, most bytes first."""
        by_label: dict[str, list[Tracked]] = {}
        for chunk in self.in_use():
            if chunk.number > since:
                by_label.setdefault(chunk.label, []).append(chunk)
        found = [
            Leak(label, len(chunks), sum(chunk.allocated_size for chunk in chunks), chunks[0])
            for label, chunks in by_label.items()
        ]
        return sorted(found, key=lambda leak: (-leak.num_bytes, leak.label))

    def report(self, since: int = 0) -> str:
        """The leaks that the wrapper found as text, one line each."""
        lines = [
            f"{leak.label or 'without a label'}: {format_bytes(leak.num_bytes)} in {leak.chunks} "
            f"chunk{'' if leak.chunks == 1 else 's'}, the oldest of {leak.oldest.requested_size} bytes at "
            f"{leak.oldest.address:#x} (request {leak.oldest.number})"
            for leak in self.leaks(since)
        ]
        return "\n".join(lines) or (
            f"nothing requested after the first {since} is in use" if since else "nothing is in use"
        )

    def check_invariants(self) -> None:
        """Check the tables of the allocator inside, and that the records here agree with them."""
        super().check_invariants()
        chunks = self.in_use()
        if sum(chunk.allocated_size for chunk in chunks) != self.live_bytes:
            raise BrokenInvariant(
                f"{self.live_bytes} bytes are counted as in use; the chunks have another sum"
            )
        if self.wrapped.tracks_allocation_sizes():
            for chunk in chunks:
                if self.wrapped.allocated_size(chunk.address) != chunk.allocated_size:
                    raise BrokenInvariant(f"the chunk at {chunk.address:#x} has changed its size")

    def _find(self, address: int) -> Tracked:
        with self._lock:
            chunk = self._in_use.get(operator.index(address))
        if chunk is None:
            raise ForeignPointer(address, f"{address:#x} was not allocated by this allocator")
        return chunk


class LimitAllocator(AllocatorWrapper):
    """Refuses requests that would exceed its limit, so that one user cannot take a heap that several share.

    It counts requests rounded up to 256 bytes; a chunk may be larger.

    Args:
        wrapped: the allocator inside; it must track sizes.
        limit: in bytes, 1 or more, or as text such as `512MiB`.

    Raises:
        InvalidRequest: the limit is below 1, or the allocator inside does not track sizes.
        ValueError: the text is not a size.
    """

    def __init__(self, wrapped: Allocator, limit: int | str) -> None:
        super().__init__(wrapped)
        self.limit = parse_bytes(limit, "limit")  # the most bytes in use at one time
        if self.limit < 1:
            raise InvalidRequest(f"the limit is {limit} bytes; give 1 or more")
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so freed bytes cannot be counted: put a TrackingAllocator "
                "around it first"
            )
        self.used = 0  # bytes in use now
        self._lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes` if the limit of the wrapper allows it.

        Raises:
            OutOfMemory: the limit is exceeded (the numbers are the limit's), or the allocator inside has no memory.
        """
        need = round_up(operator.index(request.num_bytes))
        if not 0 <= need <= MAX_REQUEST:  # the allocator inside refuses it with its own error
            return request.to(self.wrapped)
        self._reserve(need, request.num_bytes)
        address = 0
        try:
            address = request.to(self.wrapped)
        finally:
            if address == 0:
                self._release(need)
        return address

    def free(self, address: int) -> None:
        """Free a chunk, and subtract its size from what the wrapper limits."""
        size = round_up(self._size_to_free(address))
        self.wrapped.free(address)
        self._release(size)

    def stats(self) -> Stats:
        """Totals of the allocator inside, with the lower one of both limits."""
        stats = self.wrapped.stats()
        return replace(stats, bytes_limit=min(stats.bytes_limit, self.limit))

    def check_invariants(self) -> None:
        """Check the tables of the allocator inside, and that the bytes in use do not exceed the limit."""
        super().check_invariants()
        if not 0 <= self.used <= self.limit:
            raise BrokenInvariant(f"{self.used} bytes are in use, the limit is {self.limit}")

    def _reserve(self, need: int, num_bytes: int) -> None:
        with self._lock:
            left = self.limit - self.used
            if need <= left:
                self.used += need
                return
        totals = OutOfMemoryTotals(self.limit, self.limit - left, left, self.limit)
        raise OutOfMemory.of(operator.index(num_bytes), totals)

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self.used -= num_bytes


class RetryAllocator(AllocatorWrapper):
    """Tries again after each free through it, from any thread, and once more when the time is up, as TensorFlow does.

    A request with `no_retry_on_failure` does not wait. A free that bypasses this wrapper wakes no thread.

    Args:
        retry_s: how long a request may wait, in seconds; TensorFlow's 10 by default.

    Raises:
        InvalidRequest: `retry_s` is negative or not finite.
    """

    def __init__(self, wrapped: Allocator, retry_s: float = 10.0) -> None:
        super().__init__(wrapped)
        if not 0 <= retry_s < float("inf"):
            raise InvalidRequest(f"retry_s is {retry_s}; give a finite number from 0 up")
        self.retry_s = retry_s
        self._frees = FreeSignal()

    @property
    def waiting(self) -> int:
        """Number of threads that wait in the wrapper now."""
        return self._frees.waiters

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes` as soon as memory is free, after other threads free through the wrapper.

        Raises:
            OutOfMemory: the time is up; the numbers are those of the last try.
        """
        seen = self._frees.wakes  # read before the first try: a free after it ends the wait
        num_bytes, alignment, label, attributes = request
        try:
            return request.to(self.wrapped)
        except OutOfMemory:
            if self.retry_s == 0 or (attributes and attributes.no_retry_on_failure):
                raise
        attempt = partial(self.wrapped.try_allocate, num_bytes, alignment, label, attributes=attributes)
        address: int | None = self._frees.try_after_frees(attempt, self.retry_s, seen)
        return request.to(self.wrapped) if address is None else address

    def free(self, address: int) -> None:
        """Free a chunk, and wake the threads that wait in the wrapper."""
        self.wrapped.free(address)
        self._frees.wake_waiters()

    def close(self) -> None:
        """Release all memory. Waiting threads find the allocator closed."""
        super().close()
        self._frees.wake_waiters()


MEASURES: Final[dict[str, Callable[[Stats], float]]] = {
    "bytes_in_use": lambda s: s.bytes_in_use,
    "pool_bytes": lambda s: s.pool_bytes,
    "free_bytes": lambda s: s.free_bytes,
    "largest_free_chunk": lambda s: s.largest_free_chunk,
    "chunks_in_use": lambda s: s.chunks_in_use,
    "share_of_limit": lambda s: s.bytes_in_use / s.bytes_limit,
    "external_fragmentation": lambda s: 1 - s.largest_free_chunk / s.free_bytes if s.free_bytes else 0.0,
    "internal_fragmentation": lambda s: (
        1 - s.requested_bytes_in_use / s.bytes_in_use if s.bytes_in_use else 0.0
    ),
}
"""Functions that compute each measure of a `Threshold`."""


class Crossing(NamedTuple):
    """What an `AlertAllocator` reports: a crossed threshold, the value, and the operation that crossed it."""

    threshold: Threshold
    value: float
    heap: str
    doing: str

    def __str__(self) -> str:
        return f"{self.heap}: {self.threshold}: {self.threshold.told(self.value)}, after {self.doing}"


class AlertAllocator(AllocatorWrapper):
    """Checks the totals after every allocate and free; calls a function, in that thread, when a threshold is crossed.

    It is called once per crossing: again only after the value was back on the good side. Requests that the function
    itself makes raise no alerts. An exception of the function is stored as `error`, because the request has succeeded.

    Args:
        call: called with each `Crossing`.
    """

    def __init__(
        self, wrapped: Allocator, thresholds: Sequence[Threshold], call: Callable[[Crossing], object]
    ) -> None:
        super().__init__(wrapped)
        self.thresholds = tuple(thresholds)
        self.error: Exception | None = None
        self._call = call
        self._states = [Hysteresis() for _ in self.thresholds]
        self._lock = _forks.keep(Lock())
        self._here = local()

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes`, then check the totals against the wrapper's thresholds."""
        address = request.to(self.wrapped)
        if address:
            label = self.label_text(request.label) or "no label"
            self._check_totals(f"{request.num_bytes} bytes for {label}")
        return address

    def free(self, address: int) -> None:
        """Free a chunk, then check the totals against the wrapper's thresholds."""
        self.wrapped.free(address)
        if address:
            self._check_totals(f"the free of {address:#x}")

    def _check_totals(self, doing: str) -> None:
        if getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            crossings = self._crossed(doing)
            for crossing in crossings:
                self._call(crossing)
            if crossings:
                self._reset_recovered()
        except Exception as error:  # noqa: BLE001  the request has succeeded, even if the user's function fails
            self.error = error
        finally:
            self._here.busy = False

    def _crossed(self, doing: str) -> list[Crossing]:
        """Thresholds of the wrapper that are crossed now and were not before."""
        with self._lock:
            values = self._values()
            new = [
                (each, value)
                for each, state, value in zip(self.thresholds, self._states, values, strict=True)
                if state.take(is_past=each.is_past(value))
            ]
        return [Crossing(each, value, self.name, doing) for each, value in new]

    def _reset_recovered(self) -> None:
        """Allow new alerts for thresholds of the wrapper that are no longer crossed after the call."""
        with self._lock:
            for each, state, value in zip(self.thresholds, self._states, self._values(), strict=True):
                if not each.is_past(value):
                    state.take(is_past=False)

    def _values(self) -> list[float]:
        stats = self.wrapped.stats()
        return [MEASURES[each.measure](stats) for each in self.thresholds]


FRESH: Final = b"\xff\xff"  # repeated, it is NaN in floating-point types of 8 to 64 bits, and -1 in integers

FREED: Final = b"\xff\x7f"  # repeated, it is another NaN in these types: 0x7fff in 16 bits, 0x7fff7fff in 32


class NaNFillAllocator(AllocatorWrapper):
    """Fills memory on allocate and on free, so that results computed from it are NaN.

    TensorFlow's GPUNanResetAllocator writes NaN of float32, which float64 reads as a large number; these patterns are
    NaN in both, and differ between fresh and freed memory. If a free fails, the chunk stays in use, but filled: put a
    wrapper that may refuse a free, such as GuardAllocator, around this one and not inside it.

    Args:
        wrapped: the allocator inside; it must track sizes.
        access: writes the memory; by default one that fits the memory (see `access_to`).

    Raises:
        InvalidRequest: the allocator inside does not track sizes, or its memory cannot be accessed.
    """

    def __init__(self, wrapped: Allocator, *, access: Access | None = None) -> None:
        super().__init__(wrapped)
        if not wrapped.tracks_allocation_sizes():
            raise InvalidRequest(
                f"{wrapped.name} does not track sizes, so freed memory cannot be filled: put a TrackingAllocator "
                "around it first"
            )
        self.access = access_to(wrapped) if access is None else access

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes`, all NaN."""
        address = request.to(self.wrapped)
        if address:
            try:
                self.access.fill(address, operator.index(request.num_bytes), FRESH)
            except BaseException:
                self.wrapped.free(address)
                raise
        return address

    def free(self, address: int) -> None:
        """Fill the memory with the other NaN, and free it."""
        if address:
            self.access.fill(address, self._size_to_free(address), FREED)
        self.wrapped.free(address)


Side = Literal["before", "after"]


class Guarded(NamedTuple):
    """A chunk in use between the guard words of a wrapper; sizes in bytes."""

    address: int  # the address that `allocate` returned
    size: int  # bytes requested
    label: str  # what it is for
    start: int  # address of the chunk of the allocator inside
    total: int  # bytes requested from the allocator inside, with guard words
    number: int  # of the request, counting this wrapper's successes from 1

    @property
    def end(self) -> int:
        """The first address after the requested bytes."""
        return self.address + self.size

    def __str__(self) -> str:
        return f"{self.label or 'a chunk without a label'!r} ({_guard_bytes_text(self.size)} at {self.address:#x})"


class Damage(NamedTuple):
    """Overwritten guard words on one side of a chunk."""

    chunk: Guarded  # the chunk with these guard words
    side: Side
    address: int  # the first changed byte
    num_bytes: int  # number of bytes from the first to the last changed byte
    found: bytes  # their current value
    neighbour: Guarded | None  # the chunk in use next to that side; None if there is none

    def __str__(self) -> str:
        if self.side == "after":
            where = f"{_guard_bytes_text(self.address - self.chunk.end)} past its end"
        else:
            where = f"{_guard_bytes_text(self.chunk.address - self.address)} before its beginning"
        edge = "end" if self.side == "after" else "beginning"
        return (
            f"the guard words {self.side} {self.chunk} were overwritten, {_guard_bytes_text(self.num_bytes)} from "
            f"{self.address:#x}, {where}, with {self.found[:16].hex(' ')}: the write went past this chunk's {edge}"
            f"{self._other()}"
        )

    def _other(self) -> str:
        if self.neighbour is None:
            return f"; no other chunk is in use {self.side} it"
        if self.side == "after":
            distance = _guard_bytes_text(self.neighbour.address - self.chunk.end)
            return f", or past the beginning of {self.neighbour}, {distance} further"
        distance = _guard_bytes_text(self.chunk.address - self.neighbour.end)
        return f", or past the end of {self.neighbour}, {distance} before"


def _guard_bytes_text(number: int) -> str:
    return "1 byte" if number == 1 else f"{number} bytes"


_BEFORE: Final = b"\xab"
_AFTER: Final = b"\xcd"


class GuardAllocator(AllocatorWrapper):
    """Detects out-of-bounds writes: guards `guard_bytes` bytes before and after every chunk.

    A write of the same value as the guard word is not detected. A chunk with damage is not freed: `free` raises until
    `mend` is called.

    Args:
        guard_bytes: size of the guard words on each side, in bytes or as text.
        access: reads and writes the memory; by default one that fits the memory (see `access_to`).

    Raises:
        InvalidRequest: `guard_bytes` is below 1, or the memory cannot be accessed.
    """

    def __init__(
        self, wrapped: Allocator, guard_bytes: int | str = 64, *, access: Access | None = None
    ) -> None:
        super().__init__(wrapped)
        self.guard_bytes = parse_bytes(guard_bytes, "guard_bytes")
        if self.guard_bytes < 1:
            raise InvalidRequest(f"guard_bytes is {guard_bytes}; give 1 or more")
        self.access = access_to(wrapped) if access is None else access
        self._numbers = count(1)
        self._in_use: dict[int, Guarded] = {}  # by address
        self._starts: set[int] = set()  # of their chunks of the allocator inside
        self._extra = 0  # bytes of guard words and gaps of all of them
        # While it is held, no other thread removes a chunk, so that the memory of the chunks can be read.
        self._lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def overhead(self, alignment: int = 256) -> int:
        """Bytes that guard words of the wrapper add to a request."""
        return -(-self.guard_bytes // alignment) * alignment + self.guard_bytes

    def serve(self, request: AllocationRequest) -> int:
        """Allocate `num_bytes` between guard words."""
        size = operator.index(request.num_bytes)
        if not self._is_served(size, request.alignment):
            return request.to(self.wrapped)
        total = size + self.overhead(request.alignment)
        try:
            start = request._replace(num_bytes=total).to(self.wrapped)
        except OutOfMemory as error:
            raise error.for_request(size) from error
        address = start + total - self.guard_bytes - size
        try:
            self._write_words(address, size)
        except BaseException:
            self.wrapped.free(start)
            raise
        text = self.label_text(request.label)
        self._add(Guarded(address, size, text, start, total, next(self._numbers)))
        return address

    def free(self, address: int) -> None:
        """Check the guard words of a chunk, and free it.

        Raises:
            GuardOverrun: they were overwritten; the chunk stays in use.
        """
        if operator.index(address) == 0:
            return
        chunk = self._find(address)
        damages = self._damages_of([chunk])
        if damages:
            raise GuardOverrun(damages)
        # Remove it first: after the free another thread may get the same address.
        if not self._remove(chunk):
            raise self._invalid_free(address)
        try:
            self.wrapped.free(chunk.start)
        except BaseException:
            self._add(chunk)
            raise

    def damages(self) -> list[Damage]:
        """Overwritten guard words of chunks in use, in order of address."""
        return self._damages_of(self.in_use())

    def check(self) -> None:
        """Check all guard words now; raises GuardOverrun if some were overwritten."""
        damages = self.damages()
        if damages:
            raise GuardOverrun(damages)

    def mend(self, address: int) -> None:
        """Rewrite a chunk's guard words, so that it can be freed."""
        chunk = self._find(address)
        self._write_words(chunk.address, chunk.size)

    def in_use(self) -> list[Guarded]:
        """Every chunk in use, in order of address."""
        with self._lock:
            return sorted(self._in_use.values())

    # -- state --------------------------------------------------------------------------------------------------

    def tracks_allocation_sizes(self) -> bool:
        """True: this wrapper tracks sizes."""
        return True

    def requested_size(self, address: int) -> int:
        """Bytes that the caller requested."""
        chunk = self._find(address)
        if not self._is_readable(chunk):
            raise ForeignPointer(address, f"{address:#x} belongs to an allocator that is closed")
        return chunk.size

    def allocated_size(self, address: int) -> int:
        """Bytes of the whole chunk, with guard words, as in TensorFlow, so that totals add up."""
        chunk = self._find(address)
        sized = self.wrapped.tracks_allocation_sizes()
        return self.wrapped.allocated_size(chunk.start) if sized else chunk.total

    def allocation_id(self, address: int) -> int:
        """Number of its request, counting successes from 1."""
        chunk = self._find(address)
        sized = self.wrapped.tracks_allocation_sizes()
        return self.wrapped.allocation_id(chunk.start) if sized else chunk.number

    def stats(self) -> Stats:
        """Current totals; guard words count as allocated, not as requested."""
        stats = self.wrapped.stats()
        return replace(stats, requested_bytes_in_use=max(stats.requested_bytes_in_use - self._extra, 0))

    def check_invariants(self) -> None:
        """Check the tables of the allocator inside, and that it has every chunk of this wrapper."""
        super().check_invariants()
        if self.wrapped.tracks_allocation_sizes():
            for chunk in self.in_use():
                self.wrapped.requested_size(chunk.start)

    # -- implementation -----------------------------------------------------------------------------------------

    def _add(self, chunk: Guarded) -> None:
        with self._lock:
            self._in_use[chunk.address] = chunk
            self._starts.add(chunk.start)
            self._extra += chunk.total - chunk.size

    def _remove(self, chunk: Guarded) -> bool:
        """Remove a guarded chunk; False if another thread removed it."""
        with self._lock:
            if self._in_use.pop(chunk.address, None) is None:
                return False
            self._starts.remove(chunk.start)
            self._extra -= chunk.total - chunk.size
            return True

    def _neighbour(self, chunk: Guarded, side: Side) -> Guarded | None:
        """The next chunk in use of the wrapper on that side; None without one."""
        chunks = self.in_use()
        index = bisect(chunks, chunk)
        if side == "after":
            return chunks[index] if index < len(chunks) else None
        return chunks[index - 2] if index >= 2 else None

    def _is_served(self, size: int, alignment: int) -> bool:
        """Whether to add guard words. The allocator inside gets all other requests, and raises its own errors."""
        if not 0 < alignment < MAX_REQUEST or (size == 0 and not self.should_allocate_empty()):
            return False
        return 0 <= size <= MAX_REQUEST - self.overhead(alignment)

    def _write_words(self, address: int, size: int) -> None:
        self.access.write(address - self.guard_bytes, _BEFORE * self.guard_bytes)
        self.access.write(address + size, _AFTER * self.guard_bytes)

    def _damages_of(self, chunks: Iterable[Guarded]) -> list[Damage]:
        """The damages of the guard words of these chunks."""
        found: list[Damage] = []
        for chunk in chunks:
            found += self._damage(chunk, "before", chunk.address - self.guard_bytes, _BEFORE)
            found += self._damage(chunk, "after", chunk.end, _AFTER)
        return found

    def _damage(self, chunk: Guarded, side: Side, at: int, word: bytes) -> list[Damage]:
        intact = word * self.guard_bytes
        with self._lock:
            data = self.access.read(at, self.guard_bytes) if self._is_readable(chunk) else intact
        if data == intact or self._in_use.get(chunk.address) is not chunk:  # it may have been freed just now
            return []
        first = len(data) - len(data.lstrip(word))
        last = len(data.rstrip(word))
        neighbour = self._neighbour(chunk, side)
        return [Damage(chunk, side, at + first, last - first, data[first:last], neighbour)]

    def _is_readable(self, chunk: Guarded) -> bool:
        """Whether the memory of a guarded chunk can be read: it is not freed, and the allocator inside not closed."""
        if self._in_use.get(chunk.address) is not chunk:
            return False
        try:
            return not self.wrapped.tracks_allocation_sizes() or self.wrapped.requested_size(chunk.start) > 0
        except InvalidFree:
            return False

    def _find(self, address: int) -> Guarded:
        chunk = self._in_use.get(operator.index(address))
        if chunk is None:
            raise self._invalid_free(address)
        return chunk

    def _invalid_free(self, address: int) -> InvalidFree:
        """The error for an address that this wrapper did not return."""
        if operator.index(address) in self._starts:  # `allocate` returned no such address
            return InteriorPointer(address, f"{address:#x} is before the guard words of a chunk in use")
        if self.wrapped.tracks_allocation_sizes():
            try:
                self.wrapped.requested_size(address)
            except InvalidFree as error:
                return error
        return ForeignPointer(address, f"{address:#x} was not allocated by this allocator")
