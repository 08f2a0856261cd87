"""GuardedChunks: the chunks in use between guard words, found by either address and by their neighbours."""

from bisect import bisect
from threading import RLock

from bfcviz import _forks
from bfcviz.allocator.wrappers.guard_damage import Guarded, Side


class GuardedChunks:
    """A table of chunks; any thread may use it.

    Attributes:
        extra: bytes of guard words and gaps around all of them.
        lock: while it is held, no other thread removes one, so that the memory of those in the table can be read.
    """

    def __init__(self) -> None:
        self.extra = 0
        self._by_address: dict[int, Guarded] = {}
        self._starts: set[int] = set()
        self.lock = _forks.keep(
            RLock()
        )  # Python may collect garbage inside it, and a tensor among that frees

    def add(self, chunk: Guarded) -> None:
        """It is in use from now on."""
        with self.lock:
            self._by_address[chunk.address] = chunk
            self._starts.add(chunk.start)
            self.extra += chunk.total - chunk.size

    def remove(self, chunk: Guarded) -> bool:
        """It is not in use any more; False where another thread came first."""
        with self.lock:
            if self._by_address.pop(chunk.address, None) is None:
                return False
            self._starts.remove(chunk.start)
            self.extra -= chunk.total - chunk.size
            return True

    def find(self, address: int) -> Guarded | None:
        """The chunk whose owner was given this address."""
        return self._by_address.get(address)

    def is_start(self, address: int) -> bool:
        """Whether the chunk of the allocator inside begins there: an address nobody was given."""
        return address in self._starts

    def all(self) -> list[Guarded]:
        """In order of address."""
        with self.lock:
            return sorted(self._by_address.values())

    def neighbour(self, chunk: Guarded, side: Side) -> Guarded | None:
        """The chunk in use next to it on that side."""
        chunks = self.all()
        index = bisect(chunks, chunk)
        if side == "after":
            return chunks[index] if index < len(chunks) else None
        return chunks[index - 2] if index >= 2 else None
