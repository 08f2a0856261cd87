"""PageAges: decides which pages of free memory to return to the operating system, and when.

::

    block   256 KiB of addresses, at a multiple of 256 KiB
    age     0 = clean (never used, or returned), else the period in which memory of the block was last freed

Only blocks within free chunks of 1 MiB and more are returned; chunks and addresses do not change. A free applies two
rules:

- *Idle*: every second a new period begins, and blocks are returned that were not used during the whole last period.
- *Large drop*: when bytes in use have fallen by more than `keep` since the last return, all free blocks are returned.
  If memory was in use again within a second of a return, `keep` doubles instead, up to `most`: a training step must not
  pay for new pages each time.

Periods count 1, 2, ... 255, 1. Blocks 128 GiB apart share an age, that of the block used last. A wrong age costs a page
fault or keeps a page longer, but never loses data, because only free memory is returned.
"""

from bfcviz import native
from bfcviz.allocator import heap_memory
from bfcviz.allocator.chunks import ChunkSpace
from bfcviz.allocator.sub_allocators import SubAllocator


class PageAges:
    """One age a block. All methods but `return_pages` need the heap's lock; `note` and `due` need ages.

    Args:
        limit: of the heap, in bytes.
        wanted: whether the sub-allocator can discard pages; if not, there are no ages, and `is_on` is False.
    """

    def __init__(self, limit: int, wanted: bool) -> None:
        self.ages = heap_memory.new_u8(native.PAGE_BLOCKS) if wanted else heap_memory.no_u8()
        self.is_on = wanted and not heap_memory.is_null(self.ages)
        self.period = 1
        self.keep = native.KEEP_PAGES
        self.most = max(min(limit // 4, native.KEEP_MOST), native.KEEP_PAGES)
        self.low = 0
        self.high = 0
        self.returned_at = native.LONG_AGO
        self.next_pass = 0
        self.stopped_at = 0

    def __dealloc__(self) -> None:
        heap_memory.release(self.ages)

    def note(self, address: int, size: int, in_use: int) -> None:
        """Set the age of the blocks of memory that is about to be freed; `in_use` bytes of the heap are in use."""
        if in_use > self.high:
            self.high = in_use
        first = address // native.PAGE_BLOCK
        last = (address + size - 1) // native.PAGE_BLOCK
        if last - first >= native.PAGE_BLOCKS:
            last = first + native.PAGE_BLOCKS - 1
        for block in range(first, last + 1):
            self.ages[block % native.PAGE_BLOCKS] = self.period

    def due(self, in_use: int, now: int) -> int:
        """Which pages to return after a free at `now` (ns): 0 for none, `native.IDLE_PAGES` or `ALL_PAGES`."""
        if self.high - in_use > self.keep:
            if now - self.returned_at < native.SECOND and self.high - self.low > self.keep // 2:
                while self.high - in_use > self.keep and self.keep < self.most:
                    self.keep *= 2
                if self.high - in_use <= self.keep:
                    return 0
            self.low = in_use
            self.high = in_use
            self.returned_at = now
            return native.ALL_PAGES
        if now < self.next_pass:
            return 0
        self.next_pass = now + native.SECOND
        if now - self.returned_at > 60 * native.SECOND:
            self.keep = native.KEEP_PAGES
        self.begin_period()
        return native.IDLE_PAGES

    def begin_period(self) -> None:
        """Begin a new period."""
        self.period = self.period % 255 + 1

    def is_idle(self, block: int, any_age: bool) -> bool:
        """Whether a block has pages to return: used, but not for a whole period; with `any_age` used at any time."""
        age = self.ages[block % native.PAGE_BLOCKS]
        if age == 0:
            return False
        return any_age or (age != self.period and age % 255 + 1 != self.period)

    def discard(self, source: SubAllocator, first: int, end: int, any_age: bool) -> int:
        """Return the next idle blocks of the free blocks [first, end), at most 4 MiB; returns the number of bytes.

        `stopped_at` is where to continue. One call is short, because the heap's lock is held.
        """
        begin = first
        while begin < end and begin - first < native.PAGE_LOOKS and not self.is_idle(begin, any_age):
            begin += 1
        last = begin
        while last < end and last - begin < native.PAGE_SLICE and self.is_idle(last, any_age):
            self.ages[last % native.PAGE_BLOCKS] = 0
            last += 1
        self.stopped_at = last
        if last > begin:
            source.discard(begin * native.PAGE_BLOCK, (last - begin) * native.PAGE_BLOCK)
        return (last - begin) * native.PAGE_BLOCK

    def return_pages(self, space: ChunkSpace, source: SubAllocator, any_age: bool) -> int:
        """Return all idle blocks; returns the number of bytes. Takes the lock itself, for a few blocks at a time."""
        returned = 0
        size = native.PAGES_FROM
        address = 0
        block = 0
        native.spin_lock(space.log.lock)
        while self.is_on:
            h = space.bins.at_least(size, address)  # the next chunk, even if others changed meanwhile
            if h == native.NONE:
                break
            c = heap_memory.chunk_at(space.table.chunks, h)
            if c.size != size or c.address != address:
                size = c.size
                address = c.address
                block = (address + native.PAGE_BLOCK - 1) // native.PAGE_BLOCK
            end = (address + size) // native.PAGE_BLOCK
            if c.freed_at == 0 and block < end:  # a stream may still use a held chunk
                returned += self.discard(source, block, end, any_age)
                block = self.stopped_at
            if c.freed_at != 0 or block >= end:
                address += 1
            native.spin_unlock(space.log.lock)
            native.spin_lock(space.log.lock)
        native.spin_unlock(space.log.lock)
        return returned
