"""DriverMemory: what the driver of a simulated allocator grants, and at which addresses."""

from typing import NamedTuple

from bfcviz import native
from bfcviz.whatif.free_blocks import ORDER_FACTOR, ORDER_PRIME, FreeBlocks

FIRST_SEGMENT = 0x7F0000000000
LAST_SEGMENT = 1 << 60
"""Descending addresses end here."""

SHUFFLED_STEP = 1 << 39
"""Bytes of addresses between two ranges in shuffled order; larger ranges descend."""

SEGMENT_ALIGNMENT = 2 << 20
"""In bytes: the granularity of CUDA's virtual memory."""

SEGMENT_GAP = 1 << 30
"""Bytes of addresses between segments: two segments are never adjacent."""


class DriverCall(NamedTuple):
    """One segment that the driver of a simulated pool granted or released.

    Attributes:
        address: of its first byte.
        size: bytes granted; below 0: released.
        join: it extends the segment that ends there.
    """

    address: int
    size: int
    join: bool


class DriverMemory:
    """Grants segments of a simulated address space; two that are granted at one time are never adjacent.

    Args:
        limit: the most that can be granted at one time, in bytes.

    Attributes:
        limit: the argument; a pool that checks a lower limit itself sets it to the memory of the device.
        reserved: bytes granted now.
        grants, refusals, releases: number of calls.
        order: of new ranges: 0: each lies above those before; -1: below; 1 and more: in an order without a pattern,
            which this number makes. A pool sets it before its first request. Drivers give addresses in an order of
            their own, and allocators choose by address among free blocks of one size.
        reuses: whether the addresses of returned segments are used again, with order 0 the lowest that suffice, with
            -1 the highest; else no address is. A pool sets it with the order.
        ranges: the first address of each range of addresses that was reserved, in order; segments have one each.
        keeps_calls: whether `calls` gets them.
        calls: granted and released segments in order; who reads them may clear the list.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.grants = 0
        self.refusals = 0
        self.releases = 0
        self.order = 0
        self.reuses = False
        self.ranges: list[int] = []
        self.keeps_calls = True
        self.calls: list[DriverCall] = []
        self._top = FIRST_SEGMENT
        self._bottom = LAST_SEGMENT
        self._holes = (
            FreeBlocks()
        )  # addresses of returned segments; with order -1 counted from `LAST_SEGMENT` down

    def reserve(self, num_bytes: int) -> int:
        """Reserve addresses for `num_bytes`, without memory."""
        if self.reuses:
            address = self._lowest_hole(num_bytes)
            self.ranges.append(address)
            return address
        whole = (num_bytes + SEGMENT_ALIGNMENT - 1) // SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT + SEGMENT_GAP
        if self.order > 0 and whole <= SHUFFLED_STEP and len(self.ranges) < ORDER_PRIME:
            place = (len(self.ranges) + 1) * (self.order * ORDER_FACTOR % ORDER_PRIME) % ORDER_PRIME
            address = FIRST_SEGMENT + place * SHUFFLED_STEP
        elif self.order != 0:
            self._bottom -= whole
            address = self._bottom
        else:
            address = self._top
            self._top += whole
        self.ranges.append(address)
        return address

    def grant(self, num_bytes: int) -> int:
        """A new segment of a simulated pool; 0 if it would exceed the limit."""
        if not self._fits(num_bytes):
            return 0
        address = self.reserve(num_bytes)
        self._granted(address, num_bytes, False)
        return address

    def map(self, address: int, num_bytes: int) -> bool:
        """Map memory to reserved addresses: it extends what ends there. False if it would exceed the limit."""
        if not self._fits(num_bytes):
            return False
        self._granted(address, num_bytes, True)
        return True

    def release(self, address: int, num_bytes: int) -> None:
        """Return a segment to the simulated driver, or the memory of mapped addresses."""
        if self.reuses:
            low = self._mirrored(address, num_bytes)
            self._holes.add_merged(low, num_bytes + SEGMENT_ALIGNMENT)
        self.releases += 1
        self.reserved -= num_bytes
        if self.keeps_calls:
            self.calls.append(DriverCall(address, -num_bytes, False))

    def _lowest_hole(self, num_bytes: int) -> int:
        """The first addresses for a segment that no segment has, with a gap after them."""
        whole = num_bytes + SEGMENT_ALIGNMENT
        low = self._holes.first_fit(whole)
        if low:
            self._holes.take_front(low, whole)
        else:
            low = self._top
            self._top += whole
        return self._mirrored(low, num_bytes)

    def _mirrored(self, address: int, num_bytes: int) -> int:
        """The address itself; with falling ones, where the segment lies if the address space is turned round."""
        return address if self.order == 0 else LAST_SEGMENT - address - num_bytes

    def _fits(self, num_bytes: int) -> bool:
        fits = num_bytes < native.MAX_REQUEST and self.reserved + num_bytes <= self.limit
        self.refusals += not fits
        return fits

    def _granted(self, address: int, num_bytes: int, join: bool) -> None:
        self.grants += 1
        self.reserved += num_bytes
        if self.keeps_calls:
            self.calls.append(DriverCall(address, num_bytes, join))
