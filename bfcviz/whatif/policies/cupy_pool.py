"""CuPy's memory pool: the smallest cached chunk of the same stream, split to the exact size.

Source of the rules: cupy/cuda/memory.pyx of CuPy at commit 005d7598ad30, and of 14.2: `SingleDeviceMemoryPool`,
`_Arena`. Of several free chunks of one size CuPy 14.2 takes the one whose Python object lies lowest; older ones
take any item of a set. The limit is that of the device: CuPy returns cached chunks before it fails. So does CuPy 14.2
under a limit of its own (`set_limit`); older ones fail at once.
"""

from bfcviz.formats.cupy import UNIT as CUPY_UNIT
from bfcviz.whatif.simulation import DriverMemory, SegmentCache, SimulatedPool


class CupyPool(SimulatedPool):
    """CuPy's pool of one device: each segment has the rounded size of the request that it was granted for.

    Args:
        driver: grants the segments.
        ties: which of free chunks of one size serves a request: 0: that with the lowest address; else the first in an
            order of all chunks that this seed makes.
    """

    def __init__(self, driver: DriverMemory, *, ties: int = 0) -> None:
        SimulatedPool.__init__(self, driver)
        self._ties = ties
        self._arenas: dict[int, SegmentCache] = {}
        self._owners: dict[int, SegmentCache] = {}

    def allocate(self, size: int, stream: int) -> int:
        """The address of a chunk; 0 if the memory does not suffice after all whole segments were returned."""
        rounded = (size + CUPY_UNIT - 1) // CUPY_UNIT * CUPY_UNIT
        arena = self._arenas.get(stream)
        if arena is None:
            arena = self._arenas[stream] = SegmentCache(self.new_free_blocks())
        free = arena.free
        address = free.shuffled_fit(rounded, self._ties) if self._ties else free.best_fit(rounded)
        if address:
            arena.take_front(address, rounded)
        else:
            address = self._grant(arena, rounded)
            if address == 0:
                return 0
        self._owners[address] = arena
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the chunk at `address`: it stays in the arena of its stream."""
        arena = self._owners.pop(address)
        arena.put(address, self.vacate(address))

    def _grant(self, arena: SegmentCache, rounded: int) -> int:
        """A new segment; if it is refused, all whole segments are returned first (`free_all_blocks`)."""
        address = self.driver.grant(rounded)
        if address == 0:
            self._free_all_blocks()
            address = self.driver.grant(rounded)
        if address:
            arena.add_segment(address, rounded)
        return address

    def _free_all_blocks(self) -> None:
        for arena in self._arenas.values():
            if arena.whole:
                arena.release_whole(self.driver)
