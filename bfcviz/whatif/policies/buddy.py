"""Binary buddies: blocks of powers of two; a block is split into halves, and two free halves of a block merge.

Source: Knuth, The Art of Computer Programming, volume 1, 2.5, algorithms R and S; of the blocks of the smallest size
that suffices, the one with the lowest address is taken. In one arena, memory is mapped to its end in whole granules
and is never returned; an arena of its own is granted at once. The arena is as large as the power of two above the
limit, and a block beyond the limit is not taken. A recorded trace merges all free neighbours, buddies or not.
"""

from bisect import bisect_right

from bfcviz.whatif.simulation import DriverMemory, FreeBlocks, SimulatedPool


class BuddyPool(SimulatedPool):
    """One arena, or many.

    Args:
        driver: grants the arenas.
        min_block: the smallest block, in bytes; rounded up to a power of two.
        arena: bytes of each arena, rounded up to a power of two; a larger request gets a larger one, and the last one
            under the limit may be smaller. 0: one arena for all, which grows.
        granule: the one arena grows by a multiple of this, in bytes.
    """

    def __init__(
        self, driver: DriverMemory, min_block: int = 256, arena: int = 0, granule: int = 2097152
    ) -> None:
        SimulatedPool.__init__(self, driver)
        self._min_block = self._power(min_block)
        self._arena = 0
        self._granule = granule
        self._holes = FreeBlocks()
        self._bases: list[int] = []  # of the arenas, ascending
        self._sizes: dict[int, int] = {}  # of the arenas, by base
        self._end = 0
        self._stop = 1 << 62
        self._largest = 0
        self._is_largest_known = True
        if arena > 0:
            self._arena = self._power(arena)
        else:
            whole = self._power(driver.limit)
            base = driver.reserve(whole)
            self._add_arena(base, whole)
            self._end = base
            self._stop = base + driver.limit

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one pool serves all streams
        """The address of a block; 0 if the memory does not suffice."""
        rounded = self._power(size if size > self._min_block else self._min_block)
        address = self._hole(rounded)
        if address == 0 or (self._arena == 0 and not self._map_to(address + rounded)):
            return 0
        whole = self._holes.remove(address)
        if whole >= self._largest:
            self._is_largest_known = False
        while whole > rounded:
            whole //= 2
            self._holes.add(address + whole, whole)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        size = self.vacate(address)
        base = self._bases[bisect_right(self._bases, address) - 1]
        whole = self._sizes[base]
        while size < whole:
            buddy = base + ((address - base) ^ size)
            if self._holes.sizes.find(buddy) != size:
                break
            self._holes.remove(buddy)
            if buddy < address:
                address = buddy
            size *= 2
        self._holes.add(address, size)
        mapped = min(size, self._end - address) if self._arena == 0 else size
        self._largest = max(self._largest, mapped)

    def largest_free(self) -> int:
        """Bytes of the largest hole, without what is not mapped; holes that touch and are no buddies are two."""
        if not self._is_largest_known:
            holes = self._holes
            self._largest = holes.largest_before(self._end) if self._arena == 0 else holes.largest()
            self._is_largest_known = True
        return self._largest

    def _power(self, size: int) -> int:
        """The power of two that is `size` or the next above."""
        power = 1
        while power < size:
            power *= 2
        return power

    def _hole(self, rounded: int) -> int:
        """The block to take or to split; 0: the memory does not suffice."""
        size = rounded
        while size <= 1 << 61:
            address = self._holes.best_fit(size)
            if address == 0:
                break
            if address + rounded <= self._stop:
                return address
            size = self._holes.sizes.find(address) * 2
        return 0 if self._arena == 0 else self._new_arena(rounded)

    def _new_arena(self, rounded: int) -> int:
        """An arena for a block of this size; 0: refused."""
        size = rounded if rounded > self._arena else self._arena
        address = self.driver.grant(size)
        while address == 0 and size > rounded:
            size //= 2
            address = self.driver.grant(size)
        if address != 0:
            self._add_arena(address, size)
        return address

    def _add_arena(self, base: int, size: int) -> None:
        """Add an arena; addresses of later ones are higher."""
        self._bases.append(base)
        self._sizes[base] = size
        self._holes.add(base, size)

    def _map_to(self, end: int) -> bool:
        """Map memory up to an address."""
        if end <= self._end:
            return True
        more = (end - self._end + self._granule - 1) // self._granule * self._granule
        room = self.driver.limit - self.driver.reserved
        if more > room:
            more = room
        if more < end - self._end or not self.driver.map(self._end, more):
            return False
        self._end += more
        self._is_largest_known = False
        return True
