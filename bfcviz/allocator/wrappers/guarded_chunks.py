"""GuardedChunks: a table of the chunks in use between guard words, by both addresses and by neighbour."""

from bisect import bisect
from threading import RLock

from bfcviz import _forks
from bfcviz.allocator.wrappers.guard_damage import Guarded, Side


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
