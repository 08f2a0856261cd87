"""Books: the chunks and regions of a heap that is only observed, and an event for each thing that happens to them.

Invariants: free chunks never touch within a region, and tile it together with those in use.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

from bfcviz.events.log import EventLog
from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.native import LOW_32, MAX_REGIONS


class Used(NamedTuple):
    """A chunk in use; sizes in bytes. `rest`: where the further chunks of the same memory begin; None: one of those."""

    size: int
    requested: int
    handle: int
    slot: int
    label: int
    thread: int
    stream: int
    born: int
    rest: tuple[int, ...] | None


class Hole(NamedTuple):
    """A free chunk."""

    size: int
    handle: int
    slot: int


class Region(NamedTuple):
    """`granted`: somebody said so; else it is a run of addresses that were in use."""

    size: int
    slot: int
    granted: bool


class Books:
    """Chunks and regions by address, totals in bytes. For one thread at a time."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.thread = 0  # that acts
        self.used: dict[int, Used] = {}
        self.holes: dict[int, Hole] = {}
        self.regions: dict[int, Region] = {}
        self._region_starts: list[int] = []  # the keys of `regions`, ascending
        self._hole_starts: list[int] = []
        self._handles = 0  # handed out so far
        self._spare_handles: list[int] = []
        self._slots = 0
        self._spare_slots: list[int] = []
        self.allocations = 0
        self.bytes_in_use = self.requested_in_use = self.peak_in_use = self.largest_alloc = 0
        self.pool_bytes = self.peak_pool = 0

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def slots_left(self) -> int:
        """How many more regions there can be."""
        return MAX_REGIONS - self._slots + len(self._spare_slots)

    @property
    def largest_hole(self) -> int:
        """Bytes of the largest free chunk, 0 where none is."""
        return max((hole.size for hole in self.holes.values()), default=0)

    def end(self, start: int) -> int:
        """Where the region ends that begins at `start`."""
        return start + self.regions[start].size

    def region_at(self, address: int) -> int:
        """Where the region begins that holds an address, which is in one."""
        return self._region_starts[bisect_right(self._region_starts, address) - 1]

    def region_ending_at(self, address: int) -> int | None:
        """Where the region begins that ends at an address."""
        at = bisect_left(self._region_starts, address) - 1
        if at < 0 or self.end(self._region_starts[at]) != address:
            return None
        return self._region_starts[at]

    def is_wholly_free(self, start: int) -> bool:
        """Whether no chunk is in use in the region that begins at `start`."""
        hole = self.holes.get(start)
        return hole is not None and hole.size == self.regions[start].size

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int, Region | None]]:
        """[start, stop), cut where regions begin and end: low, high, and the region or None."""
        following = max(bisect_right(self._region_starts, start) - 1, 0)
        while start < stop and following < len(self._region_starts):
            begin = self._region_starts[following]
            region = self.regions[begin]
            if begin > start:
                yield start, min(begin, stop), None
                start = begin
            high = min(begin + region.size, stop)
            if start < high:
                yield start, high, region
                start = high
            following += 1
        if start < stop:
            yield start, stop, None

    def is_free(self, low: int, high: int) -> bool:
        """Whether [low, high) lies in one free chunk."""
        start = self._hole_at(low)
        return start is not None and self.holes[start].size >= high - start

    # -- what can happen ----------------------------------------------------------------------------------------

    def extend(self, address: int, size: int, *, granted: bool) -> int:
        """A region comes, where `slots_left`; returns its address."""
        if self._spare_slots:
            slot = self._spare_slots.pop()
        else:
            slot = self._slots
            self._slots += 1
        self.regions[address] = Region(size, slot, granted)
        insort(self._region_starts, address)
        self._add(address, size, slot, Flag(0))
        return address

    def grow(self, start: int, size: int) -> None:
        """A region becomes longer."""
        region, at = self.regions[start], self.end(start)
        self.regions[start] = region._replace(size=region.size + size)
        self._add(at, size, region.slot, Flag.GREW)
        self._merge_with_previous(at)

    def remove(self, start: int) -> None:
        """A wholly free region goes."""
        del self._region_starts[bisect_left(self._region_starts, start)]
        region, hole = self.regions.pop(start), self._take(start)
        self._write(Kind.RELEASE, hole.handle, region.slot, start, region.size, bin_of(region.size))
        self.pool_bytes -= region.size
        self._spare_slots.append(region.slot)
        self._spare_handles.append(hole.handle)

    def hand_out(
        self, low: int, high: int, requested: int, label: int, stream: int, rest: tuple[int, ...] | None
    ) -> None:
        """The free memory [low, high) of one region comes into use."""
        start = self._hole_at(low)
        if start is None:
            return
        searched = bin_of(self.holes[start].size)
        if start < low:
            self._split(start, low, Flag.PADDING)
        if high - low < self.holes[low].size:
            self._split(low, high, Flag(0))
        hole = self._take(low)
        self.allocations += 1
        self.bytes_in_use += hole.size
        self.requested_in_use += requested
        self.peak_in_use = max(self.peak_in_use, self.bytes_in_use)
        self.largest_alloc = max(self.largest_alloc, hole.size)
        born = self._write(
            Kind.ALLOCATE, hole.handle, hole.slot, low, hole.size, searched,
            requested=requested, other=self.allocations & LOW_32, label=label, stream=stream,
        )  # fmt: skip
        self.used[low] = Used(
            hole.size, requested, hole.handle, hole.slot, label, self.thread, stream, born, rest
        )

    def take_back(self, address: int) -> None:
        """The chunk in use that begins at an address comes back, and is merged with its free neighbours."""
        c = self.used.pop(address)
        self.bytes_in_use -= c.size
        self.requested_in_use -= c.requested
        self._write(
            Kind.FREE, c.handle, c.slot, address, c.size, bin_of(c.size),
            requested=c.requested, other=c.born & LOW_32, label=c.label, thread=c.thread, stream=c.stream,
        )  # fmt: skip
        self._put(address, c.size, c.slot, c.handle)
        after = self.holes.get(address + c.size)
        if after is not None and after.slot == c.slot:
            self._merge(address, address + c.size)
        self._merge_with_previous(address)

    # -- steps of these, and the books ----------------------------------------------------------------------------

    def _hole_at(self, address: int) -> int | None:
        """Where the free chunk begins that may hold an address."""
        at = bisect_right(self._hole_starts, address) - 1
        return self._hole_starts[at] if at >= 0 else None

    def _add(self, address: int, size: int, slot: int, flag: Flag) -> None:
        handle = self._put(address, size, slot)
        self.pool_bytes += size
        self.peak_pool = max(self.peak_pool, self.pool_bytes)
        self._write(Kind.EXTEND, handle, slot, address, size, bin_of(size), requested=size, flags=flag)

    def _split(self, start: int, at: int, flag: Flag) -> None:
        hole = self.holes[start]
        remainder = start + hole.size - at
        self.holes[start] = hole._replace(size=at - start)
        other = self._put(at, remainder, hole.slot)
        self._write(
            Kind.SPLIT, hole.handle, hole.slot, at, remainder, bin_of(remainder), other=other, flags=flag
        )

    def _merge_with_previous(self, address: int) -> None:
        at = bisect_left(self._hole_starts, address) - 1
        before = self._hole_starts[at] if at >= 0 else address
        hole = self.holes[before]
        if before + hole.size == address and hole.slot == self.holes[address].slot:
            self._merge(before, address)

    def _merge(self, survivor: int, absorbed: int) -> None:
        kept, gone = self.holes[survivor], self._take(absorbed)
        size = kept.size + gone.size
        self.holes[survivor] = kept._replace(size=size)
        self._spare_handles.append(gone.handle)
        self._write(Kind.MERGE, kept.handle, kept.slot, absorbed, gone.size, bin_of(size), other=gone.handle)

    def _put(self, start: int, size: int, slot: int, handle: int | None = None) -> int:
        """A free chunk, under a new handle if none is given."""
        if handle is None and self._spare_handles:
            handle = self._spare_handles.pop()
        elif handle is None:
            handle = self._handles
            self._handles += 1
        self.holes[start] = Hole(size, handle, slot)
        insort(self._hole_starts, start)
        return handle

    def _take(self, start: int) -> Hole:
        del self._hole_starts[bisect_left(self._hole_starts, start)]
        return self.holes.pop(start)

    def _write(
        self, kind: Kind, chunk: int, region: int, address: int, size: int, bin: int, *,
        requested: int = 0, other: int = 0, label: int = 0, thread: int | None = None, stream: int = 0, flags: int = 0,
    ) -> int:  # fmt: skip
        thread = self.thread if thread is None else thread
        return self.log.put(
            kind, chunk, region, address, size, requested, other, label, thread, stream, bin, flags
        )
