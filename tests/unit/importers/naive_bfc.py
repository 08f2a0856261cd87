"""The BFC rules implemented as simply as possible; tests compare the importers' replay with it.

Only what a profile can show: allow_growth, no garbage collection, no timestamps, no coalescing of regions.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

NEVER_SPLIT_BELOW = 128 << 20  # waste from which a chunk is split even when it is under twice the request


@dataclass
class NaiveBFC:
    bytes_limit: int
    allow_growth: bool = True
    next_region: int = field(init=False)
    bytes_in_use: int = 0
    pool_bytes: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # (size, address), sorted
    in_use: dict[int, int] = field(default_factory=dict)  # address -> size
    starts: dict[int, tuple[int, int]] = field(default_factory=dict)  # free address -> (size, region)
    ends: dict[int, int] = field(default_factory=dict)  # free end -> free address
    region_of: dict[int, int] = field(default_factory=dict)  # address in use -> region
    extensions: int = 0

    def __post_init__(self) -> None:
        self.next_region = min(self.bytes_limit, 2 << 20) if self.allow_growth else self.bytes_limit
        self.next_region = -(-self.next_region // 256) * 256

    def put(self, address: int, size: int, region: int) -> None:
        insort(self.free, (size, address))
        self.starts[address] = (size, region)
        self.ends[address + size] = address

    def take(self, address: int) -> tuple[int, int]:
        size, region = self.starts.pop(address)
        del self.free[bisect_left(self.free, (size, address))]
        del self.ends[address + size]
        return size, region

    def extend(self, rounded: int, address: int) -> None:
        available = (self.bytes_limit - self.pool_bytes) // 256 * 256
        assert rounded <= available
        grown = False
        while rounded > self.next_region:
            self.next_region *= 2
            grown = True
        size = min(self.next_region, available)
        if not grown:
            self.next_region *= 2
        self.pool_bytes += size
        self.extensions += 1
        self.put(address, size, self.extensions)

    def allocate(self, requested: int, recorded_address: int) -> tuple[int, int]:
        """(address, size) of the chunk; a new region starts at the recorded address."""
        rounded = -(-requested // 256) * 256
        place = bisect_left(self.free, (rounded, 0))
        if place == len(self.free):
            self.extend(rounded, recorded_address)
            place = bisect_left(self.free, (rounded, 0))
        size, address = self.free[place]
        _, region = self.take(address)
        if size >= 2 * rounded or size - rounded >= NEVER_SPLIT_BELOW:
            self.put(address + rounded, size - rounded, region)
            size = rounded
        self.in_use[address] = size
        self.region_of[address] = region
        self.bytes_in_use += size
        return address, size

    def deallocate(self, address: int) -> int:
        """Size of the chunk that was freed."""
        size = freed = self.in_use.pop(address)
        region = self.region_of.pop(address)
        self.bytes_in_use -= size
        after = self.starts.get(address + size)
        if after is not None and after[1] == region:
            size += self.take(address + size)[0]
        before = self.ends.get(address)
        if before is not None and self.starts[before][1] == region:
            size += self.take(before)[0]
            address = before
        self.put(address, size, region)
        return freed

    @property
    def fragmentation(self) -> float:
        """1 - largest free chunk / free bytes; NaN if nothing is free, as in TensorFlow."""
        free = self.pool_bytes - self.bytes_in_use
        return (free - self.free[-1][0]) / free if free else float("nan")
