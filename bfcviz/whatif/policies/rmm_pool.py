"""RMM's pool: best fit with coalescing in blocks of an upstream resource.

Source of the rules: `size_to_grow`, `try_to_expand` and `allocate_from_block` in
cpp/src/mr/detail/pool_memory_resource_impl.cpp of RMM at commit 06ddb2421fb9, and `coalescing_free_list`. RMM has a
list of free blocks for each stream, and takes those of another stream where its own has none that suffices; here one
list serves all streams. Without a maximum of its own the pool returns no block.
"""

from bfcviz.whatif.simulation import DriverMemory, SimulatedPool

RMM_UNIT = 256
"""Sizes are rounded up to a multiple of this, in bytes."""


class RmmPool(SimulatedPool):
    """A pool that doubles; each block of the upstream resource is a segment.

    Args:
        driver: grants the segments.
        initial_pool_size: bytes that are asked for at the start; 0: the first request decides.
    """

    def __init__(self, driver: DriverMemory, initial_pool_size: int = 0) -> None:
        SimulatedPool.__init__(self, driver)
        self._initial = (initial_pool_size + RMM_UNIT - 1) // RMM_UNIT * RMM_UNIT
        self._free = self.new_free_blocks()

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one list serves all streams
        """The address of a block; 0 if the memory does not suffice."""
        rounded = (size + RMM_UNIT - 1) // RMM_UNIT * RMM_UNIT
        if self._initial:
            if not self._extend(self._initial):
                return 0  # RMM fails where the pool is made, and there is no pool then
            self._initial = 0
        address = self._free.best_fit(rounded)
        if address == 0:
            if not self._grow(rounded):
                return 0
            address = self._free.best_fit(rounded)
        self._free.take_front(address, rounded)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        self._free.add_merged(address, self.vacate(address))

    def _grow(self, rounded: int) -> bool:
        """Double the pool; where that is refused, try half as much again and again, down to `rounded`."""
        size = max(rounded, self.driver.reserved)
        while not self._extend(size):
            if size == rounded:
                return False
            size = max(rounded, size // 2)
        return True

    def _extend(self, size: int) -> bool:
        address = self.driver.grant(size)
        if address:
            self._free.add(address, size)
        return address != 0
