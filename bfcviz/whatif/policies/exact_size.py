"""Exact-size pool: a free block serves only requests of exactly its rounded size.

The simplest cache over a slow driver, and the bad case for lengths that vary: a block stays unused until its size
comes back. All free blocks are returned before a request fails.
"""

from bfcviz.whatif.simulation.driver_memory import DriverMemory
from bfcviz.whatif.simulation.simulated_pool import SimulatedPool


class ExactSizePool(SimulatedPool):
    """One list of free blocks per stream and size, the last freed first; each block is a segment of its own.

    Args:
        driver: grants the segments.
        unit: sizes are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, unit: int = 512) -> None:
        SimulatedPool.__init__(self, driver)
        self._unit = unit
        self._free: dict[tuple[int, int], list[int]] = {}
        self._streams: dict[int, int] = {}  # of the blocks in use, by address

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block; 0 if the memory does not suffice after all free blocks were returned."""
        rounded = (size + self._unit - 1) // self._unit * self._unit
        key = (stream, rounded)
        same = self._free.get(key)
        if same:
            address = same.pop()
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
        key = (self._streams.pop(address), self.vacate(address))
        same = self._free.get(key)
        if same is None:
            self._free[key] = [address]
        else:
            same.append(address)

    def _release_all(self) -> None:
        for key, same in self._free.items():
            for address in same:
                self.driver.release(address, key[1])
        self._free.clear()
