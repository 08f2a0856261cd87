"""The heap's chunks: ChunkTable keeps them by handle and address, ChunkSpace changes them; each change is one event."""

from bfcviz import native
from bfcviz.allocator import structs
from bfcviz.allocator.bins import Bins
from bfcviz.allocator.regions import RegionTable
from bfcviz.events import event_record
from bfcviz.events.log import EventLog

# ------------------------------------------------------------------------------
# ChunkTable: the heap's chunks by handle, and the chunks in use by address.
#
# ::
#
#     chunks   handle -> address, size, prev, next, ...      one cache line each
#     slots    hash(address) -> handle                       open addressing, linear probing, at most half full
#
# Handles follow TensorFlow: a deleted handle is reused first (last in, first out), else a new one is appended. A
# reused handle keeps the `requested` of its last allocation.


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


# ------------------------------------------------------------------------------
# ChunkSpace: the heap's chunks and the six changes to them. Each change is one event.
#
# ::
#
#     region 0                                      region 1
#     |AAAAAA|......|BBBBBBBBBBBB|..............|    |CCCC|............|
#      in use  free      in use        free
#
#     extend           add a region as one free chunk      release      remove a wholly free region
#     split            AB........ -> AB|........           merge        ....|........ -> ............
#     mark_allocated   a free chunk becomes in use         mark_free    a chunk in use becomes free
#
# Chunks cover their region without gaps. The heap (heap.py) chooses which chunk to change, and when; this class
# keeps the tables of chunks, free chunks and regions, the totals, and the log, from which a model can follow the
# heap.


class ChunkSpace:
    """Chunks, bins, regions, totals and the log of their changes.

    Every method keeps the tables consistent. Call `reserve` before, so that no method runs out of memory half-way.
    """

    def __init__(self, log: EventLog) -> None:
        self.table = ChunkTable()
        self.bins = Bins()
        self.regions = RegionTable()
        self.log = log
        self.next_id = 1
        self.num_allocs = 0
        self.bytes_in_use = 0
        self.requested_in_use = 0
        self.peak_in_use = 0
        self.largest_alloc = 0
        self.pool_bytes = 0
        self.peak_pool = 0
        self.chunks_in_use = 0

    def reserve(self) -> bool:
        """Allocate memory for the chunks of one operation: a region's, a padding, a remainder; False without memory."""
        if self.table.count + 4 > self.table.room and not self.bins.reserve(self.table.room * 2):
            return False
        return self.table.reserve(4)

    def put_in_bin(self, h: int) -> None:
        """Add the free chunk h to the bins."""
        c = structs.chunk_at(self.table.chunks, h)
        c.binned = 1
        self.bins.insert(h, c.size, c.address)

    def take_from_bin(self, h: int) -> None:
        """Remove h from the bins."""
        self.bins.remove(h)
        self.table.chunks[h].binned = 0

    def split(self, h: int, front: int, flags: int) -> int:
        """Split the free chunk h after `front` bytes; returns the remainder. Neither is in a bin."""
        other = self.table.new()
        c = structs.chunk_at(self.table.chunks, h)
        o = structs.chunk_at(self.table.chunks, other)
        o.address = c.address + front
        o.size = c.size - front
        o.freed_at = c.freed_at
        o.region = c.region
        o.prev = h
        o.next = c.next
        c.size = front
        if c.next != native.NONE:
            self.table.chunks[c.next].prev = other
        c.next = other
        self.log.split(h, c.region, other, o.address, o.size, native.bin_of(o.size), flags)
        return other

    def merge_next(self, h: int) -> None:
        """Merge the free chunk h with the next one; neither is in a bin."""
        c = structs.chunk_at(self.table.chunks, h)
        other = c.next
        o = structs.chunk_at(self.table.chunks, other)
        c.size += o.size
        c.freed_at = o.freed_at if o.freed_at > c.freed_at else c.freed_at
        c.next = o.next
        if o.next != native.NONE:
            self.table.chunks[o.next].prev = h
        self.log.merge(h, c.region, other, o.address, o.size, native.bin_of(c.size))
        self.table.delete(other)

    def mark_allocated(self, h: int, requested: int, label: int, stream: int, bin: int) -> None:
        """Mark the free chunk h, in no bin, as in use."""
        c = structs.chunk_at(self.table.chunks, h)
        c.requested = requested
        c.allocation_id = self.next_id
        c.born = self.log.written & native.LOW_32
        c.label = label
        c.thread = self.log.thread
        c.stream = stream
        self.table.enter(h, c.address)
        self.log.allocate(h, c.region, c.address, c.size, requested, self.next_id, label, stream, bin)
        self.next_id += 1
        self.num_allocs += 1
        self.chunks_in_use += 1
        self.requested_in_use += requested
        self.bytes_in_use += c.size
        if self.bytes_in_use > self.peak_in_use:
            self.peak_in_use = self.bytes_in_use
        if c.size > self.largest_alloc:
            self.largest_alloc = c.size

    def mark_free(self, h: int, freed_at: int) -> None:
        """Mark the chunk h as free, in no bin. `freed_at` > 0 defers its merging."""
        c = structs.chunk_at(self.table.chunks, h)
        self.table.leave(h, c.address)
        c.allocation_id = 0
        c.freed_at = freed_at
        self.bytes_in_use -= c.size
        self.chunks_in_use -= 1
        self.requested_in_use -= c.requested
        self.log.free(
            h, c.region, c.address, c.size, c.requested, c.born, c.label, c.thread, c.stream, native.bin_of(c.size),
            event_record.HELD if freed_at > 0 else 0,
        )  # fmt: skip

    def extend(self, address: int, size: int, requested: int, join: bool) -> int:
        """Add a region; returns its one free chunk, in no bin.

        With `join` it extends the region that ends where it begins, and the chunk follows that region's last chunk.
        """
        h = self.table.new()
        c = structs.chunk_at(self.table.chunks, h)
        c.address = address
        c.size = size
        self.pool_bytes += size
        if self.pool_bytes > self.peak_pool:
            self.peak_pool = self.pool_bytes
        index = self.regions.count_below(address)
        if join and index > 0:
            r = structs.region_at(self.regions.regions, index - 1)
            if r.address + r.size == address:
                r.size += size
                last = r.first
                while self.table.chunks[last].next != native.NONE:
                    last = self.table.chunks[last].next
                self.table.chunks[last].next = h
                c.prev = last
                c.region = r.slot
                self.log.extend(h, r.slot, address, size, requested, native.bin_of(size), event_record.GREW)
                return h
        index = self.regions.insert(address, size, h)
        c.region = self.regions.regions[index].slot
        self.log.extend(h, c.region, address, size, requested, native.bin_of(size), 0)
        return h

    def is_free(self, index: int) -> bool:
        """Whether a region has no chunk in use."""
        h = self.regions.regions[index].first
        while h != native.NONE:
            if self.table.chunks[h].allocation_id != 0:
                return False
            h = self.table.chunks[h].next
        return True

    def diagnose(self, address: int) -> int:
        """Why no chunk in use begins at an address: `native.FREE_FOREIGN`, `FREE_INTERIOR` or `FREE_DOUBLE`."""
        index = self.regions.containing(address)
        if index == self.regions.count:
            return native.FREE_FOREIGN
        h = self.regions.regions[index].first
        c = structs.chunk_at(self.table.chunks, h)
        while address - c.address >= c.size:
            c = structs.chunk_at(self.table.chunks, c.next)
        if c.allocation_id != 0:
            return native.FREE_INTERIOR
        return native.FREE_DOUBLE

    def release(self, index: int) -> None:
        """Remove a wholly free region.

        Held chunks are merged in the log first, so that the region is released as one chunk. Their handles are deleted
        in address order, as in TensorFlow.
        """
        r = structs.region_at(self.regions.regions, index)
        slot = r.slot
        h = r.first
        size = 0
        while h != native.NONE:
            following = self.table.chunks[h].next
            if self.table.chunks[h].binned != 0:
                self.take_from_bin(h)
            if size > 0:
                self.log.merge(
                    r.first, slot, h, self.table.chunks[h].address, self.table.chunks[h].size,
                    native.bin_of(size + self.table.chunks[h].size),
                )  # fmt: skip
            size += self.table.chunks[h].size
            self.table.delete(h)
            h = following
        self.log.release(r.first, slot, r.address, r.size, native.bin_of(r.size))
        self.pool_bytes -= r.size
        self.regions.remove(index)

    def forget_chunks(self) -> None:
        """Remove all chunks, in use or free. The caller returns the regions."""
        self.table.forget()
        self.bins.forget()
        self.bytes_in_use = 0
        self.requested_in_use = 0
        self.chunks_in_use = 0
        self.pool_bytes = 0

    def largest_free(self) -> int:
        """Bytes of the largest free chunk, 0 without one."""
        h = self.bins.largest()
        return 0 if h == native.NONE else self.bins.keys[h].size
