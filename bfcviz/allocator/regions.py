"""RegionTable: the regions that the sub-allocator granted, by ascending address.

A region keeps its *slot*, a small number that its events carry, until it is released; then the slot is reused.
Regions never overlap. The chunks of a region cover it without gaps.
"""

from bfcviz import native
from bfcviz.allocator import structs


class RegionTable:
    """Regions by index (ascending address)."""

    def __init__(self) -> None:
        self.regions = structs.no_regions()
        self.spare = structs.no_u32()
        self.room = 0
        self.count = 0
        self.spares = 0
        self.slots = 0
        if not self.reserve():
            raise MemoryError

    def __dealloc__(self) -> None:
        structs.release(self.regions)
        structs.release(self.spare)

    def reserve(self) -> bool:
        """Allocate memory for one more region; False where there is none, or where no slot is left."""
        if self.count >= native.MAX_REGIONS:
            return False
        if self.count < self.room:
            return True
        regions = structs.grow_regions(self.regions, self.room * 2 + 16)
        if structs.is_null(regions):
            return False
        self.regions = regions
        spare = structs.grow_u32(self.spare, self.room * 2 + 16)
        if structs.is_null(spare):
            return False
        self.spare = spare
        self.room = self.room * 2 + 16
        return True

    def insert(self, address: int, size: int, first: int) -> int:
        """Add a region; returns its index."""
        i = self.count
        while i > 0 and self.regions[i - 1].address > address:
            i -= 1
        structs.open_gap(self.regions, i, self.count)
        r = structs.region_at(self.regions, i)
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
        structs.close_gap(self.regions, index, self.count)

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
            r = structs.region_at(self.regions, i - 1)
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
