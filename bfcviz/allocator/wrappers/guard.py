"""GuardAllocator: words around every chunk that nobody may write, looked at on free and on demand.

::

    chunk of the allocator inside
    |........|abababab|what was asked for      |cdcdcdcd|......|
    ^ start           ^ address handed out     ^ the very next byte

The gap at the front keeps the alignment. The words on both sides are TensorFlow's (its GPUDebugAllocator's).
"""

import operator
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Final

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.interface.stats import Stats
from bfcviz.allocator.wrappers.memory_access import Access, access_to
from bfcviz.allocator.wrappers.guard_damage import Damage, Guarded, Side
from bfcviz.allocator.wrappers.guarded_chunks import GuardedChunks
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
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

_BEFORE: Final = b"\xab"
_AFTER: Final = b"\xcd"


class GuardAllocator(AllocatorWrapper):
    """Finds who writes outside his chunk: every byte up to `guard_bytes` before and after it is guarded.

    A write of the very value that stands there is not noticed. A chunk with damage is not freed: `free` raises
    until `mend`.

    Args:
        wrapped: the allocator inside.
        guard_bytes: guard words on each side, in bytes or as text.
        access: how memory is read and written; by default as fits the memory (see `access_to`).

    Raises:
        InvalidRequest: no guard words, or memory that cannot be reached.
    """

    def __init__(
        self, wrapped: Allocator, guard_bytes: int | str = 64, *, access: Access | None = None
    ) -> None:
        super().__init__(wrapped)
        self.guard_bytes = parse_bytes(guard_bytes, "guard_bytes")
        if self.guard_bytes < 1:
            raise InvalidRequest(f"{guard_bytes} guard bytes were asked for; give 1 or more")
        self.access = access_to(wrapped) if access is None else access
        self._chunks = GuardedChunks()
        self._numbers = count(1)

    def overhead(self, alignment: int = 256) -> int:
        """Bytes a request grows by."""
        return -(-self.guard_bytes // alignment) * alignment + self.guard_bytes

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Memory for `num_bytes` between guard words."""
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
        """Look at its guard words, and give it back.

        Raises:
            GuardOverrun: they were overwritten; the chunk stays in use.
        """
        if operator.index(address) == 0:
            return
        chunk = self._find(address)
        damages = self._look_at([chunk])
        if damages:
            raise GuardOverrun(damages)
        # Struck out first: once freed, another thread may get the same address.
        if not self._chunks.remove(chunk):
            raise self._wrong(address)
        try:
            self.wrapped.free(chunk.start)
        except BaseException:
            self._chunks.add(chunk)
            raise

    def damages(self) -> list[Damage]:
        """Guard words of chunks in use that were overwritten, in order of address."""
        return self._look_at(self.in_use())

    def check(self) -> None:
        """Look at all guard words now; raises GuardOverrun where some were overwritten."""
        damages = self.damages()
        if damages:
            raise GuardOverrun(damages)

    def mend(self, address: int) -> None:
        """Write a chunk's guard words anew, so that it can be freed."""
        chunk = self._find(address)
        self._write_words(chunk.address, chunk.size)

    def in_use(self) -> list[Guarded]:
        """Every chunk in use, in order of address."""
        return self._chunks.all()

    # -- what it knows ------------------------------------------------------------------------------------------

    def tracks_allocation_sizes(self) -> bool:
        """It does."""
        return True

    def requested_size(self, address: int) -> int:
        """Bytes the caller asked for."""
        chunk = self._find(address)
        if not self._is_there(chunk):
            raise ForeignPointer(address, f"{address:#x} lies in an allocator that is closed")
        return chunk.size

    def allocated_size(self, address: int) -> int:
        """Bytes of the whole chunk, guard words included, as in TensorFlow; so that totals add up."""
        chunk = self._find(address)
        sized = self.wrapped.tracks_allocation_sizes()
        return self.wrapped.allocated_size(chunk.start) if sized else chunk.total

    def allocation_id(self, address: int) -> int:
        """Number of its request, counting successes from 1."""
        chunk = self._find(address)
        sized = self.wrapped.tracks_allocation_sizes()
        return self.wrapped.allocation_id(chunk.start) if sized else chunk.number

    def stats(self) -> Stats:
        """Totals of this moment; guard words count as allocated, not as requested."""
        stats = self.wrapped.stats()
        return replace(
            stats, requested_bytes_in_use=max(stats.requested_bytes_in_use - self._chunks.extra, 0)
        )

    def check_invariants(self) -> None:
        """The books of the allocator inside, and that every chunk here is one of its."""
        super().check_invariants()
        if self.wrapped.tracks_allocation_sizes():
            for chunk in self.in_use():
                self.wrapped.requested_size(chunk.start)

    # -- inside -------------------------------------------------------------------------------------------------

    def _is_served(self, size: int, alignment: int) -> bool:
        """Whether guard words are due; what the allocator inside refuses it shall refuse in its own words."""
        if not 0 < alignment < MAX_REQUEST or (size == 0 and not self.should_allocate_empty()):
            return False
        return 0 <= size <= MAX_REQUEST - self.overhead(alignment)

    def _write_words(self, address: int, size: int) -> None:
        self.access.write(address - self.guard_bytes, _BEFORE * self.guard_bytes)
        self.access.write(address + size, _AFTER * self.guard_bytes)

    def _look_at(self, chunks: Iterable[Guarded]) -> list[Damage]:
        found: list[Damage] = []
        for chunk in chunks:
            found += self._damage(chunk, "before", chunk.address - self.guard_bytes, _BEFORE)
            found += self._damage(chunk, "after", chunk.end, _AFTER)
        return found

    def _damage(self, chunk: Guarded, side: Side, at: int, word: bytes) -> list[Damage]:
        intact = word * self.guard_bytes
        with self._chunks.lock:
            data = self.access.read(at, self.guard_bytes) if self._is_there(chunk) else intact
        if data == intact or self._chunks.find(chunk.address) is not chunk:  # it may just have gone
            return []
        first = len(data) - len(data.lstrip(word))
        last = len(data.rstrip(word))
        neighbour = self._chunks.neighbour(chunk, side)
        return [Damage(chunk, side, at + first, last - first, data[first:last], neighbour)]

    def _is_there(self, chunk: Guarded) -> bool:
        """Whether its memory can be read: it was not freed meanwhile, nor the allocator inside closed."""
        if self._chunks.find(chunk.address) is not chunk:
            return False
        try:
            return not self.wrapped.tracks_allocation_sizes() or self.wrapped.requested_size(chunk.start) > 0
        except InvalidFree:
            return False

    def _find(self, address: int) -> Guarded:
        chunk = self._chunks.find(operator.index(address))
        if chunk is None:
            raise self._wrong(address)
        return chunk

    def _wrong(self, address: int) -> InvalidFree:
        """What is wrong with an address that is no chunk's here."""
        if self._chunks.is_start(operator.index(address)):
            return InteriorPointer(
                address, f"{address:#x} lies in front of the guard words of a chunk in use"
            )
        if self.wrapped.tracks_allocation_sizes():
            try:
                self.wrapped.requested_size(address)
            except InvalidFree as error:
                return error
        return ForeignPointer(address, f"{address:#x} is no address that this allocator handed out")
