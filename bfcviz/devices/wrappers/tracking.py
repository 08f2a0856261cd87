"""TrackingAllocator: counts bytes allocated, the peak in use, and leaks by label."""

import operator
from threading import RLock
from typing import NamedTuple

from bfcviz import _forks
from bfcviz.allocator.interface import AllocationAttributes, Allocator
from bfcviz.devices.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import BrokenInvariant, ForeignPointer
from bfcviz.units import format_bytes


class Tracked(NamedTuple):
    """A chunk in use; sizes in bytes, `number` counts this wrapper's successes from 1."""

    number: int
    address: int
    requested_size: int
    allocated_size: int
    label: str


class Leak(NamedTuple):
    """Memory of one label that was not freed: number of chunks, their bytes, and the oldest chunk."""

    label: str
    chunks: int
    num_bytes: int
    oldest: Tracked


class TrackingAllocator(AllocatorWrapper):
    """Records every chunk in use. If the allocator inside does not track sizes, this one does.

    Attributes:
        total_bytes: sum of the allocated sizes of all requests.
        high_water: the maximum of `live_bytes`.
        live_bytes: sum of the allocated sizes of the chunks in use.
        count: number of successful requests; an argument for `leaks(since=...)`.
    """

    def __init__(self, wrapped: Allocator) -> None:
        super().__init__(wrapped)
        self.total_bytes = 0
        self.high_water = 0
        self.live_bytes = 0
        self.count = 0
        self._in_use: dict[int, Tracked] = {}
        self._lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`, and record them with the label."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address == 0:
            return 0
        requested = operator.index(num_bytes)
        sized = self.wrapped.tracks_allocation_sizes()
        size = self.wrapped.allocated_size(address) if sized else requested
        text = self.label_text(label)
        with self._lock:
            self.count += 1
            self._in_use[address] = Tracked(self.count, address, requested, size, text)
            self.total_bytes += size
            self.live_bytes += size
            self.high_water = max(self.high_water, self.live_bytes)
        return address

    def free(self, address: int) -> None:
        """Free it, and remove its record."""
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
        """Every chunk in use, oldest first."""
        with self._lock:
            return sorted(self._in_use.values())

    def leaks(self, since: int = 0) -> list[Leak]:
        """Memory not freed of requests after the first `since`, by label, most bytes first."""
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
        """The leaks as text, one line each."""
        lines = [
            f"{leak.label or 'without a label'}: {format_bytes(leak.num_bytes)} in {_chunks(leak.chunks)}, the oldest "
            f"of {leak.oldest.requested_size} bytes at {leak.oldest.address:#x} (request {leak.oldest.number})"
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


def _chunks(number: int) -> str:
    return "1 chunk" if number == 1 else f"{number} chunks"
