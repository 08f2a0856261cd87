"""DriverMemory: the device memory below a simulated pool, granted in segments up to a limit."""

from typing import NamedTuple

from bfcviz import native

FIRST_SEGMENT = 0x7F0000000000
SEGMENT_ALIGNMENT = 2 << 20
"""In bytes: the granularity of CUDA's virtual memory."""

SEGMENT_GAP = 1 << 30
"""Bytes of addresses between segments: two segments are never adjacent."""


class DriverCall(NamedTuple):
    """One granted or released segment.

    Attributes:
        address: of its first byte.
        size: bytes granted; below 0: released.
        join: it extends the segment that ends there.
    """

    address: int
    size: int
    join: bool


class DriverMemory:
    """Grants segments of a simulated address space; addresses are never used again.

    Args:
        limit: the most that can be granted at one time, in bytes.

    Attributes:
        limit: the argument.
        reserved: bytes granted now.
        grants, refusals, releases: number of calls.
        ranges: the first address of each range of addresses that was reserved, ascending; segments have one each.
        calls: granted and released segments in order; who reads them may clear the list.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.grants = 0
        self.refusals = 0
        self.releases = 0
        self.ranges: list[int] = []
        self.calls: list[DriverCall] = []
        self._top = FIRST_SEGMENT

    def reserve(self, num_bytes: int) -> int:
        """Addresses for `num_bytes` without memory."""
        address = self._top
        self.ranges.append(address)
        self._top = (
            address
            + (num_bytes + SEGMENT_ALIGNMENT - 1) // SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT
            + SEGMENT_GAP
        )
        return address

    def grant(self, num_bytes: int) -> int:
        """A new segment; 0 if it would exceed the limit."""
        if not self._fits(num_bytes):
            return 0
        address = self.reserve(num_bytes)
        self._granted(address, num_bytes, False)
        return address

    def map(self, address: int, num_bytes: int) -> bool:
        """Memory for reserved addresses; it extends the memory that ends there. False if it would exceed the limit."""
        if not self._fits(num_bytes):
            return False
        self._granted(address, num_bytes, True)
        return True

    def release(self, address: int, num_bytes: int) -> None:
        """Return a segment, or the memory of mapped addresses."""
        self.releases += 1
        self.reserved -= num_bytes
        self.calls.append(DriverCall(address, -num_bytes, False))

    def _fits(self, num_bytes: int) -> bool:
        fits = num_bytes < native.MAX_REQUEST and self.reserved + num_bytes <= self.limit
        self.refusals += not fits
        return fits

    def _granted(self, address: int, num_bytes: int, join: bool) -> None:
        self.grants += 1
        self.reserved += num_bytes
        self.calls.append(DriverCall(address, num_bytes, join))
