"""SegmentCache: free blocks in segments that are granted and returned as a whole."""

from bfcviz.whatif.simulation.driver_memory import DriverMemory
from bfcviz.whatif.simulation.free_blocks import NO_SIZE, FreeBlocks


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
