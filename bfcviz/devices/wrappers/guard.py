"""GuardAllocator: puts guard words around every chunk and checks them on free and on demand.

::

    chunk of the allocator inside
    |........|abababab|requested bytes         |cdcdcdcd|......|
    ^ start           ^ returned address       ^ the next byte

The gap at the front keeps the alignment. The guard words are those of TensorFlow's GPUDebugAllocator.
"""

import operator
from bisect import bisect
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from threading import RLock
from typing import Final, Literal, NamedTuple

from bfcviz import _forks
from bfcviz.allocator.interface import AllocationAttributes, Allocator, Stats
from bfcviz.devices.wrappers.memory_access import Access, access_to
from bfcviz.devices.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import (
    ForeignPointer,
    GuardOverrun,
    InteriorPointer,
    InvalidFree,
    InvalidRequest,
    OutOfMemory,
)
from bfcviz.native import MAX_REQUEST
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# The chunks in use between guard words (GuardedChunks), and the report of overwritten guard words (Damage).

Side = Literal["before", "after"]


class Guarded(NamedTuple):
    """A chunk in use between guard words; sizes in bytes.

    Attributes:
        address: the address that `allocate` returned.
        size: bytes requested.
        label: what it is for.
        start: address of the chunk of the allocator inside.
        total: bytes requested from the allocator inside, with guard words.
        number: of the request, counting this wrapper's successes from 1.
    """

    address: int
    size: int
    label: str
    start: int
    total: int
    number: int

    @property
    def end(self) -> int:
        """The first address after the requested bytes."""
        return self.address + self.size

    def __str__(self) -> str:
        return f"{self.label or 'a chunk without a label'!r} ({_bytes(self.size)} at {self.address:#x})"


class Damage(NamedTuple):
    """Overwritten guard words on one side of a chunk.

    Attributes:
        chunk: the chunk with these guard words.
        side: the side of the chunk.
        address: the first changed byte.
        num_bytes: number of bytes from the first to the last changed byte.
        found: their current value.
        neighbour: the chunk in use next to that side; None if there is none.
    """

    chunk: Guarded
    side: Side
    address: int
    num_bytes: int
    found: bytes
    neighbour: Guarded | None

    def __str__(self) -> str:
        if self.side == "after":
            where = f"{_bytes(self.address - self.chunk.end)} past its end"
        else:
            where = f"{_bytes(self.chunk.address - self.address)} before its beginning"
        edge = "end" if self.side == "after" else "beginning"
        return (
            f"the guard words {self.side} {self.chunk} were overwritten, {_bytes(self.num_bytes)} from "
            f"{self.address:#x}, {where}, with {self.found[:16].hex(' ')}: the write went past this chunk's {edge}"
            f"{self._other()}"
        )

    def _other(self) -> str:
        if self.neighbour is None:
            return f"; no other chunk is in use {self.side} it"
        if self.side == "after":
            distance = _bytes(self.neighbour.address - self.chunk.end)
            return f", or past the beginning of {self.neighbour}, {distance} further"
        distance = _bytes(self.chunk.address - self.neighbour.end)
        return f", or past the end of {self.neighbour}, {distance} before"


def _bytes(number: int) -> str:
    return "1 byte" if number == 1 else f"{number} bytes"


class GuardedChunks:
    """A table of chunks. Thread-safe.

    Attributes:
        extra: bytes of guard words and gaps of all chunks.
        lock: while it is held, no other thread removes a chunk, so that the memory of the chunks can be read.
    """

    def __init__(self) -> None:
        self.extra = 0
        self._by_address: dict[int, Guarded] = {}
        self._starts: set[int] = set()
        self.lock = _forks.keep(RLock())  # reentrant: a tensor that Python collects meanwhile may free

    def add(self, chunk: Guarded) -> None:
        """Add a chunk."""
        with self.lock:
            self._by_address[chunk.address] = chunk
            self._starts.add(chunk.start)
            self.extra += chunk.total - chunk.size

    def remove(self, chunk: Guarded) -> bool:
        """Remove a chunk; False if another thread removed it."""
        with self.lock:
            if self._by_address.pop(chunk.address, None) is None:
                return False
            self._starts.remove(chunk.start)
            self.extra -= chunk.total - chunk.size
            return True

    def find(self, address: int) -> Guarded | None:
        """The chunk whose `allocate` returned this address."""
        return self._by_address.get(address)

    def is_start(self, address: int) -> bool:
        """Whether a chunk of the allocator inside begins there; `allocate` returned no such address."""
        return address in self._starts

    def all(self) -> list[Guarded]:
        """All chunks in order of address."""
        with self.lock:
            return sorted(self._by_address.values())

    def neighbour(self, chunk: Guarded, side: Side) -> Guarded | None:
        """The next chunk in use on that side; None without one."""
        chunks = self.all()
        index = bisect(chunks, chunk)
        if side == "after":
            return chunks[index] if index < len(chunks) else None
        return chunks[index - 2] if index >= 2 else None


# ------------------------------------------------------------------------------
# GuardAllocator: puts guard words around every chunk and checks them on free and on demand.

_BEFORE: Final = b"\xab"
_AFTER: Final = b"\xcd"


class GuardAllocator(AllocatorWrapper):
    """Detects out-of-bounds writes: guards `guard_bytes` bytes before and after every chunk.

    A write of the same value as the guard word is not detected. A chunk with damage is not freed: `free` raises until
    `mend` is called.

    Args:
        wrapped: the allocator inside.
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
        self._chunks = GuardedChunks()
        self._numbers = count(1)

    def overhead(self, alignment: int = 256) -> int:
        """Bytes that guard words add to a request."""
        return -(-self.guard_bytes // alignment) * alignment + self.guard_bytes

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes` between guard words."""
        size = operator.index(num_bytes)
        if not self._is_served(size, alignment):
            return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        total = size + self.overhead(alignment)
        try:
            start = self.wrapped.allocate(total, alignment, label, attributes=attributes)
        except OutOfMemory as error:
            raise error.for_request(size) from error
        address = start + total - self.guard_bytes - size
        try:
            self._write_words(address, size)
        except BaseException:
            self.wrapped.free(start)
            raise
        text = self.label_text(label)
        self._chunks.add(Guarded(address, size, text, start, total, next(self._numbers)))
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
        if not self._chunks.remove(chunk):
            raise self._invalid_free(address)
        try:
            self.wrapped.free(chunk.start)
        except BaseException:
            self._chunks.add(chunk)
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
        return self._chunks.all()

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
        return replace(
            stats, requested_bytes_in_use=max(stats.requested_bytes_in_use - self._chunks.extra, 0)
        )

    def check_invariants(self) -> None:
        """Check the tables of the allocator inside, and that it has every chunk of this wrapper."""
        super().check_invariants()
        if self.wrapped.tracks_allocation_sizes():
            for chunk in self.in_use():
                self.wrapped.requested_size(chunk.start)

    # -- implementation -----------------------------------------------------------------------------------------

    def _is_served(self, size: int, alignment: int) -> bool:
        """Whether to add guard words. The allocator inside gets all other requests, and raises its own errors."""
        if not 0 < alignment < MAX_REQUEST or (size == 0 and not self.should_allocate_empty()):
            return False
        return 0 <= size <= MAX_REQUEST - self.overhead(alignment)

    def _write_words(self, address: int, size: int) -> None:
        self.access.write(address - self.guard_bytes, _BEFORE * self.guard_bytes)
        self.access.write(address + size, _AFTER * self.guard_bytes)

    def _damages_of(self, chunks: Iterable[Guarded]) -> list[Damage]:
        found: list[Damage] = []
        for chunk in chunks:
            found += self._damage(chunk, "before", chunk.address - self.guard_bytes, _BEFORE)
            found += self._damage(chunk, "after", chunk.end, _AFTER)
        return found

    def _damage(self, chunk: Guarded, side: Side, at: int, word: bytes) -> list[Damage]:
        intact = word * self.guard_bytes
        with self._chunks.lock:
            data = self.access.read(at, self.guard_bytes) if self._is_readable(chunk) else intact
        if data == intact or self._chunks.find(chunk.address) is not chunk:  # it may have been freed just now
            return []
        first = len(data) - len(data.lstrip(word))
        last = len(data.rstrip(word))
        neighbour = self._chunks.neighbour(chunk, side)
        return [Damage(chunk, side, at + first, last - first, data[first:last], neighbour)]

    def _is_readable(self, chunk: Guarded) -> bool:
        """Whether its memory can be read: the chunk was not freed meanwhile, and the allocator inside is not closed."""
        if self._chunks.find(chunk.address) is not chunk:
            return False
        try:
            return not self.wrapped.tracks_allocation_sizes() or self.wrapped.requested_size(chunk.start) > 0
        except InvalidFree:
            return False

    def _find(self, address: int) -> Guarded:
        chunk = self._chunks.find(operator.index(address))
        if chunk is None:
            raise self._invalid_free(address)
        return chunk

    def _invalid_free(self, address: int) -> InvalidFree:
        """The error for an address that this wrapper did not return."""
        if self._chunks.is_start(operator.index(address)):
            return InteriorPointer(address, f"{address:#x} is before the guard words of a chunk in use")
        if self.wrapped.tracks_allocation_sizes():
            try:
                self.wrapped.requested_size(address)
            except InvalidFree as error:
                return error
        return ForeignPointer(address, f"{address:#x} was not allocated by this allocator")
