"""Events straight from recorded addresses, for a heap whose beginning nobody saw.

A profile that starts in the middle of a run does not say what was in the pool, so the heap's decisions cannot
be repeated. What it does say is taken at its word: every chunk lies where it was recorded. A region here is a
run of addresses that the requests touch; memory they never touch is in no region, so that nothing unknown is
drawn as free.

::

    recorded      ..aaaa..bbbbbbcc......dd....      . never touched
    regions         |--0-| |--1---|     |2|
"""

from bisect import bisect_right, insort
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.rows import joined
from bfcviz.events.schema import EVENT, Events, Flag, Kind, bin_of
from bfcviz.importers.requests import ABSENT, Requests

_MAX_REGIONS = 1 << 16  # the event record numbers them with 16 bits
_LONGEST = 1024  # list of addresses
_BATCH = 8192
"""Events that are kept as Python objects before they become an array, which needs a tenth of the memory."""
_FIELDS = tuple(EVENT.names or ())


class Tiled(NamedTuple):
    """What could be had.

    Attributes:
        events: with the request's place in `time`; chunks from before the first request are allocated first.
        chunks_before: how many of those there are.
        contradicting: requests left out, because they overlap a chunk in use.
        bytes_not_seen: bytes in use that belong to chunks no request mentions.
        bytes_differing: requests after which the recorded bytes in use are not those plus the known ones.
    """

    events: Events
    chunks_before: int
    contradicting: int
    bytes_not_seen: int
    bytes_differing: int


class _InUse(NamedTuple):
    size: int
    requested: int
    handle: int
    label: int
    thread: int
    seq: int  # of its ALLOCATE


class _Free(NamedTuple):
    size: int
    handle: int


class _Starts:
    """Ascending addresses in short lists: adding to a single long list would be slow."""

    def __init__(self) -> None:
        self._lists: list[list[int]] = [[]]
        self._lowest = [0]  # of each list, or below

    def before(self, address: int, *, or_at: bool = False) -> int:
        """The last one below `address`, or at it; -1 where there is none."""
        at = bisect_right(self._lowest, address) - 1
        while at >= 0:
            starts = self._lists[at]
            place = bisect_right(starts, address if or_at else address - 1) - 1
            if place >= 0:
                return starts[place]
            at -= 1
        return -1

    def add(self, address: int) -> None:
        """Add one that is not there."""
        at = bisect_right(self._lowest, address) - 1
        starts = self._lists[at]
        insort(starts, address)
        if len(starts) > _LONGEST:
            half = len(starts) // 2
            self._lists.insert(at + 1, starts[half:])
            self._lowest.insert(at + 1, starts[half])
            del starts[half:]

    def remove(self, address: int) -> None:
        """Take one away."""
        at = bisect_right(self._lowest, address) - 1
        starts = self._lists[at]
        del starts[bisect_right(starts, address) - 1]
        if not starts and at:
            del self._lists[at], self._lowest[at]


class _Tiler:
    """The chunks of one pool by address, and the events so far."""

    def __init__(self) -> None:
        self.count = 0  # of the events so far
        self._rows: list[tuple[int, ...]] = []
        self._batches: list[Events] = []
        self.in_use: dict[int, _InUse] = {}
        self.free: dict[int, _Free] = {}
        self.bytes_in_use = 0
        self.place = 0  # of the request that events are written for
        self.thread = 0  # that made it
        self._free_starts = _Starts()  # the keys of `free`
        self._region_starts: list[int] = []
        self._handles = 0  # handed out so far
        self._spare: list[int] = []  # handles of absorbed chunks
        self._allocations = 0

    def extend(self, start: int, size: int) -> None:
        """Add a region; they come in ascending order."""
        self._region_starts.append(start)
        chunk = self._put(start, size)
        self._write(Kind.EXTEND, start, size, chunk=chunk, bin=bin_of(size))

    def allocate(self, row: Any, label: int) -> bool:
        """Give the request its recorded chunk; False if that is not wholly free."""
        address, size = int(row["address"]), int(row["size"])
        start = self._free_starts.before(address, or_at=True)
        found = self.free.get(start, _Free(0, 0))
        if address + size > start + found.size:
            return False
        if start < address:
            self._split(start, address, Flag.PADDING)
        if size < self.free[address].size:
            self._split(address, address + size, Flag(0))
        handle = self._take(address).handle
        self._allocations += 1
        requested = max(0, int(row["requested"]))
        self.in_use[address] = _InUse(size, requested, handle, label, self.thread, self.count)
        self.bytes_in_use += size
        self._write(
            Kind.ALLOCATE,
            address,
            size,
            requested=requested,
            chunk=handle,
            other=self._allocations,
            label=label,
            bin=bin_of(found.size),
        )
        return True

    def deallocate(self, row: Any) -> bool:
        """Take the chunk back and merge it with its free neighbours; False if none begins there."""
        address = int(row["address"])
        chunk = self.in_use.pop(address, None)
        if chunk is None:
            return False
        self.bytes_in_use -= chunk.size
        self._write(
            Kind.FREE,
            address,
            chunk.size,
            requested=chunk.requested,
            chunk=chunk.handle,
            other=chunk.seq & 0xFFFFFFFF,
            label=chunk.label,
            thread=chunk.thread,
            bin=bin_of(chunk.size),
        )
        self._put(address, chunk.size, chunk.handle)
        after = address + chunk.size
        # Regions never touch, so a free neighbour is in the same one.
        if after in self.free:
            self._merge(address, after)
        before = self._free_starts.before(address)
        if before >= 0 and before + self.free[before].size == address:
            self._merge(before, address)
        return True

    def events(self) -> Events:
        """All events so far."""
        self._flush()
        return joined(self._batches)

    def _split(self, start: int, at: int, flag: Flag) -> None:
        parent = self.free[start]
        remainder = start + parent.size - at
        self.free[start] = parent._replace(size=at - start)
        other = self._put(at, remainder)
        self._write(
            Kind.SPLIT, at, remainder, chunk=parent.handle, other=other, bin=bin_of(remainder), flags=flag
        )

    def _merge(self, survivor: int, absorbed: int) -> None:
        kept, gone = self.free[survivor], self._take(absorbed)
        size = kept.size + gone.size
        self.free[survivor] = kept._replace(size=size)
        self._spare.append(gone.handle)
        self._write(Kind.MERGE, absorbed, gone.size, chunk=kept.handle, other=gone.handle, bin=bin_of(size))

    def _put(self, start: int, size: int, handle: int | None = None) -> int:
        """A free chunk, under a new handle if none is given."""
        if handle is None and self._spare:
            handle = self._spare.pop()
        elif handle is None:
            handle = self._handles
            self._handles += 1
        self.free[start] = _Free(size, handle)
        self._free_starts.add(start)
        return handle

    def _take(self, start: int) -> _Free:
        self._free_starts.remove(start)
        return self.free.pop(start)

    def _write(self, kind: Kind, address: int, size: int, **values: int) -> None:
        common = {"seq": self.count, "time": self.place, "thread": self.thread, "by": self.thread}
        region = bisect_right(self._region_starts, address) - 1
        values = common | {"kind": kind, "address": address, "size": size, "region": region} | values
        self._rows.append(tuple([values.get(name, 0) for name in _FIELDS]))
        self.count += 1
        if len(self._rows) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._batches.append(np.array(self._rows, EVENT))
        self._rows = []


def tile(requests: Requests, label_before: int) -> Tiled | None:
    """Events of one pool from where its chunks were recorded.

    Args:
        requests: in order.
        label_before: for chunks that were in use before the first request.

    Returns:
        None where the touched memory falls apart into more regions than a trace can number.
    """
    regions = _touched(requests)
    if len(regions) > _MAX_REGIONS:
        return None
    tiler = _Tiler()
    for start, stop in regions:
        tiler.extend(start, stop - start)
    before = _from_before(requests)
    contradicting = sum(not tiler.allocate(requests[at], label_before) for at in before)
    chunks_before = len(before) - contradicting
    known = np.empty(len(requests), np.int64)
    for place, row in enumerate(requests):
        tiler.place, tiler.thread = place, int(row["thread"])
        done = tiler.deallocate(row) if row["free"] else tiler.allocate(row, int(row["label"]))
        contradicting += not done
        known[place] = tiler.bytes_in_use
    return Tiled(tiler.events(), chunks_before, contradicting, *_not_seen(requests, known))


def _touched(requests: Requests) -> list[tuple[int, int]]:
    """The addresses that any request touches, as ascending runs [start, stop) that do not meet."""
    runs: list[tuple[int, int]] = []
    for start, size in sorted(zip(requests["address"].tolist(), requests["size"].tolist(), strict=True)):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], start + size))
        else:
            runs.append((start, start + size))
    return runs


def _from_before(requests: Requests) -> list[int]:
    """Places of the frees whose chunk was in use before the first request."""
    places, seen = [], set()
    for place, (address, free) in enumerate(
        zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    ):
        if free and address not in seen:
            places.append(place)
        seen.add(address)
    return places


def _not_seen(requests: Requests, known: NDArray[np.int64]) -> tuple[int, int]:
    """Bytes in use beyond the known ones, which must be the same throughout, and where they are not."""
    recorded = requests["bytes_in_use"] != ABSENT
    beyond = requests["bytes_in_use"][recorded] - known[recorded]
    if not len(beyond):
        return 0, 0
    values, counts = np.unique(beyond, return_counts=True)
    usual = int(np.argmax(counts))
    return int(values[usual]), len(beyond) - int(counts[usual])
