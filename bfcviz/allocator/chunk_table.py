"""ChunkTable: the heap's chunks by handle, and the chunks in use by address.

::

    chunks   handle -> address, size, prev, next, ...      one cache line each
    slots    hash(address) -> handle                       open addressing, linear probing, at most half full

Handles follow TensorFlow: a deleted handle is reused first (last in, first out), else a new one is appended. A reused
handle keeps the `requested` of its last allocation.
"""

from bfcviz import native
from bfcviz.allocator import structs


class ChunkTable:
    """Chunks by handle; every handle from `new` is either used by the heap or deleted."""

    def __init__(self) -> None:
        self.chunks = structs.no_chunks()
        self.slots = structs.no_u32()
        self.room = 0
        self.count = 0
        self.mask = 0
        self.shift = 64
        self.found = 0
        self.unused = native.NONE
        if not self.grow(256):
            raise MemoryError

    def __dealloc__(self) -> None:
        structs.release(self.chunks)
        structs.release(self.slots)

    def reserve(self, more: int) -> bool:
        """Allocate memory for `more` new handles, so that an operation never fails half-way; False if there is none."""
        return self.count + more <= self.room or self.grow(self.room * 2)

    def grow(self, room: int) -> bool:
        """Allocate memory for `room` handles and a table of twice as many slots; False if there is none."""
        chunks = structs.grow_chunks(self.chunks, room)
        if structs.is_null(chunks):
            return False
        self.chunks = chunks
        slots = structs.grow_u32(self.slots, room * 2)
        if structs.is_null(slots):
            return False
        self.slots = slots
        self.room = room
        bits = native.high_bit(room * 2)
        self.shift = 64 - bits
        self.mask = room * 2 - 1
        for i in range(room * 2):
            slots[i] = native.NONE
        for h in range(self.count):
            if chunks[h].allocation_id != 0:
                self.enter(h, chunks[h].address)
        return True

    def new(self) -> int:
        """A handle for a chunk; only `requested` may keep the value of an earlier chunk."""
        h = self.unused
        if h != native.NONE:
            self.unused = self.chunks[h].next
        else:
            h = self.count
            self.count += 1
            self.chunks[h].requested = 0
        self.chunks[h].allocation_id = 0
        self.chunks[h].freed_at = 0
        self.chunks[h].prev = native.NONE
        self.chunks[h].next = native.NONE
        self.chunks[h].binned = 0
        return h

    def delete(self, h: int) -> None:
        """Let a handle be reused."""
        self.chunks[h].allocation_id = 0
        self.chunks[h].binned = 0
        self.chunks[h].size = 0
        self.chunks[h].next = self.unused
        self.unused = h

    def forget(self) -> None:
        """Remove all chunks from the address table: `find` returns NONE from now on."""
        for i in range(self.mask + 1):
            self.slots[i] = native.NONE

    # -- chunks in use, by address ------------------------------------------------------------------------------

    def enter(self, h: int, address: int) -> None:
        """Add h to the address table: `find(address)` returns it."""
        i = native.spread(address, self.shift)
        while self.slots[i] != native.NONE:
            i = (i + 1) & self.mask
        self.slots[i] = h

    def find(self, address: int) -> int:
        """The chunk in use that begins at `address`, or NONE."""
        i = native.spread(address, self.shift)
        while True:
            h = self.slots[i]
            if h == native.NONE or self.chunks[h].address == address:
                self.found = i
                return h
            i = (i + 1) & self.mask

    def leave(self, h: int, address: int) -> None:
        """Remove h from the address table; later entries move up, so no tombstones are left."""
        i = self.found & self.mask  # a free looks the chunk up just before
        if self.slots[i] != h:
            i = native.spread(address, self.shift)
            while self.slots[i] != h:
                i = (i + 1) & self.mask
        j = i
        while True:
            j = (j + 1) & self.mask
            other = self.slots[j]
            if other == native.NONE:
                break
            home = native.spread(self.chunks[other].address, self.shift)
            if ((j - home) & self.mask) >= ((j - i) & self.mask):
                self.slots[i] = other
                i = j
        self.slots[i] = native.NONE
