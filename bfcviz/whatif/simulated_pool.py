"""SimulatedPool: the base of all simulated allocators, its cache of segments, and the loop over requests."""

from typing import Any

from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.free_blocks import NO_SIZE, AddressTable, FreeBlocks


class SegmentCache:
    """Free blocks of a simulated pool, and which segments are wholly free: a refusal looks at no other block.

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
        """Know a new segment of the simulated pool; its memory is not free yet."""
        self.segments[address] = size
        self._least = min(self._least, size)

    def put(self, address: int, size: int) -> int:
        """Add a free block to a simulated pool's cache, as one with the blocks that touch it; returns its address."""
        start = self.free.add_merged(address, size)
        merged = self.free.merged
        if merged >= self._least and self.segments.get(start) == merged:
            self.whole.add(start)
        return start

    def take(self, address: int) -> int:
        """Remove the free block at `address` from a simulated pool's cache; returns its size."""
        size = self.free.remove(address)
        if size >= self._least:
            self.whole.discard(address)
        return size

    def take_front(self, address: int, size: int) -> None:
        """Remove the first `size` bytes of the free block at `address` of a simulated pool."""
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


class SimulatedPool:
    """The base of simulated allocators, without memory: it decides only which addresses a request gets.

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
        self._used = AddressTable()  # sizes of the blocks in use
        self._free_lists: list[FreeBlocks] = []

    def allocate(self, size: int, stream: int) -> int:
        """The address of a simulated block of at least `size` bytes (1 or more); 0 if the memory does not suffice."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free the simulated pool's block at `address`."""
        raise NotImplementedError

    def largest_free(self) -> int:
        """Bytes of the simulated pool's largest free block that has memory; 0 if there is none.

        Free blocks that touch are two if the pool keeps them so, for one request cannot get both.
        """
        found = 0
        for blocks in self._free_lists:
            largest = blocks.largest()
            found = max(found, largest)
        return found

    def new_free_blocks(self, recent_from: int = 4611686018427387904) -> FreeBlocks:  # NO_SIZE
        """A simulated pool's free blocks with memory; subclasses make all of theirs so, or replace `largest_free`."""
        blocks = FreeBlocks(recent_from)
        self._free_lists.append(blocks)
        return blocks

    def occupy(self, address: int, size: int) -> None:
        """Count a block of the simulated pool as in use; a subclass calls this for each that it allocates."""
        self._used.put(address, size)
        self.in_use += size
        self.block_size = size

    def vacate(self, address: int) -> int:
        """Count the simulated pool's block at `address` as free; a subclass calls this for each; returns its size."""
        size = self._used.take(address)
        self.in_use -= size
        self.block_size = size
        return size


def serve_requests(
    pool: SimulatedPool, start: int, stop: int, stop_at_failure: bool, kind: Any, slot: Any, size: Any, stream: Any,
    live: Any, address_out: Any, size_out: Any, in_use_out: Any, reserved_out: Any, largest_free_out: Any,
) -> int:  # fmt: skip
    """Serve requests [start, stop) by a simulated pool; returns the index after the last one that was served.

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
