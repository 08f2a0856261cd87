"""Exact-size pool: a free block serves only requests of exactly its rounded size.

The simplest cache over a slow driver, and the bad case for lengths that vary: a block stays unused until its size
comes back. All free blocks are returned before a request fails.
"""

from heapq import heappop, heappush

from bfcviz.whatif.simulation import AddressTable, DriverMemory, SimulatedPool

STREAM_BITS = 16
"""Of a key: the size, then the stream."""
MOST_BYTES = 1 << 46
"""Of a block, 64 TiB: a key has 63 bits. No device has as much."""


class ExactSizePool(SimulatedPool):
    """One list of free blocks per stream and size, the last freed first; each block is a segment of its own.

    Args:
        driver: grants the segments.
        unit: sizes are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, unit: int = 512) -> None:
        SimulatedPool.__init__(self, driver)
        self._unit = unit
        self._last_freed = AddressTable()  # of the free blocks of each key, the address of the last freed one
        self._freed_before = AddressTable()  # the address of the free block of the same key freed before each
        self._keys: list[
            int
        ] = []  # a heap, the largest first: each key that has a block, and some that had one
        self._heaped = AddressTable()  # the keys in it
        self._streams = AddressTable()  # of the blocks in use, by address, plus 1

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block; 0 if the memory does not suffice after all free blocks were returned."""
        rounded = (size + self._unit - 1) // self._unit * self._unit
        if rounded > MOST_BYTES:
            return 0
        key = (rounded << STREAM_BITS) + stream
        address = self._last_freed.find(key)
        if address:
            self._take(key, address)
        else:
            address = self.driver.grant(rounded)
            if address == 0:
                self._release_all()
                address = self.driver.grant(rounded)
            if address == 0:
                return 0
        self._streams.put(address, stream + 1)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`: it waits for a request of its size."""
        key = (self.vacate(address) << STREAM_BITS) + self._streams.take(address) - 1
        before = self._last_freed.find(key)
        if before:
            self._freed_before.put(address, before)
        elif self._heaped.find(key) == 0:
            self._heaped.put(key, 1)
            heappush(self._keys, -key)
        self._last_freed.put(key, address)

    def largest_free(self) -> int:
        """Bytes of the largest free block; 0 if there is none."""
        while self._keys:
            key = -self._keys[0]
            if self._last_freed.find(key):
                return key >> STREAM_BITS
            heappop(self._keys)
            self._heaped.take(key)
        return 0

    def _take(self, key: int, address: int) -> None:
        """Remove the free block of a key that was freed last."""
        before = self._freed_before.take(address)
        if before:
            self._last_freed.put(key, before)
        else:
            self._last_freed.take(key)

    def _release_all(self) -> None:
        for key in self._last_freed.addresses():
            address = self._last_freed.find(key)
            while address:
                self.driver.release(address, key >> STREAM_BITS)
                address = self._freed_before.take(address)
        self._last_freed = AddressTable()
        self._heaped = AddressTable()
        self._keys = []
