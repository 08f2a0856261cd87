"""PageAges: which pages of free memory can go back to the operating system, and when.

::

    block   256 KiB of addresses, at a multiple of 256 KiB
    age     0 = clean (never used, or given back), else the period in which memory of the block was last freed

Only blocks that lie in free chunks of 1 MiB and more are given back; chunks and addresses stay as they are. Two rules,
both looked at when memory is freed:

- *Idle*: every second a new period begins, and blocks go that nothing used during the whole of the last one.
- *Much at once*: when bytes in use have fallen by more than `keep` since the last return, all free blocks go. Where
  memory was in use again within a second of a return, `keep` doubles instead, up to `most`: a training step must not
  pay for new pages each time.

Periods go 1, 2, ... 255, 1. Blocks 128 GiB apart share an age, that of the one used last; a wrong age costs a page
fault or keeps a page longer, never data, for only free memory is given back.
"""

from bfcviz import native
from bfcviz.allocator import structs
from bfcviz.allocator.chunk_space import Space
from bfcviz.allocator.sub_allocators.base import SubAllocator


class PageAges:
    """One age a block. All methods but `return_pages` need the heap's lock.

    Args:
        limit: of the heap, in bytes.
        wanted: whether the sub-allocator takes pages back; if not there are no ages, and `is_on` is False.
    """

    def __init__(self, limit: int, wanted: bool) -> None:
        self.ages = structs.new_u8(native.PAGE_BLOCKS) if wanted else structs.no_u8()
        self.is_on = wanted and not structs.is_null(self.ages)
        self.period = 1
        self.keep = native.KEEP_PAGES
        self.most = max(min(limit // 4, native.KEEP_MOST), native.KEEP_PAGES)
        self.low = 0
        self.high = 0
        self.returned_at = native.LONG_AGO
        self.next_pass = 0
        self.stopped_at = 0

    def __dealloc__(self) -> None:
        structs.release(self.ages)

    def note(self, address: int, size: int, in_use: int) -> None:
        """Memory is about to be freed, with `in_use` bytes of the heap in use: its blocks are of this period."""
        if not self.is_on:
            return
        if in_use > self.high:
            self.high = in_use
        first = address // native.PAGE_BLOCK
        last = (address + size - 1) // native.PAGE_BLOCK
        if last - first >= native.PAGE_BLOCKS:
            last = first + native.PAGE_BLOCKS - 1
        for block in range(first, last + 1):
            self.ages[block % native.PAGE_BLOCKS] = self.period

    def due(self, in_use: int, now: int) -> int:
        """What `return_pages` is to give back after a free at `now` (ns): 0, `native.IDLE_PAGES` or `ALL_PAGES`."""
        if not self.is_on:
            return 0
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
        """Whether a block has pages to give back: used before and not for a whole period, or with `any_age` at all."""
        age = self.ages[block % native.PAGE_BLOCKS]
        if age == 0:
            return False
        return any_age or (age != self.period and age % 255 + 1 != self.period)

    def discard(self, source: SubAllocator, first: int, end: int, any_age: bool) -> int:
        """Give back the next idle blocks of the free blocks [first, end), 4 MiB at most; returns how many bytes.

        `stopped_at` is where to go on. One call is short, for the heap's lock is held meanwhile.
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

    def return_pages(self, space: Space, source: SubAllocator, any_age: bool) -> int:
        """Give back all idle blocks; returns how many bytes. Without the lock, which it takes for each few blocks."""
        returned = 0
        size = native.PAGES_FROM
        address = 0
        block = 0
        native.spin_lock(space.log.lock)
        while self.is_on:
            h = space.bins.at_least(size, address)  # the next chunk, whatever has changed since the last
            if h == native.NONE:
                break
            c = structs.chunk_at(space.table.chunks, h)
            if c.size != size or c.address != address:
                size = c.size
                address = c.address
                block = (address + native.PAGE_BLOCK - 1) // native.PAGE_BLOCK
            end = (address + size) // native.PAGE_BLOCK
            if c.freed_at == 0 and block < end:  # a chunk held back may still be in use by a stream
                returned += self.discard(source, block, end, any_age)
                block = self.stopped_at
            if c.freed_at != 0 or block >= end:
                address += 1
            native.spin_unlock(space.log.lock)
            native.spin_lock(space.log.lock)
        native.spin_unlock(space.log.lock)
        return returned
