"""Heap: TensorFlow's best-fit-with-coalescing algorithm; chooses the chunk for each request.

::

    allocate(n)   round n up to 256 -> smallest free chunk that fits -> split it if the rest is worth keeping
                  none fits: extend the pool -> merge held chunks -> release free regions and extend -> fail
    free(p)       mark free -> merge with the next chunk, if free -> and into the previous one, if free

Every address equals the one that tsl::BFCAllocator of TensorFlow 2.21 returns, except where that class hangs,
corrupts itself or aborts (`bfc_allocator.py` has the table). Source: its header and behaviour; the conformance test
proves the rules. `ChunkSpace` changes the tables and writes one event for each change.

Locks: `lock` guards all tables and is held for less than a microsecond. It is released while the sub-allocator runs,
which may take long or need the GIL; meanwhile `growth` keeps all other threads from changing the regions.
"""

from typing import Any

from bfcviz import native
from bfcviz.allocator import heap_memory
from bfcviz.allocator.chunks import ChunkSpace
from bfcviz.allocator.free_signal import FreeSignal
from bfcviz.allocator.page_ages import PageAges
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.events import event_record
from bfcviz.events.log import EventLog

# ------------------------------------------------------------------------------
# Size arithmetic of the algorithm: rounding, growth, back-off and alignment padding, in bytes.


def round_up(num_bytes: int) -> int:
    """Round up to the unit of the heap's chunk sizes, a multiple of 256."""
    return (num_bytes + native.MIN_CHUNK - 1) // native.MIN_CHUNK * native.MIN_CHUNK


def smaller(num_bytes: int) -> int:
    """What the heap requests after a refusal: nine tenths, as in TensorFlow, but always less than before.

    Up to 2,304 bytes nine tenths round up to the same size, and TensorFlow repeats the same request for ever.
    """
    less = round_up(native.nine_tenths(num_bytes))
    return less if less < num_bytes else num_bytes - native.MIN_CHUNK


def double(num_bytes: int) -> int:
    """How the heap's next region grows: twice as much, but at most 2^63: beyond, TensorFlow's loop is endless."""
    return num_bytes if num_bytes >= native.HALF_SPACE else num_bytes * 2


def padding_of(address: int, alignment: int) -> int:
    """Bytes that the heap skips to align a chunk: to a multiple of the alignment, rounded up to one of 256."""
    if alignment <= native.MIN_CHUNK:
        return 0
    padding = native.wrap_64(0 - address) & (alignment - 1)
    return round_up(padding)


# ------------------------------------------------------------------------------
# HeldQueue: freed chunks that may not be merged yet.
#
# With timestamps every free gets a number. Memory freed at number n may be merged, and so allocated in another
# shape, only after the safe frontier has passed n: from then on no work queued on the device uses it.


class HeldQueue:
    """The freed chunks that a heap holds back, in the order of their frees; some may be allocated or merged since."""

    def __init__(self) -> None:
        self.waiting = heap_memory.no_u32()
        self.due = heap_memory.no_u32()
        self.count = 0
        self.room = 0

    def __dealloc__(self) -> None:
        heap_memory.release(self.waiting)
        heap_memory.release(self.due)

    def reserve(self) -> bool:
        """Allocate memory for one more handle; False where there is none."""
        if self.count < self.room:
            return True
        room = self.room * 2 + 64
        waiting = heap_memory.grow_u32(self.waiting, room)
        if heap_memory.is_null(waiting):
            return False
        self.waiting = waiting
        due = heap_memory.grow_u32(self.due, room)
        if heap_memory.is_null(due):
            return False
        self.due = due
        self.room = room
        return True

    def push(self, h: int) -> None:
        """Add h; call `reserve` before."""
        self.waiting[self.count] = h
        self.count += 1

    def select(self, chunks: Any, frontier: int, every: bool) -> int:
        """Move safe chunks (or every chunk) to `due`; returns their count. `freed_at` of safe chunks becomes 0."""
        taken = 0
        kept = 0
        for i in range(self.count):
            h = self.waiting[i]
            c = heap_memory.chunk_at(chunks, h)
            if c.binned == 0:
                continue  # merged, allocated or released since
            if c.freed_at < frontier:
                c.freed_at = 0
            if c.freed_at == 0 or every:
                self.due[taken] = h
                taken += 1
            else:
                self.waiting[kept] = h
                kept += 1
        self.count = kept
        return taken


class Heap:
    """The algorithm, for callers with C types (heap.pxd); `bfc.BFCAllocator` is the public interface.

    `allocate` returns an address, or a number below 256: 0 for an empty request, else the reason of the failure
    (`native.FAILED_...`). `free` returns 0, or the reason why the address is invalid (`native.FREE_...`).
    """

    def __init__(
        self,
        source: SubAllocator,
        limit: int,
        log: EventLog,
        pool: int,
        allow_growth: bool,
        collects: bool,
        max_waste: int,
        timestamps: bool,
        honours_alignment: bool,
        first_region: int,
        exact_growth: bool,
    ) -> None:
        self.space = ChunkSpace(log)
        self.pool = pool
        self.source = source
        self.lock = self.space.log.lock
        self.growth = native.mutex_new()
        self.limit = limit
        first = min(limit, first_region) if allow_growth else limit
        self.first_region = self.next_region = round_up(first)
        self.max_waste = max_waste
        self.collects = collects
        self.exact_growth = exact_growth
        self.honours_alignment = honours_alignment
        self.timestamps = timestamps
        self.timing_count = 0
        self.frontier = 0
        self.held = HeldQueue()
        self.page_ages = PageAges(limit, self.source.discards)
        self.bad_grant = False
        self.rejected_frees = 0
        self.grower = 0
        self.generation = 0
        self.closed = False
        self.frees = FreeSignal()

    def __dealloc__(self) -> None:
        native.mutex_delete(self.growth)

    # -- the two operations -------------------------------------------------------------------------------------

    def allocate(self, requested: int, alignment: int, freed_before: int, label: int, stream: int) -> int:
        """Allocate a chunk; returns its address, or a number below 256 that says why there is none."""
        return self.request(requested, alignment, freed_before, label, stream, True)

    def request(
        self, requested: int, alignment: int, freed_before: int, label: int, stream: int, is_final: bool
    ) -> int:
        """Allocate as `allocate`; where the failure is not final, because the caller gets memory elsewhere, no OOM."""
        if requested == 0:
            return 0
        if requested > native.MAX_REQUEST:
            return native.FAILED_SIZE
        if alignment == 0 or alignment & (alignment - 1) != 0:
            return native.FAILED_ALIGNMENT
        rounded = round_up(requested)
        self.space.log.lock_and_tick(self.pool)
        if not self.has_room():
            native.spin_unlock(self.lock)
            return native.FAILED_TABLES
        h = self.find_now(rounded, alignment, freed_before)
        if h == native.NONE:
            h = self.find_by_growing(rounded, alignment, freed_before)
        if h != native.NONE:
            address = self.serve(h, rounded, requested, alignment, label, stream)
        elif self.closed:
            address = native.FAILED_CLOSED
        else:
            if is_final:
                self.space.log.oom(
                    requested, self.space.pool_bytes - self.space.bytes_in_use, self.space.largest_free(),
                    label, stream, native.bin_of(rounded),
                )  # fmt: skip
            address = native.FAILED_GRANT if self.bad_grant else native.FAILED_MEMORY
            if self.was_forked_while_growing():
                address = native.FAILED_FORKED
        native.spin_unlock(self.lock)
        return address

    def free(self, address: int) -> int:
        """Free the chunk in use at an address; returns 0, or the reason why no chunk in use begins there."""
        self.space.log.lock_and_tick(self.pool)
        if self.timestamps and not self.held.reserve():
            native.spin_unlock(self.lock)
            return native.FREE_TABLES
        h = self.space.table.find(address)
        if h == native.NONE:
            reason = 0 if self.closed else self.space.diagnose(address)  # `release_all` returned its memory
            native.spin_unlock(self.lock)
            return reason
        if self.page_ages.is_on:
            self.page_ages.note(address, self.space.table.chunks[h].size, self.space.bytes_in_use)
        if self.timestamps:
            self.timing_count += 1
            self.space.mark_free(h, self.timing_count)
            self.space.put_in_bin(h)
            self.held.push(h)
        else:
            self.space.mark_free(h, 0)
            self.space.put_in_bin(self.coalesce(h, False))
        due = self.page_ages.due(self.space.bytes_in_use, self.space.log.time) if self.page_ages.is_on else 0
        native.spin_unlock(self.lock)
        if due > 0:
            self.return_pages(due == native.ALL_PAGES)
        if self.frees.waiters > 0:
            self.frees.wake_waiters()
        return 0

    def put_mark(self, label: int, value: int) -> None:
        """Record a mark of the user."""
        self.space.log.lock_and_tick(self.pool)
        self.space.log.mark(label, value)
        native.spin_unlock(self.lock)

    def set_safe_frontier(self, count: int) -> None:
        """Allow merging of chunks freed before this count; it never goes down."""
        native.spin_lock(self.lock)
        if count > self.frontier:
            self.frontier = count
        native.spin_unlock(self.lock)

    def clear_stats(self) -> None:
        """Restart the counts of requests and the peaks."""
        native.spin_lock(self.lock)
        self.space.num_allocs = 0
        self.space.peak_in_use = self.space.bytes_in_use
        self.space.largest_alloc = 0
        native.spin_unlock(self.lock)

    def set_replaying(self, on: bool) -> None:
        """Give events the times of the replayed operations instead of the clock's."""
        native.spin_lock(self.lock)
        self.space.log.replaying = on
        native.spin_unlock(self.lock)

    def release_all(self) -> None:
        """Return every region to the sub-allocator, even those in use. All later requests fail."""
        native.mutex_lock(self.growth)
        native.spin_lock(self.lock)
        self.closed = True
        self.held.count = 0
        self.space.forget_chunks()
        while self.space.regions.count > 0:
            address = self.space.regions.regions[0].address
            size = self.space.regions.regions[0].size
            self.space.regions.remove(0)
            self.return_region(address, size)
        native.spin_unlock(self.lock)
        native.mutex_unlock(self.growth)

    def return_pages(self, any_age: bool) -> int:
        """Return the idle pages of free chunks, or all of them; takes the lock itself. Returns the number of bytes."""
        return self.page_ages.return_pages(self.space, self.source, any_age)

    # -- finding a chunk ----------------------------------------------------------------------------------------

    def find(self, rounded: int, alignment: int, freed_before: int) -> int:
        """The best fit (smallest size, then lowest address) that is aligned and was freed in time; or NONE."""
        h = self.space.bins.at_least(rounded, 0)
        if freed_before == 0 and (alignment <= native.MIN_CHUNK or not self.honours_alignment):
            return h
        while h != native.NONE:
            c = heap_memory.chunk_at(self.space.table.chunks, h)
            if (freed_before == 0 or c.freed_at <= freed_before) and (
                not self.honours_alignment or c.size >= rounded + padding_of(c.address, alignment)
            ):
                return h
            h = self.space.bins.at_least(c.size, c.address + 1)
        return h

    def find_now(self, rounded: int, alignment: int, freed_before: int) -> int:
        """Find an existing chunk; held chunks that became safe are merged first."""
        if self.held.count > 0:
            self.merge_held(0)
        return self.find(rounded, alignment, freed_before)

    def find_by_growing(self, rounded: int, alignment: int, freed_before: int) -> int:
        """Make a chunk: extend the pool, merge held chunks, or replace free regions by a new one."""
        if self.is_growing_here():
            return native.NONE
        native.spin_unlock(self.lock)
        native.mutex_lock(self.growth)
        self.space.log.lock_and_tick(self.pool)
        self.bad_grant = False
        h = native.NONE
        if not self.closed and self.has_room():
            h = self.find_now(rounded, alignment, freed_before)  # another thread may have freed or grown
            if h == native.NONE and self.extend(rounded, alignment):
                h = self.find(rounded, alignment, freed_before)
            if h == native.NONE and freed_before == 0 and self.held.count > 0 and self.merge_held(rounded):
                h = self.find(rounded, alignment, freed_before)
                # Others may have used up the table room while the lock was released.
                if not self.has_room():
                    h = native.NONE
            if h == native.NONE and self.collect(rounded) and self.extend(rounded, alignment):
                h = self.find(rounded, alignment, freed_before)
        native.mutex_unlock(self.growth)
        return h

    def serve(self, h: int, rounded: int, requested: int, alignment: int, label: int, stream: int) -> int:
        """Allocate from the free chunk h, split to size; returns the address."""
        c: heap_memory.Chunk = heap_memory.chunk_at(self.space.table.chunks, h)
        bin = native.bin_of(c.size)
        self.space.take_from_bin(h)
        if self.honours_alignment:
            padding = padding_of(c.address, alignment)
            if padding > 0:
                aligned = self.space.split(h, padding, event_record.PADDING)
                self.space.put_in_bin(h)
                h = aligned
                c = heap_memory.chunk_at(self.space.table.chunks, h)
        if c.size >= rounded * 2 or c.size - rounded >= self.max_waste:
            self.space.put_in_bin(self.space.split(h, rounded, 0))
        self.space.mark_allocated(h, requested, label, stream, bin)
        return c.address

    # -- merging ------------------------------------------------------------------------------------------------

    def mergeable(self, h: int, ignore_held: bool) -> bool:
        """Whether h is free and may be merged now."""
        if h == native.NONE:
            return False
        c: heap_memory.Chunk = heap_memory.chunk_at(self.space.table.chunks, h)
        return c.allocation_id == 0 and (ignore_held or c.freed_at == 0)

    def coalesce(self, h: int, ignore_held: bool) -> int:
        """Merge the free chunk h, in no bin, with its free neighbours; returns the survivor, in no bin."""
        c: heap_memory.Chunk = heap_memory.chunk_at(self.space.table.chunks, h)
        if not ignore_held and c.freed_at > 0:
            return h
        if self.mergeable(c.next, ignore_held):
            self.space.take_from_bin(c.next)
            self.space.merge_next(h)
        if self.mergeable(c.prev, ignore_held):
            p = c.prev
            self.space.take_from_bin(p)
            self.space.merge_next(p)
            return p
        return h

    def merge_held(self, needed: int) -> bool:
        """Merge held chunks that became safe (needed = 0), or any of them until one has `needed` bytes."""
        count = self.held.select(self.space.table.chunks, self.frontier, needed > 0)
        satisfied = needed == 0
        for i in range(count):
            h = self.held.due[i]
            if self.space.table.chunks[h].binned == 0:
                continue  # already merged into another held chunk
            if needed > 0 and satisfied:
                self.held.push(h)
                continue
            self.space.take_from_bin(h)
            merged = self.coalesce(h, needed > 0)
            self.space.put_in_bin(merged)
            c = heap_memory.chunk_at(self.space.table.chunks, merged)
            if needed > 0 and merged != h and c.freed_at > 0:
                self.held.push(merged)
            if needed > 0 and c.size >= needed:
                satisfied = True
        return satisfied

    # -- regions: all methods hold `growth` too -----------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the tables have room for one operation; makes some."""
        if self.space.table.count + 4 <= self.space.table.room and not self.timestamps:
            return True
        return self.make_room()

    def make_room(self) -> bool:
        """Reserve memory in the tables for one operation; False where there is none."""
        return self.space.reserve() and (not self.timestamps or self.held.reserve())

    def request_region(self, alignment: int, num_bytes: int) -> int:
        """Get a region from the sub-allocator, called without the heap's lock; 0 = refused or unusable."""
        self.grower = native.thread_number()
        self.generation = native.generation()
        native.spin_unlock(self.lock)
        address = self.source.grant(alignment, num_bytes)
        self.space.log.lock_and_tick(self.pool)  # other threads had the lock
        self.grower = 0
        if address == 0:
            return 0
        if address < native.MIN_CHUNK or self.space.regions.overlaps(address, self.source.received):
            self.bad_grant = True
            return 0
        if self.source.received < num_bytes or (self.honours_alignment and address % native.MIN_CHUNK != 0):
            self.bad_grant = True
            self.return_region(address, self.source.received)
            return 0
        return address

    def return_region(self, address: int, num_bytes: int) -> None:
        """Return a region to the sub-allocator, called without the heap's lock."""
        if self.was_forked_while_growing():
            return  # the operating system reclaims it when this process ends
        self.grower = native.thread_number()
        self.generation = native.generation()
        native.spin_unlock(self.lock)
        self.source.take_back(address, num_bytes)
        self.space.log.lock_and_tick(self.pool)
        self.grower = 0

    def is_growing_here(self) -> bool:
        """Whether the sub-allocator is running in this thread: waiting for it to return would deadlock."""
        return self.grower != 0 and self.grower == native.thread_number()

    def was_forked_while_growing(self) -> bool:
        """Whether another thread was in the sub-allocator at the fork: the heap cannot grow, its tables are valid."""
        return self.grower != 0 and self.generation != native.generation() and not self.is_growing_here()

    def extend(self, rounded: int, alignment: int) -> bool:
        """Get a region of at least `rounded` bytes, as large as the growth rule and the limit allow."""
        # A sub-allocator may grant more than requested, so the pool may exceed the limit: then this wraps, as in
        # TensorFlow.
        available = native.wrap_64(self.limit - self.space.pool_bytes) // native.MIN_CHUNK * native.MIN_CHUNK
        if rounded > available or self.was_forked_while_growing() or not self.space.regions.reserve():
            return False
        increased = False
        while rounded > self.next_region:
            self.next_region = double(self.next_region)
            increased = True
        num_bytes = self.next_region if self.next_region < available else available
        address = self.request_region(alignment, num_bytes)
        while address == 0:
            if self.bad_grant:
                return False
            less = smaller(num_bytes)
            if less < rounded and self.exact_growth and num_bytes > rounded:
                less = rounded
            num_bytes = less
            if num_bytes < rounded:
                return False
            address = self.request_region(alignment, num_bytes)
        if not increased:
            self.next_region = double(self.next_region)
        if not self.has_room():
            self.bad_grant = True
            return False
        h = self.space.extend(address, self.source.received, rounded, self.source.supports_coalescing)
        self.space.put_in_bin(self.coalesce(h, False))
        return True

    def collect(self, rounded: int) -> bool:
        """Release all wholly free regions, if that makes room for `rounded` bytes."""
        if not self.collects or self.was_forked_while_growing():
            return False
        total = 0
        for i in range(self.space.regions.count):
            if self.space.is_free(i):
                total += self.space.regions.regions[i].size
        if total == 0 or rounded > native.wrap_64(self.limit - self.space.pool_bytes + total):
            return False
        self.release_free_regions()
        return self.has_room()

    def release_free_regions(self) -> None:
        """Release all wholly free regions."""
        i = 0
        while i < self.space.regions.count:
            if not self.space.is_free(i):
                i += 1
                continue
            address = self.space.regions.regions[i].address
            size = self.space.regions.regions[i].size
            self.space.release(i)
            self.return_region(address, size)
