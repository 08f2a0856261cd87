"""First fit: the lowest free block that is large enough, in one pool that grows at its end.

The textbook rule (Knuth, The Art of Computer Programming, volume 1, 2.5, algorithm A), with immediate coalescing. The
pool is one segment of reserved addresses; memory is mapped to its end in whole granules and is never returned.
"""

from bfcviz.whatif.simulation import DriverMemory, SimulatedPool

FIRST_FIT_UNIT = 256
"""Sizes are rounded up to a multiple of this, in bytes."""


class FirstFitPool(SimulatedPool):
    """One pool that grows at its end.

    Args:
        driver: grants the segments.
        granule: the pool grows by a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, granule: int = 2097152) -> None:
        SimulatedPool.__init__(self, driver)
        self._granule = granule
        self._free = self.new_free_blocks()
        self._end = driver.reserve(1 << 44)

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one pool serves all streams
        """The address of a block; 0 if the memory does not suffice."""
        rounded = (size + FIRST_FIT_UNIT - 1) // FIRST_FIT_UNIT * FIRST_FIT_UNIT
        address = self._free.first_fit(rounded)
        if address == 0:
            address = self._grow(rounded)
            if address == 0:
                return 0
        self._free.take_front(address, rounded)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        self._free.add_merged(address, self.vacate(address))

    def _grow(self, rounded: int) -> int:
        """Map memory until the last block has `rounded` bytes; returns its address, 0 if refused."""
        last = self._free.starts.find(self._end)
        missing = rounded if last == 0 else rounded - (self._end - last)
        more = (missing + self._granule - 1) // self._granule * self._granule
        room = self.driver.limit - self.driver.reserved
        if more > room >= missing:
            more = room // FIRST_FIT_UNIT * FIRST_FIT_UNIT
        if more < missing or not self.driver.map(self._end, more):
            return 0
        address = self._free.add_merged(self._end, more)
        self._end += more
        return address
