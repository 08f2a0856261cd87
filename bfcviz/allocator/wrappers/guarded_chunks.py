"""The chunks in use between guard words (GuardedChunks), and the report of overwritten guard words (Damage)."""

from bisect import bisect
from threading import RLock
from typing import Literal, NamedTuple

from bfcviz import _forks

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
