"""TrackingAllocator: how much goes through it, the most that was in use, and who did not give back."""

import operator
from threading import RLock
from typing import NamedTuple

from bfcviz import _forks
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
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
    """What one label has not given back: chunks, their bytes, and the oldest of them."""

    label: str
    chunks: int
    num_bytes: int
    oldest: Tracked


class TrackingAllocator(AllocatorWrapper):
    """Keeps book of every chunk in use. Where the allocator inside tracks no sizes, this one does.

    Attributes:
        total_bytes: allocated sizes of all requests so far.
        high_water: the most `live_bytes` has been.
        live_bytes: allocated sizes of what is in use.
        count: successful requests so far: what `leaks(since=...)` takes.
    """

    def __init__(self, wrapped: Allocator) -> None:
        super().__init__(wrapped)
        self.total_bytes = 0
        self.high_water = 0
        self.live_bytes = 0
        self.count = 0
        self._in_use: dict[int, Tracked] = {}
        self._lock = _forks.keep(
            RLock()
        )  # Python may collect garbage inside it, and a tensor among that frees

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Memory for `num_bytes`, written down under its label."""
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
        """Give it back, and strike it out."""
        # Struck out first: once freed, another thread may get the same address.
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
        """It does."""
        return True

    def requested_size(self, address: int) -> int:
        """Bytes the caller asked for."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.requested_size(address)
        return self._find(address).requested_size

    def allocated_size(self, address: int) -> int:
        """Bytes of its chunk, as far as known."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.allocated_size(address)
        return self._find(address).allocated_size

    def allocation_id(self, address: int) -> int:
        """Number of its request, counting successes from 1."""
        if self.wrapped.tracks_allocation_sizes():
            return self.wrapped.allocation_id(address)
        return self._find(address).number

    def in_use(self) -> list[Tracked]:
        """Every chunk in use, oldest first."""
        with self._lock:
            return sorted(self._in_use.values())

    def leaks(self, since: int = 0) -> list[Leak]:
        """Who has not given back what was requested after the first `since` requests, most bytes first."""
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
        """The leaks in words, a line each."""
        lines = [
            f"{leak.label or 'without a label'}: {format_bytes(leak.num_bytes)} in {_chunks(leak.chunks)}, the oldest "
            f"of {leak.oldest.requested_size} bytes at {leak.oldest.address:#x} (request {leak.oldest.number})"
            for leak in self.leaks(since)
        ]
        return "\n".join(lines) or (
            f"nothing requested after the first {since} is in use" if since else "nothing is in use"
        )

    def check_invariants(self) -> None:
        """The books of the allocator inside, and that these agree with them."""
        super().check_invariants()
        chunks = self.in_use()
        if sum(chunk.allocated_size for chunk in chunks) != self.live_bytes:
            raise BrokenInvariant(f"{self.live_bytes} bytes are counted as in use, the chunks say otherwise")
        if self.wrapped.tracks_allocation_sizes():
            for chunk in chunks:
                if self.wrapped.allocated_size(chunk.address) != chunk.allocated_size:
                    raise BrokenInvariant(f"the chunk at {chunk.address:#x} has changed its size")

    def _find(self, address: int) -> Tracked:
        with self._lock:
            chunk = self._in_use.get(operator.index(address))
        if chunk is None:
            raise ForeignPointer(address, f"{address:#x} is no address that this allocator handed out")
        return chunk


def _chunks(number: int) -> str:
    return "1 chunk" if number == 1 else f"{number} chunks"
