"""The parts of simulated allocators: the driver's memory, free blocks, cached segments, the loop over requests."""

from bisect import bisect_left, bisect_right, insort
from typing import Any, NamedTuple

from bfcviz import native

# ------------------------------------------------------------------------------
# DriverMemory: the device memory below a simulated pool, granted in segments up to a limit.

FIRST_SEGMENT = 0x7F0000000000
LAST_SEGMENT = 1 << 60
"""Descending addresses end here."""

SHUFFLED_STEP = 1 << 39
"""Bytes of addresses between two ranges in shuffled order; larger ranges descend."""

ORDER_PRIME = 1048573
"""Multiples of a number modulo this prime are in an order without a pattern."""

ORDER_FACTOR = 812827

SEGMENT_ALIGNMENT = 2 << 20
"""In bytes: the granularity of CUDA's virtual memory."""

SEGMENT_GAP = 1 << 30
"""Bytes of addresses between segments: two segments are never adjacent."""


class DriverCall(NamedTuple):
    """One granted or released segment.

    Attributes:
        address: of its first byte.
        size: bytes granted; below 0: released.
        join: it extends the segment that ends there.
    """

    address: int
    size: int
    join: bool


class DriverMemory:
    """Grants segments of a simulated address space; addresses are never used again.

    Args:
        limit: the most that can be granted at one time, in bytes.

    Attributes:
        limit: the argument; a pool that checks a lower limit itself sets it to the memory of the device.
        reserved: bytes granted now.
        grants, refusals, releases: number of calls.
        order: of new ranges: 0: each lies above those before; -1: below; 1 and more: in an order without a pattern,
            which this number makes. A pool sets it before its first request. Drivers give addresses in an order of
            their own, and allocators choose by address among free blocks of one size.
        ranges: the first address of each range of addresses that was reserved, in order; segments have one each.
        calls: granted and released segments in order; who reads them may clear the list.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.grants = 0
        self.refusals = 0
        self.releases = 0
        self.order = 0
        self.ranges: list[int] = []
        self.calls: list[DriverCall] = []
        self._top = FIRST_SEGMENT
        self._bottom = LAST_SEGMENT

    def reserve(self, num_bytes: int) -> int:
        """Addresses for `num_bytes` without memory."""
        whole = (num_bytes + SEGMENT_ALIGNMENT - 1) // SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT + SEGMENT_GAP
        if self.order > 0 and whole <= SHUFFLED_STEP and len(self.ranges) < ORDER_PRIME:
            place = (len(self.ranges) + 1) * (self.order * ORDER_FACTOR % ORDER_PRIME) % ORDER_PRIME
            address = FIRST_SEGMENT + place * SHUFFLED_STEP
        elif self.order != 0:
            self._bottom -= whole
            address = self._bottom
        else:
            address = self._top
            self._top += whole
        self.ranges.append(address)
        return address

    def grant(self, num_bytes: int) -> int:
        """A new segment; 0 if it would exceed the limit."""
        if not self._fits(num_bytes):
            return 0
        address = self.reserve(num_bytes)
        self._granted(address, num_bytes, False)
        return address

    def map(self, address: int, num_bytes: int) -> bool:
        """Memory for reserved addresses; it extends the memory that ends there. False if it would exceed the limit."""
        if not self._fits(num_bytes):
            return False
        self._granted(address, num_bytes, True)
        return True

    def release(self, address: int, num_bytes: int) -> None:
        """Return a segment, or the memory of mapped addresses."""
        self.releases += 1
        self.reserved -= num_bytes
        self.calls.append(DriverCall(address, -num_bytes, False))

    def _fits(self, num_bytes: int) -> bool:
        fits = num_bytes < native.MAX_REQUEST and self.reserved + num_bytes <= self.limit
        self.refusals += not fits
        return fits

    def _granted(self, address: int, num_bytes: int, join: bool) -> None:
        self.grants += 1
        self.reserved += num_bytes
        self.calls.append(DriverCall(address, num_bytes, join))


# ------------------------------------------------------------------------------
# FreeBlocks: the free blocks of a simulated pool, found by size or by address.

NO_SIZE = 1 << 62
"""In bytes: larger than every block."""


class FreeBlocks:
    """Free blocks that do not overlap; sizes in bytes, addresses above 0.

    Args:
        recent_from: `take_recent` finds blocks of so many bytes and more, in the order of addresses.

    Attributes:
        sizes: size of each block, by its address.
        starts: address of each block, by its end.
        total: bytes of all blocks.
        merged: bytes of the block that the last `merge_around` or `add_merged` made.
    """

    def __init__(self, recent_from: int = NO_SIZE) -> None:
        self.sizes: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.total = 0
        self.merged = 0
        self._distinct: list[int] = []  # the sizes that occur, ascending
        self._by_size: dict[int, list[int]] = {}  # addresses of the blocks of each size, ascending
        self._recent_from = recent_from
        self._recent: set[int] = set()

    def add(self, address: int, size: int) -> None:
        """Add a block that is not there."""
        self.sizes[address] = size
        self.starts[address + size] = address
        self.total += size
        if size >= self._recent_from:
            self._recent.add(address)
        same = self._by_size.get(size)
        if same is None:
            self._by_size[size] = [address]
            insort(self._distinct, size)
        else:
            insort(same, address)

    def remove(self, address: int) -> int:
        """Remove the block at `address`; returns its size."""
        size = self.sizes.pop(address)
        del self.starts[address + size]
        self.total -= size
        if size >= self._recent_from:
            self._recent.discard(address)
        same = self._by_size[size]
        if len(same) == 1:
            del self._by_size[size]
            del self._distinct[bisect_left(self._distinct, size)]
        else:
            del same[bisect_left(same, address)]
        return size

    def best_fit(self, size: int) -> int:
        """The smallest block of at least `size` bytes, of these the one with the lowest address; 0: there is none."""
        at = bisect_left(self._distinct, size)
        if at == len(self._distinct):
            return 0
        return self._by_size[self._distinct[at]][0]

    def shuffled_fit(self, size: int, seed: int) -> int:
        """As `best_fit`, but of several blocks of one size the first in an order of all addresses that a seed makes."""
        at = bisect_left(self._distinct, size)
        if at == len(self._distinct):
            return 0
        factor = seed % ORDER_PRIME * ORDER_FACTOR % ORDER_PRIME + 1
        found, least = 0, NO_SIZE
        for address in self._by_size[self._distinct[at]]:
            rank = address // 512 % ORDER_PRIME * factor % ORDER_PRIME
            if rank < least:
                found, least = address, rank
        return found

    def aligned_fit(self, size: int, alignment: int, descending: bool) -> int:
        """The smallest block with `size` bytes from an aligned address on; of equal ones the first; 0: there is none.

        Args:
            size: in bytes.
            alignment: a power of two, in bytes.
            descending: whether the first one of equal blocks is that with the highest address.
        """
        for at in range(bisect_left(self._distinct, size), len(self._distinct)):
            whole = self._distinct[at]
            same = self._by_size[whole]
            for number in range(len(same)):
                address = same[len(same) - 1 - number if descending else number]
                if (address + alignment - 1) // alignment * alignment + size <= address + whole:
                    return address
        return 0

    def first_fit(self, size: int) -> int:
        """The block of at least `size` bytes with the lowest address; 0: there is none."""
        found = 0
        for at in range(bisect_left(self._distinct, size), len(self._distinct)):
            address = self._by_size[self._distinct[at]][0]
            if found == 0 or address < found:
                found = address
        return found

    def next_larger(self, address: int) -> int:
        """The block after the one at `address` in the order of sizes, then addresses; 0: it is the last."""
        same = self._by_size[self.sizes[address]]
        at = bisect_right(same, address)
        if at < len(same):
            return same[at]
        at = bisect_right(self._distinct, self.sizes[address])
        return self._by_size[self._distinct[at]][0] if at < len(self._distinct) else 0

    def largest(self) -> int:
        """Bytes of the largest block; 0 if there is none."""
        return self._distinct[len(self._distinct) - 1] if self._distinct else 0

    def largest_before(self, end: int) -> int:
        """The most bytes of one block that lie below the address `end`; 0 if there are none."""
        found = 0
        for at in range(len(self._distinct) - 1, -1, -1):
            size = self._distinct[at]
            if size <= found:
                break
            room = end - self._by_size[size][0]
            found = max(found, min(size, room))
        return found

    def take_recent(self) -> list[int]:
        """The blocks of at least `recent_from` bytes that were added since the last call and are still there."""
        found = sorted(self._recent)
        self._recent.clear()
        return found

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the block at `address`."""
        whole = self.remove(address)
        if whole > size:
            self.add(address + size, whole - size)

    def add_merged(self, address: int, size: int) -> int:
        """Add a block, as one with the blocks that touch it; returns its address."""
        address = self.merge_around(address, size)
        self.add(address, self.merged)
        return address

    def merge_around(self, address: int, size: int) -> int:
        """Remove the blocks that touch [address, address + size); returns the address of all together."""
        before = self.starts.get(address)
        if before is not None:
            size += self.remove(before)
            address = before
        if address + size in self.sizes:
            size += self.remove(address + size)
        self.merged = size
        return address


# ------------------------------------------------------------------------------
# SegmentCache: free blocks in segments that are granted and returned as a whole.


class SegmentCache:
    """Free blocks, and which segments are wholly free: a refusal looks at no other block.

    Args:
        free: the free blocks; this changes them.

    Attributes:
        free: the argument.
        segments: bytes of each segment, by its address.
        whole: the addresses of the segments that are wholly free.
    """

    def __init__(self, free: FreeBlocks) -> None:
        self.free = free
        self.segments: dict[int, int] = {}
        self.whole: set[int] = set()
        self._least = NO_SIZE  # bytes of the smallest segment so far: no smaller block can be a whole one

    def add_segment(self, address: int, size: int) -> None:
        """Know a new segment; its memory is not free yet."""
        self.segments[address] = size
        self._least = min(self._least, size)

    def put(self, address: int, size: int) -> int:
        """Add a free block, as one with the blocks that touch it; returns its address."""
        start = self.free.add_merged(address, size)
        merged = self.free.merged
        if merged >= self._least and self.segments.get(start) == merged:
            self.whole.add(start)
        return start

    def take(self, address: int) -> int:
        """Remove the free block at `address`; returns its size."""
        size = self.free.remove(address)
        if size >= self._least:
            self.whole.discard(address)
        return size

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the free block at `address`."""
        whole = self.take(address)
        if whole > size:
            self.free.add(address + size, whole - size)

    def release(self, driver: DriverMemory, address: int) -> int:
        """Return a segment that is wholly free; returns its size."""
        size = self.segments.pop(address)
        self.take(address)
        driver.release(address, size)
        return size

    def release_whole(self, driver: DriverMemory) -> None:
        """Return all segments that are wholly free, in the order of addresses."""
        for address in sorted(self.whole):
            self.release(driver, address)


# ------------------------------------------------------------------------------
# SimulatedPool: the base of simulated allocators, and the loop that serves requests.


class SimulatedPool:
    """An allocator without memory: it decides only which addresses a request gets.

    Args:
        driver: grants the segments.

    Attributes:
        driver: the argument.
        in_use: bytes of the blocks in use, after rounding.
        block_size: bytes of the block that the last call allocated or freed.
    """

    def __init__(self, driver: DriverMemory) -> None:
        self.driver = driver
        self.in_use = 0
        self.block_size = 0
        self._used: dict[int, int] = {}
        self._free_lists: list[FreeBlocks] = []

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of at least `size` bytes (1 or more); 0 if the memory does not suffice."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        raise NotImplementedError

    def largest_free(self) -> int:
        """Bytes of the largest free block that has memory; 0 if there is none.

        Free blocks that touch are two if the pool keeps them so, for one request cannot get both.
        """
        found = 0
        for blocks in self._free_lists:
            largest = blocks.largest()
            found = max(found, largest)
        return found

    def new_free_blocks(self, recent_from: int = 4611686018427387904) -> FreeBlocks:  # NO_SIZE
        """A list of free blocks with memory; a subclass makes each of its own with this, or replaces `largest_free`."""
        blocks = FreeBlocks(recent_from)
        self._free_lists.append(blocks)
        return blocks

    def occupy(self, address: int, size: int) -> None:
        """Count a block as in use; a subclass calls this for each that it allocates."""
        self._used[address] = size
        self.in_use += size
        self.block_size = size

    def vacate(self, address: int) -> int:
        """Count the block at `address` as free; a subclass calls this for each; returns its size."""
        size = self._used.pop(address)
        self.in_use -= size
        self.block_size = size
        return size


def serve_requests(
    pool: SimulatedPool, start: int, stop: int, stop_at_failure: bool, kind: Any, slot: Any, size: Any, stream: Any,
    live: Any, address_out: Any, size_out: Any, in_use_out: Any, reserved_out: Any, largest_free_out: Any,
) -> int:  # fmt: skip
    """Serve requests [start, stop); returns the index after the last one that was served.

    Args:
        pool: serves them.
        start: the first index.
        stop: the index after the last one.
        stop_at_failure: whether to end after the first refused one.
        kind: of `RequestStream`, u1[n].
        size: of `RequestStream`, i8[n].
        stream: of `RequestStream`, u2[n].
        slot: i8[n]; the row of the block in `live`.
        live: i8[m]; the address of each block in use, 0: none.
        address_out: i8[n]; receives the address of each block allocated or freed, 0: none.
        size_out: i8[n]; receives its size after rounding.
        in_use_out: i8[n]; receives the bytes in use after each request.
        reserved_out: i8[n]; receives the bytes of all segments after each request.
        largest_free_out: i8[n]; receives the bytes of the largest free block after each request.
    """
    for i in range(start, stop):
        address = 0
        if kind[i] == 0:  # ALLOCATE
            if size[i] > 0:
                address = pool.allocate(size[i], stream[i])
            live[slot[i]] = address
        elif kind[i] == 1:  # FREE
            address = int(live[slot[i]])
            live[slot[i]] = 0
            if address != 0:
                pool.free(address)
        address_out[i] = address
        size_out[i] = pool.block_size if address != 0 else 0
        in_use_out[i] = pool.in_use
        reserved_out[i] = pool.driver.reserved
        largest_free_out[i] = pool.largest_free()
        if stop_at_failure and address == 0 and kind[i] == 0 and size[i] > 0:
            return i + 1
    return stop
