"""ExpandableRange: PyTorch's expandable segments, which grow in place and unmap free pages.

Source of the rules: c10/cuda/CUDACachingAllocator.cpp of PyTorch at commit 001074d25084: `find_expandable_block`,
`map_block`, `unmap_block`, and the part of `get_free_block` about growth. PyTorch reserves 9/8 of the device's memory
for a segment, and makes another one if that does not suffice; this range has room for all.
"""

from bfcviz.whatif.simulation.driver_memory import DriverMemory
from bfcviz.whatif.simulation.free_blocks import FreeBlocks

EXPANDABLE_BYTES = 1 << 44


class ExpandableRange:
    """Reserved addresses; memory is mapped to them in whole granules.

    ::

        [ in use | free | in use | unmapped | in use | free | unmapped ... ]

    Args:
        driver: maps the memory.
        free: the mapped free blocks, recent from one granule on; this changes them.
        granule: bytes that are mapped and unmapped as one.
    """

    def __init__(self, driver: DriverMemory, free: FreeBlocks, granule: int) -> None:
        self._driver = driver
        self._free = free
        self._granule = granule
        size = EXPANDABLE_BYTES // granule * granule
        self._base = driver.reserve(size)
        self._unmapped = FreeBlocks()
        self._unmapped.add(self._base, size)

    def least_growing(self, address: int) -> int:
        """The block at `address`; if it can grow, a larger one that cannot grow as far."""
        while address + self._free.sizes[address] in self._unmapped.sizes:
            larger = self._free.next_larger(address)
            if larger == 0 or self._could_become(larger) >= self._could_become(address):
                break
            address = larger
        return address

    def grow(self, size: int) -> int:
        """Map memory at the lowest place for a block of at least `size` bytes; returns its address, 0 if refused."""
        address = self._lowest_place(size)
        if address in self._unmapped.sizes:
            address = self._map(address, min(self._unmapped.sizes[address], size))
        while address and self._free.sizes[address] < size:
            there = self._free.sizes[address]
            end = address + there
            address = self._map(end, min(self._unmapped.sizes[end], size - there))
        return address

    def unmap_free(self) -> None:
        """Unmap each granule that is wholly free: only blocks that were added since the last call can have one."""
        for address in self._free.take_recent():
            size = self._free.sizes[address]
            low = self._base + (address - self._base + self._granule - 1) // self._granule * self._granule
            high = self._base + (address + size - self._base) // self._granule * self._granule
            if low < high:
                self._unmap(address, size, low, high)

    def _could_become(self, address: int) -> int:
        size = self._free.sizes[address]
        return size + self._unmapped.sizes.get(address + size, 0)

    def _lowest_place(self, size: int) -> int:
        """The lowest start of free and unmapped memory of at least `size` bytes together."""
        for place in sorted(self._unmapped.sizes):
            start = self._free.starts.get(place, place)
            end = start
            while end - start < size:
                more = self._free.sizes.get(end, 0) or self._unmapped.sizes.get(end, 0)
                if more == 0:
                    break
                end += more
            if end - start >= size:
                return start
        return 0

    def _map(self, address: int, size: int) -> int:
        """Map at least `size` bytes; returns the address of the free block that has them, 0 if refused."""
        size = (size + self._granule - 1) // self._granule * self._granule
        if not self._driver.map(address, size):
            return 0
        self._unmapped.take_front(address, size)
        return self._free.add_merged(address, size)

    def _unmap(self, address: int, size: int, low: int, high: int) -> None:
        """Unmap [low, high) of the free block [address, address + size)."""
        self._free.remove(address)
        if address < low:
            self._free.add(address, low - address)
        if high < address + size:
            self._free.add(high, address + size - high)
        self._driver.release(low, high - low)
        self._unmapped.add_merged(low, high - low)
