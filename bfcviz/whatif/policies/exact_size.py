"""Exact-size pool: a free block serves only requests of exactly its rounded size.

The simplest cache over a slow driver, and the bad case for lengths that vary: a block stays unused until its size
comes back. All free blocks are returned before a request fails.
"""

from bisect import insort

from bfcviz.whatif.simulation import DriverMemory, SimulatedPool


class ExactSizePool(SimulatedPool):
    """One list of free blocks per stream and size, the last freed first; each block is a segment of its own.

    Args:
        driver: grants the segments.
        unit: sizes are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, unit: int = 512) -> None:
        SimulatedPool.__init__(self, driver)
        self._unit = unit
        self._free: dict[tuple[int, int], list[int]] = {}  # by size and stream
        self._sizes: list[tuple[int, int]] = []  # the keys of the same, ascending
        self._largest = 0
        self._is_largest_known = True
        self._streams: dict[int, int] = {}  # of the blocks in use, by address

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block; 0 if the memory does not suffice after all free blocks were returned."""
        rounded = (size + self._unit - 1) // self._unit * self._unit
        key = (rounded, stream)
        same = self._free.get(key)
        if same:
            address = same.pop()
            if rounded == self._largest:
                self._is_largest_known = False
        else:
            address = self.driver.grant(rounded)
            if address == 0:
                self._release_all()
                address = self.driver.grant(rounded)
            if address == 0:
                return 0
        self._streams[address] = stream
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`: it waits for a request of its size."""
        size = self.vacate(address)
        key = (size, self._streams.pop(address))
        self._largest = max(self._largest, size)
        same = self._free.get(key)
        if same is None:
            self._free[key] = [address]
            insort(self._sizes, key)
        else:
            same.append(address)

    def largest_free(self) -> int:
        """Bytes of the largest free block; 0 if there is none."""
        if not self._is_largest_known:
            while self._sizes and not self._free[self._sizes[len(self._sizes) - 1]]:
                del self._free[self._sizes.pop()]
            self._largest = self._sizes[len(self._sizes) - 1][0] if self._sizes else 0
            self._is_largest_known = True
        return self._largest

    def _release_all(self) -> None:
        for key, same in self._free.items():
            for address in same:
                self.driver.release(address, key[0])
        self._free.clear()
        self._sizes.clear()
        self._largest = 0
        self._is_largest_known = True
