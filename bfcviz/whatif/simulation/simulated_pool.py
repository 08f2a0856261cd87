"""SimulatedPool: the base of simulated allocators, and the loop that serves requests."""

from typing import Any

from bfcviz.whatif.simulation.driver_memory import DriverMemory
from bfcviz.whatif.simulation.free_blocks import FreeBlocks


class SimulatedPool:
    """An allocator without memory: it decides only which addresses a request gets.

    Args:
        driver: grants the segments.

    Attributes:
        driver: the argument.
        in_use: bytes of the blocks in use, after rounding.
        block_size: bytes of the block that the last call allocated or freed.
    """

    def __init__(self, driver: DriverMemory) -> None:
        self.driver = driver
        self.in_use = 0
        self.block_size = 0
        self._used: dict[int, int] = {}
        self._free_lists: list[FreeBlocks] = []

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of at least `size` bytes (1 or more); 0 if the memory does not suffice."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free the block at `address`."""
        raise NotImplementedError

    def largest_free(self) -> int:
        """Bytes of the largest free block that has memory; 0 if there is none.

        Free blocks that touch are two if the pool keeps them so, for one request cannot get both.
        """
        found = 0
        for blocks in self._free_lists:
            largest = blocks.largest()
            found = max(found, largest)
        return found

    def new_free_blocks(self, recent_from: int = 4611686018427387904) -> FreeBlocks:  # NO_SIZE
        """A list of free blocks with memory; a subclass makes each of its own with this, or replaces `largest_free`."""
        blocks = FreeBlocks(recent_from)
        self._free_lists.append(blocks)
        return blocks

    def occupy(self, address: int, size: int) -> None:
        """Count a block as in use; a subclass calls this for each that it allocates."""
        self._used[address] = size
        self.in_use += size
        self.block_size = size

    def vacate(self, address: int) -> int:
        """Count the block at `address` as free; a subclass calls this for each; returns its size."""
        size = self._used.pop(address)
        self.in_use -= size
        self.block_size = size
        return size


def serve_requests(
    pool: SimulatedPool, start: int, stop: int, stop_at_failure: bool, kind: Any, slot: Any, size: Any, stream: Any,
    live: Any, address_out: Any, size_out: Any, in_use_out: Any, reserved_out: Any, largest_free_out: Any,
) -> int:  # fmt: skip
    """Serve requests [start, stop); returns the index after the last one that was served.

    Args:
        pool: serves them.
        start: the first index.
        stop: the index after the last one.
        stop_at_failure: whether to end after the first refused one.
        kind: of `RequestStream`, u1[n].
        size: of `RequestStream`, i8[n].
        stream: of `RequestStream`, u2[n].
        slot: i8[n]; the row of the block in `live`.
        live: i8[m]; the address of each block in use, 0: none.
        address_out: i8[n]; receives the address of each block allocated or freed, 0: none.
        size_out: i8[n]; receives its size after rounding.
        in_use_out: i8[n]; receives the bytes in use after each request.
        reserved_out: i8[n]; receives the bytes of all segments after each request.
        largest_free_out: i8[n]; receives the bytes of the largest free block after each request.
    """
    for i in range(start, stop):
        address = 0
        if kind[i] == 0:  # ALLOCATE
            if size[i] > 0:
                address = pool.allocate(size[i], stream[i])
            live[slot[i]] = address
        elif kind[i] == 1:  # FREE
            address = int(live[slot[i]])
            live[slot[i]] = 0
            if address != 0:
                pool.free(address)
        address_out[i] = address
        size_out[i] = pool.block_size if address != 0 else 0
        in_use_out[i] = pool.in_use
        reserved_out[i] = pool.driver.reserved
        largest_free_out[i] = pool.largest_free()
        if stop_at_failure and address == 0 and kind[i] == 0 and size[i] > 0:
            return i + 1
    return stop
