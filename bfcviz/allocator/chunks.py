"""The tables of a heap, and the changes to them, each of which is one event.

`Bins` finds a free chunk, `RegionTable` has the regions, `ChunkTable` the chunks by handle and address; `ChunkSpace`
holds all three and changes them. The arrays are C structs (`heap_memory`).
"""

from bfcviz import native
from bfcviz.allocator import heap_memory
from bfcviz.events import event_record
from bfcviz.events.log import EventLog

# ------------------------------------------------------------------------------
# Bins: find a free chunk by exact best fit: the smallest size that fits, then the lowest address.
#
# TensorFlow keeps a sorted set for each of 21 bins and walks them upwards; as the bins' sizes ascend, that is one
# order by (size, address) over all free chunks. Here each power of two is a *row* of 32 size steps, each step is a
# small treap, and bit masks find the next non-empty step:
#
# ::
#
#     rows        ...1..1.1        a bit a row: size 256, 512, 1 KiB, ...
#     steps[row]  ..1.....1...     a bit a step: 32 in each row
#     links       root of each tree | left and right child of each handle
#
# Row r holds the chunks of TensorFlow's bin r. TensorFlow's last bin holds all chunks from 256 MiB; here rows continue.


class Bins:
    """Free chunks by handle; the size and address of a handle must not change while it is in the bins."""

    def __init__(self) -> None:
        self.links = heap_memory.no_u32()
        self.keys = heap_memory.no_keys()
        self.room = 0
        self.rows = 0
        self.steps = heap_memory.grow_u32(heap_memory.no_u32(), native.ROWS + 1)  # the last one stays empty
        if heap_memory.is_null(self.steps) or not self.reserve(256):
            raise MemoryError
        self.forget()

    def __dealloc__(self) -> None:
        heap_memory.release(self.links)
        heap_memory.release(self.keys)
        heap_memory.release(self.steps)

    def reserve(self, room: int) -> bool:
        """Allocate memory for handles below `room`; False where there is none."""
        if room <= self.room:
            return True
        links = heap_memory.grow_u32(self.links, native.TREES + 2 * room)
        if heap_memory.is_null(links):
            return False
        self.links = links
        keys = heap_memory.grow_keys(self.keys, room)
        if heap_memory.is_null(keys):
            return False
        self.keys = keys
        self.room = room
        return True

    def forget(self) -> None:
        """Remove all chunks."""
        self.rows = 0
        self.found = 0
        for i in range(native.ROWS + 1):
            self.steps[i] = 0
        for i in range(native.TREES):
            self.links[i] = native.NONE

    def tree_of(self, size: int) -> int:
        """The tree for a size: 32 trees per power of two."""
        if size < native.MIN_CHUNK:
            return 0  # only the end of a region whose size is no multiple of 256
        top = native.high_bit(size)
        return (top - 9) * 32 + (size >> (top - 5))  # the latter is 32 to 63

    def before(self, h: int, size: int, address: int) -> bool:
        """Whether h comes before (size, address)."""
        k: heap_memory.Key = heap_memory.key_at(self.keys, h)
        return k.size < size or (k.size == size and k.address < address)

    def insert(self, h: int, size: int, address: int) -> None:
        """Add a free chunk."""
        self.found = 0
        k = heap_memory.key_at(self.keys, h)
        k.size = size
        k.address = address
        tree = self.tree_of(size)
        self.steps[tree >> 5] |= native.bit_32(tree & 31)
        self.rows |= native.bit_64(tree >> 5)
        if self.links[tree] == native.NONE:  # as most trees are
            self.links[tree] = h
            self.links[native.TREES + 2 * h] = native.NONE
            self.links[native.TREES + 2 * h + 1] = native.NONE
        else:
            self.add_to_tree(tree, h, size, address)

    def add_to_tree(self, tree: int, h: int, size: int, address: int) -> None:
        """Descend to the place of h's priority, then split the subtree there around h."""
        priority = native.scramble(h)
        ref = tree
        node = self.links[ref]
        while node != native.NONE and native.scramble(node) >= priority:
            ref = native.TREES + 2 * node + self.before(node, size, address)
            node = self.links[ref]
        self.links[ref] = h
        left = native.TREES + 2 * h
        right = left + 1
        while node != native.NONE:
            if self.before(node, size, address):
                self.links[left] = node
                left = native.TREES + 2 * node + 1
                node = self.links[left]
            else:
                self.links[right] = node
                right = native.TREES + 2 * node
                node = self.links[right]
        self.links[left] = native.NONE
        self.links[right] = native.NONE

    def remove(self, h: int, size: int, address: int) -> None:
        """Remove a chunk."""
        tree = self.tree_of(size)
        ref = self.found  # 0, unknown, is the root of tree 0
        self.found = 0
        if self.links[ref] != h:
            ref = tree
            if self.links[ref] != h:
                ref = self.link_to(tree, h, size, address)
        left = self.links[native.TREES + 2 * h]
        right = self.links[native.TREES + 2 * h + 1]
        if left == native.NONE:
            self.links[ref] = right
        elif right == native.NONE:
            self.links[ref] = left
        else:
            self.join(ref, left, right)
        if self.links[tree] == native.NONE:
            self.steps[tree >> 5] &= ~native.bit_32(tree & 31)
            self.rows &= ~(native.bit_64(tree >> 5) if self.steps[tree >> 5] == 0 else 0)

    def link_to(self, tree: int, h: int, size: int, address: int) -> int:
        """The link to a chunk of a tree."""
        ref = tree
        node = self.links[ref]
        while node != h:
            ref = native.TREES + 2 * node + self.before(node, size, address)
            node = self.links[ref]
        return ref

    def join(self, ref: int, left: int, right: int) -> None:
        """Join two subtrees at a link; all chunks of the left one come first."""
        while left != native.NONE and right != native.NONE:
            if native.scramble(left) > native.scramble(right):
                self.links[ref] = left
                ref = native.TREES + 2 * left + 1
                left = self.links[ref]
            else:
                self.links[ref] = right
                ref = native.TREES + 2 * right
                right = self.links[ref]
        self.links[ref] = right if left == native.NONE else left

    def at_least(self, size: int, address: int) -> int:
        """The first chunk not before (size, address), or NONE."""
        tree = self.first_tree(self.tree_of(size))
        while tree != native.NONE:
            best = native.NONE
            ref = tree
            node = self.links[ref]
            while node != native.NONE:
                if self.before(node, size, address):
                    ref = native.TREES + 2 * node + 1
                else:
                    best = node
                    self.found = ref
                    ref = native.TREES + 2 * node
                node = self.links[ref]
            if best != native.NONE:
                return best
            tree = self.first_tree(tree + 1)
        return native.NONE

    def first_tree(self, tree: int) -> int:
        """The first non-empty tree from this one on, or NONE."""
        row = tree >> 5
        later = self.steps[row] >> (tree & 31) << (tree & 31)
        if later == 0:
            rows = self.rows & native.above(row)
            if rows == 0:
                return native.NONE
            row = native.low_bit(rows)
            later = self.steps[row]
        return row * 32 + native.low_bit(later)

    def largest(self) -> int:
        """The last chunk in (size, address) order, or NONE."""
        if self.rows == 0:
            return native.NONE
        row = native.high_bit(self.rows)
        node = self.links[row * 32 + native.high_bit(self.steps[row])]
        while self.links[native.TREES + 2 * node + 1] != native.NONE:
            node = self.links[native.TREES + 2 * node + 1]
        return node


# ------------------------------------------------------------------------------
# RegionTable: the regions that the sub-allocator granted, by ascending address.
#
# A region keeps its *slot*, a small number that its events carry, until it is released; then the slot is reused.
# Regions never overlap. The chunks of a region cover it without gaps.


class RegionTable:
    """Regions by index (ascending address)."""

    def __init__(self) -> None:
        self.regions = heap_memory.no_regions()
        self.spare = heap_memory.no_u32()
        self.room = 0
        self.count = 0
        self.spares = 0
        self.slots = 0
        if not self.reserve():
            raise MemoryError

    def __dealloc__(self) -> None:
        heap_memory.release(self.regions)
        heap_memory.release(self.spare)

    def reserve(self) -> bool:
        """Allocate memory for one more region; False where there is none, or where no slot is left."""
        if self.count >= native.MAX_REGIONS:
            return False
        if self.count < self.room:
            return True
        regions = heap_memory.grow_regions(self.regions, self.room * 2 + 16)
        if heap_memory.is_null(regions):
            return False
        self.regions = regions
        spare = heap_memory.grow_u32(self.spare, self.room * 2 + 16)
        if heap_memory.is_null(spare):
            return False
        self.spare = spare
        self.room = self.room * 2 + 16
        return True

    def insert(self, address: int, size: int, first: int) -> int:
        """Add a region; returns its index."""
        i = self.count
        while i > 0 and self.regions[i - 1].address > address:
            i -= 1
        heap_memory.open_gap(self.regions, i, self.count)
        r = heap_memory.region_at(self.regions, i)
        r.address = address
        r.size = size
        r.first = first
        if self.spares > 0:
            self.spares -= 1
            r.slot = self.spare[self.spares]
        else:
            r.slot = self.slots
            self.slots += 1
        self.count += 1
        return i

    def remove(self, index: int) -> None:
        """Remove a region; its slot can be reused."""
        self.spare[self.spares] = self.regions[index].slot
        self.spares += 1
        self.count -= 1
        heap_memory.close_gap(self.regions, index, self.count)

    def count_below(self, address: int) -> int:
        """Number of regions that begin at or below an address."""
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if self.regions[middle].address <= address:
                low = middle + 1
            else:
                high = middle
        return low

    def containing(self, address: int) -> int:
        """Index of the region that contains an address; `count` where there is none."""
        i = self.count_below(address)
        if i > 0:
            r = heap_memory.region_at(self.regions, i - 1)
            if address - r.address < r.size:
                return i - 1
        return self.count

    def overlaps(self, address: int, size: int) -> bool:
        """Whether [address, address + size) overlaps a region, is empty or wraps around 2^64."""
        if size == 0 or native.wrap_64(address + size) < address:
            return True
        i = self.count_below(address)
        if i > 0 and address - self.regions[i - 1].address < self.regions[i - 1].size:
            return True
        return i < self.count and self.regions[i].address - address < size


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
        self.chunks = heap_memory.no_chunks()
        self.slots = heap_memory.no_u32()
        self.room = 0
        self.count = 0
        self.mask = 0
        self.shift = 64
        self.found = 0
        self.unused = native.NONE
        if not self.grow(256):
            raise MemoryError

    def __dealloc__(self) -> None:
        heap_memory.release(self.chunks)
        heap_memory.release(self.slots)

    def reserve(self, more: int) -> bool:
        """Allocate memory for `more` new handles, so that an operation never fails half-way; False if there is none."""
        return self.count + more <= self.room or self.grow(self.room * 2)

    def grow(self, room: int) -> bool:
        """Allocate memory for `room` handles and their slots; False if there is none."""
        # Fewer collisions, whose branches no processor predicts; a larger table would not stay in its cache.
        places = room * 4 if room <= 16_384 else room * 2
        chunks = heap_memory.grow_chunks(self.chunks, room)
        if heap_memory.is_null(chunks):
            return False
        self.chunks = chunks
        slots = heap_memory.grow_u32(self.slots, places)
        if heap_memory.is_null(slots):
            return False
        self.slots = slots
        self.room = room
        self.shift = 64 - native.high_bit(places)
        self.mask = places - 1
        for i in range(places):
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

    def leave(self) -> None:
        """Remove the chunk of the last `find`; later entries move up, so no tombstones are left."""
        i = self.found
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
        c = heap_memory.chunk_at(self.table.chunks, h)
        c.binned = 1
        self.bins.insert(h, c.size, c.address)

    def take_from_bin(self, h: int) -> None:
        """Remove h from the bins."""
        c = heap_memory.chunk_at(self.table.chunks, h)
        c.binned = 0
        self.bins.remove(h, c.size, c.address)

    def split(self, h: int, front: int, flags: int) -> int:
        """Split the free chunk h after `front` bytes; returns the remainder. Neither is in a bin."""
        other = self.table.new()
        c = heap_memory.chunk_at(self.table.chunks, h)
        o = heap_memory.chunk_at(self.table.chunks, other)
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
        c = heap_memory.chunk_at(self.table.chunks, h)
        other = c.next
        o = heap_memory.chunk_at(self.table.chunks, other)
        c.size += o.size
        c.freed_at = o.freed_at if o.freed_at > c.freed_at else c.freed_at
        c.next = o.next
        if o.next != native.NONE:
            self.table.chunks[o.next].prev = h
        self.log.merge(h, c.region, other, o.address, o.size, native.bin_of(c.size))
        self.table.delete(other)

    def mark_allocated(self, h: int, requested: int, label: int, stream: int, bin: int) -> None:
        """Mark the free chunk h, in no bin, as in use."""
        c = heap_memory.chunk_at(self.table.chunks, h)
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
        """Mark the chunk h, of the last `table.find`, as free, in no bin. `freed_at` > 0 defers its merging."""
        c = heap_memory.chunk_at(self.table.chunks, h)
        self.table.leave()
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
        c = heap_memory.chunk_at(self.table.chunks, h)
        c.address = address
        c.size = size
        self.pool_bytes += size
        if self.pool_bytes > self.peak_pool:
            self.peak_pool = self.pool_bytes
        index = self.regions.count_below(address)
        if join and index > 0:
            r = heap_memory.region_at(self.regions.regions, index - 1)
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
        c = heap_memory.chunk_at(self.table.chunks, h)
        while address - c.address >= c.size:
            c = heap_memory.chunk_at(self.table.chunks, c.next)
        if c.allocation_id != 0:
            return native.FREE_INTERIOR
        return native.FREE_DOUBLE

    def release(self, index: int) -> None:
        """Remove a wholly free region.

        Held chunks are merged in the log first, so that the region is released as one chunk. Their handles are deleted
        in address order, as in TensorFlow.
        """
        r = heap_memory.region_at(self.regions.regions, index)
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
