"""The allocator's rules in lists and loops, written from the rules' text: what the real heap is checked against.

Nothing here is fast or shared with bfcviz. Chunks carry the handles TensorFlow would give them, because the queue
of chunks held back names handles, and a handle may have a new tenant by the time it is looked at.
"""

from dataclasses import dataclass, field

import numpy as np

MIB = 1 << 20
WRAP = 1 << 64


def up(number, multiple=256):
    return -(-number // multiple) * multiple


@dataclass
class Chunk:
    address: int
    size: int
    handle: int
    requested: int = 0
    number: int = 0  # allocation id, 0 = free
    freed_at: int = 0


@dataclass
class Region:
    address: int
    size: int
    chunks: list


@dataclass
class Source:
    """The simulated sub-allocator."""

    mode: str = "contiguous"
    capacity: int = WRAP
    granule: int = 1
    gap: int = 1 << 30
    coalescing: bool = False
    used: int = 0
    calls: list = field(default_factory=list)  # (0 granted, 1 refused, 2 released; bytes)

    def __post_init__(self):
        self.top = 0x7F0000000000 + ((1 << 44) if self.mode == "descending" else 0)

    def grant(self, alignment, num_bytes):
        need = up(num_bytes, self.granule)
        step = max(alignment, 256)
        if self.mode == "descending":
            address = (self.top - need) // step * step
            fits = address > 0
        else:
            address = up(self.top, step)
            fits = address + need <= 1 << 63
        if self.used + need > self.capacity or not fits:
            self.calls.append((1, num_bytes))
            return None
        self.top = address if self.mode == "descending" else address + need
        if self.mode == "gapped":
            self.top += self.gap
        self.used += need
        self.calls.append((0, num_bytes))
        return address, need

    def release(self, size):
        self.used -= size
        self.calls.append((2, size))


@dataclass
class Oracle:
    source: Source
    limit: int
    allow_growth: bool = False
    exact_growth: bool = False
    garbage_collection: bool = False
    fragmentation_fraction: float = 0.0
    timestamps: bool = False
    honour_alignment: bool = True
    regions: list = field(default_factory=list)
    held: list = field(default_factory=list)  # handles
    unused_handles: list = field(default_factory=list)
    handles: int = 0
    frees: int = 0
    frontier: int = 0
    next_number: int = 1
    num_allocs: int = 0
    largest_alloc: int = 0
    peak_in_use: int = 0
    peak_pool: int = 0
    ooms: int = 0

    def __post_init__(self):
        self.next_region = up(min(self.limit, 2 * MIB) if self.allow_growth else self.limit)
        fraction = self.fragmentation_fraction
        self.max_waste = max(int(fraction * self.limit), 1) if fraction > 0 else 128 * MIB

    # -- looking ---------------------------------------------------------------------------------------------

    def chunks(self):
        return [chunk for region in self.regions for chunk in region.chunks]

    def free_chunks(self):
        return [chunk for chunk in self.chunks() if not chunk.number]

    def in_use(self):
        return {chunk.address: chunk for chunk in self.chunks() if chunk.number}

    def pool_bytes(self):
        return sum(region.size for region in self.regions)

    def bytes_in_use(self):
        return sum(chunk.size for chunk in self.in_use().values())

    def region_of(self, chunk):
        return next(region for region in self.regions if any(c is chunk for c in region.chunks))

    def by_handle(self, handle):
        return next((chunk for chunk in self.chunks() if chunk.handle == handle), None)

    def padding(self, chunk, alignment):
        return -chunk.address % alignment if self.honour_alignment and alignment > 256 else 0

    # -- the two operations ----------------------------------------------------------------------------------

    def allocate(self, requested, alignment=256, freed_before=0):
        """The address, or None."""
        rounded = up(requested)
        self.merge_held(0)
        chunk = self.find(rounded, alignment, freed_before)
        if chunk is None and self.extend(rounded, alignment):
            chunk = self.find(rounded, alignment, freed_before)
        if chunk is None and not freed_before and self.held and self.merge_held(rounded):
            chunk = self.find(rounded, alignment, freed_before)
        if chunk is None and self.collect(rounded) and self.extend(rounded, alignment):
            chunk = self.find(rounded, alignment, freed_before)
        if chunk is None:
            self.ooms += 1
            return None
        padding = self.padding(chunk, alignment)
        if padding:
            chunk = self.split(chunk, padding)
        if chunk.size >= 2 * rounded or chunk.size - rounded >= self.max_waste:
            self.split(chunk, rounded)
        chunk.requested = requested
        chunk.number = self.next_number
        self.next_number += 1
        self.num_allocs += 1
        self.largest_alloc = max(self.largest_alloc, chunk.size)
        self.peak_in_use = max(self.peak_in_use, self.bytes_in_use())
        return chunk.address

    def free(self, address):
        chunk = self.in_use()[address]
        chunk.number = 0
        if self.timestamps:
            self.frees += 1
            chunk.freed_at = self.frees
            self.held.append(chunk.handle)
        else:
            chunk.freed_at = 0
            self.coalesce(chunk)

    def set_safe_frontier(self, count):
        self.frontier = max(self.frontier, count)

    def clear_stats(self):
        self.num_allocs = self.largest_alloc = 0
        self.peak_in_use = self.bytes_in_use()

    # -- the rules -------------------------------------------------------------------------------------------

    def find(self, rounded, alignment, freed_before):
        fitting = [
            chunk
            for chunk in self.free_chunks()
            if chunk.size >= rounded + self.padding(chunk, alignment)
            and not (freed_before and chunk.freed_at > freed_before)
        ]
        return min(fitting, key=lambda chunk: (chunk.size, chunk.address), default=None)

    def new_handle(self):
        if self.unused_handles:
            return self.unused_handles.pop()
        self.handles += 1
        return self.handles - 1

    def split(self, chunk, front):
        rest = Chunk(chunk.address + front, chunk.size - front, self.new_handle(), freed_at=chunk.freed_at)
        chunks = self.region_of(chunk).chunks
        chunks.insert([c is chunk for c in chunks].index(True) + 1, rest)
        chunk.size = front
        return rest

    def coalesce(self, chunk, ignore_held=False):
        """Merge with the next, then into the previous one; returns the survivor."""
        if chunk.freed_at and not ignore_held:
            return chunk
        chunks = self.region_of(chunk).chunks
        for left in (0, 1):
            at = [c is chunk for c in chunks].index(True) - left
            if at < 0 or at + 1 >= len(chunks):
                continue
            first, second = chunks[at : at + 2]
            neighbour = first if left else second
            if neighbour.number or (neighbour.freed_at and not ignore_held):
                continue
            first.size += second.size
            first.freed_at = max(first.freed_at, second.freed_at)
            del chunks[at + 1]
            self.unused_handles.append(second.handle)
            chunk = first
        return chunk

    def extend(self, rounded, alignment):
        available = (self.limit - self.pool_bytes()) % WRAP // 256 * 256
        if rounded > available:
            return False
        doubled = False
        while rounded > self.next_region:
            self.next_region *= 2
            doubled = True
        num_bytes = min(self.next_region, available)
        granted = self.source.grant(alignment, num_bytes)
        while granted is None:
            nine_tenths = up(int(np.float32(num_bytes) * np.float32(0.9)))
            less = nine_tenths if nine_tenths < num_bytes else num_bytes - 256
            num_bytes = rounded if self.exact_growth and less < rounded < num_bytes else less
            if num_bytes < rounded:
                return False
            granted = self.source.grant(alignment, num_bytes)
        if not doubled and self.next_region < 1 << 63:
            self.next_region *= 2
        self.add_region(*granted)
        self.peak_pool = max(self.peak_pool, self.pool_bytes())
        return True

    def add_region(self, address, size):
        chunk = Chunk(address, size, self.new_handle())
        before = [r for r in self.regions if r.address + r.size == address]
        if self.source.coalescing and before:
            before[0].size += size
            before[0].chunks.append(chunk)
            self.coalesce(chunk)
        else:
            self.regions.append(Region(address, size, [chunk]))
            self.regions.sort(key=lambda region: region.address)

    def collect(self, rounded):
        free = [region for region in self.regions if not any(chunk.number for chunk in region.chunks)]
        total = sum(region.size for region in free)
        if (
            not self.garbage_collection
            or not free
            or rounded > (self.limit - self.pool_bytes() + total) % WRAP
        ):
            return False
        for region in free:
            self.unused_handles += [chunk.handle for chunk in region.chunks]
            self.source.release(region.size)
        self.regions = [region for region in self.regions if not any(region is gone for gone in free)]
        return True

    def merge_held(self, needed):
        """Merge what is safe (needed = 0), or anything until a chunk has `needed` bytes; whether one has."""
        queue, self.held, due = self.held, [], []
        for handle in queue:
            chunk = self.by_handle(handle)
            if chunk is None or chunk.number:
                continue
            if chunk.freed_at < self.frontier:
                chunk.freed_at = 0
            (due if needed or not chunk.freed_at else self.held).append(chunk.handle)
        satisfied = not needed
        for handle in due:
            chunk = self.by_handle(handle)
            if chunk is None:
                continue
            if needed and satisfied:
                self.held.append(handle)
                continue
            merged = self.coalesce(chunk, ignore_held=bool(needed))
            if needed and merged is not chunk and merged.freed_at:
                self.held.append(merged.handle)
            satisfied = satisfied or merged.size >= needed
        return satisfied
