"""The chunks and regions of one pool: a row a handle, a row a slot; `LargestFreeTree` finds the largest free chunk."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.structured_arrays import taken
from bfcviz.model import array_access, row_storage

# ------------------------------------------------------------------------------
# The chunks of one pool, one row a handle, and the size of the largest free chunk (LargestFreeTree).


class LargestFreeTree:
    """Finds the largest free chunk: a number a row, all 0 at first; node i is the largest of nodes 8i+1 .. 8i+8.

    A change climbs only while it changes the maximum: for most places not even one level, at most
    log8(places) levels.

    Attributes:
        below: sum of the numbers less than the limit of `watch`; 0 before its first call.
    """

    def __init__(self) -> None:
        self._places = 0
        self._first = 0  # node of place 0
        self._store: Any = row_storage.grown(
            None, row_storage.NUMBER, 1, compiled=bool(array_access.COMPILED)
        )
        self._nodes = array_access.numbers(self._store)
        self._limit = 0
        self.below = 0

    def largest(self) -> int:
        """The largest number in the tree of free chunks, 0 where none was set."""
        largest: int = self._nodes[0]
        return largest

    def watch(self, limit: int) -> None:
        """Maintain the sum of the numbers in the tree of free chunks that are less than `limit`."""
        self._limit = limit
        self.below = 0
        for place in range(self._places):
            number = self._nodes[self._first + place]
            if number < limit:
                self.below += number

    def reserve(self, places: int) -> None:
        """Provide at least this many places in the tree of free chunks."""
        while self._places < places:
            self._grow()

    def set(self, place: int, number: int) -> None:
        """Change the number of one place in the tree of free chunks."""
        node = self._first + place
        old = self._nodes[node]
        self._nodes[node] = number
        if old < self._limit:
            self.below -= old
        if number < self._limit:
            self.below += number
        if number >= old:
            while node > 0:
                node = (node - 1) >> 3
                if self._nodes[node] >= number:
                    return
                self._nodes[node] = number
        else:
            while node > 0:
                node = (node - 1) >> 3
                if self._nodes[node] != old:
                    return
                number = self._largest_below(node)
                if number == old:
                    return
                self._nodes[node] = number

    def _largest_below(self, node: int) -> int:
        first = 8 * node + 1
        best: int = self._nodes[first]
        for i in range(first + 1, first + 8):
            best = max(best, self._nodes[i])
        return best

    def _grow(self) -> None:
        before, first, old = self._places, self._first, self._store
        self._places = max(64, 8 * before)
        self._first = (self._places - 1) // 7
        nodes = self._first + self._places
        self._store = row_storage.grown(None, row_storage.NUMBER, nodes, compiled=bool(array_access.COMPILED))
        self._nodes = array_access.numbers(self._store)
        self.below = 0
        if before > 0:
            from_nodes = array_access.numbers(old)
            for place in range(before):
                if from_nodes[first + place] > 0:
                    self.set(place, from_nodes[first + place])


class ChunkRows:
    """The chunks of one pool as rows of CHUNK_ROW. Methods that find a contradiction return a code of `array_access`.

    Attributes:
        chunks: the rows, for `array_access.chunk`; `reserve` replaces them.
        free_sizes: the size of each free chunk, by handle.
        free: number of free chunks.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.free = 0
        self.free_sizes = LargestFreeTree()
        self._store: Any = None

    def by_handle(self) -> NDArray[np.void]:
        """The row of each chunk by its handle; not a copy where the rows are in an array."""
        if self.capacity == 0:
            return np.zeros(0, row_storage.CHUNK_ROW)
        return row_storage.exported(self._store, row_storage.CHUNK_ROW)

    def exported(self) -> NDArray[np.void]:
        """A copy of the row of every chunk, in no order."""
        table = self.by_handle()
        return taken(table, table["state"] != array_access.NOTHING)

    def load(self, chunk_rows: NDArray[np.void]) -> None:
        """Fill empty rows of chunks with what another `ChunkRows` exported."""
        if len(chunk_rows) > 0:
            self.reserve(int(chunk_rows["handle"].max()))
            row_storage.put(self._store, chunk_rows["handle"], chunk_rows)
        free = chunk_rows[chunk_rows["state"] == array_access.CHUNK_FREE]
        self.free = len(free)
        for handle, size in zip(free["handle"].tolist(), free["size"].tolist(), strict=True):
            self.free_sizes.set(handle, size)

    def row(self, handle: int) -> np.void | None:
        """A copy of one chunk's row; None where no such row exists."""
        if handle >= self.capacity:
            return None
        row: np.void = row_storage.exported(self._store[handle : handle + 1], row_storage.CHUNK_ROW).copy()[0]
        return row

    def look(self, handle: int, region: int, state: int) -> int:
        """FINE where the chunk exists, is in the region and has the state."""
        if handle >= self.capacity:
            return array_access.ABSENT
        c = array_access.chunk(self.chunks, handle)
        if c.state != state:
            if c.state == array_access.NOTHING:
                return array_access.ABSENT
            return array_access.NOT_FREE if state == array_access.CHUNK_FREE else array_access.NOT_IN_USE
        return array_access.FINE if c.region == region else array_access.OTHER_REGION

    def vacant(self, handle: int, seq: int) -> int:
        """FINE where a new chunk can have this handle. An event makes at most one chunk, which bounds handles."""
        if handle > seq + 1:
            return array_access.HANDLE_TOO_HIGH
        if handle < self.capacity and array_access.chunk(self.chunks, handle).state != array_access.NOTHING:
            return array_access.HANDLE_TAKEN
        return array_access.FINE

    def reserve(self, handle: int) -> None:
        """Make room in the rows of chunks for this handle."""
        if handle < self.capacity:
            return
        capacity = max(64, self.capacity)
        while capacity <= handle:
            capacity *= 2
        self._store = row_storage.grown(
            self._store, row_storage.CHUNK_ROW, capacity, compiled=bool(array_access.COMPILED)
        )
        self.chunks = array_access.chunks(self._store)
        self.capacity = capacity
        self.free_sizes.reserve(capacity)

    def add(self, handle: int, address: int, size: int, region: int) -> None:
        """Add the row of a free chunk at a handle that is vacant and reserved."""
        c = array_access.chunk(self.chunks, handle)
        c.address = address
        c.size = size
        c.handle = handle
        c.region = region
        c.state = array_access.CHUNK_FREE
        self.free_sizes.set(handle, size)
        self.free += 1

    def drop(self, handle: int) -> None:
        """Remove the row of a free chunk."""
        c = array_access.chunk(self.chunks, handle)
        c.address = c.size = c.handle = c.region = c.state = 0
        self.free_sizes.set(handle, 0)
        self.free -= 1


# ------------------------------------------------------------------------------
# The regions of one pool: one row a slot, and the slots by ascending address.


class RegionRows:
    """The regions of one pool as rows; they do not overlap. Methods that find a contradiction return a code.

    Attributes:
        count: number of regions.
    """

    def __init__(self) -> None:
        self.count = 0
        self._slots = 0
        self._region_store: Any = None
        self._order_store: Any = None

    def exported(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """The row of every region by ascending address, of REGION_ROW, and their slots."""
        if self.count == 0:
            return np.zeros(0, row_storage.REGION_ROW), np.zeros(0, np.uint64)
        slots = np.array(self._order_store[: self.count], np.uint64)
        return row_storage.exported(self._region_store, row_storage.REGION_ROW)[slots.astype(np.intp)], slots

    def load(self, region_rows: NDArray[np.void], slots: NDArray[np.uint64]) -> None:
        """Fill empty rows of regions with what another `RegionRows` exported."""
        if len(slots) > 0:
            self._reserve(int(slots.max()))
            row_storage.put(self._region_store, slots.astype(np.intp), region_rows)
            for at, slot in enumerate(slots.tolist()):
                self._order[at] = slot
        self.count = len(slots)

    def add(self, slot: int, address: int, size: int) -> int:
        """Add the row of a region."""
        self._reserve(slot)
        r = array_access.region(self._regions, slot)
        if r.state != array_access.NOTHING:
            return array_access.SLOT_TAKEN
        at = self._place(address)
        if at > 0 and self._end(at - 1) > address:
            return array_access.OVERLAP
        if at < self.count and self._start(at) < address + size:
            return array_access.OVERLAP
        for i in range(self.count, at, -1):
            self._order[i] = self._order[i - 1]
        self._order[at] = slot
        self.count += 1
        r.address = address
        r.size = size
        r.state = array_access.REGION_LIVE
        return array_access.FINE

    def lengthen(self, slot: int, address: int, size: int) -> int:
        """Extend the row of a region at its end, `address`, by `size` bytes."""
        if slot >= self._slots or array_access.region(self._regions, slot).state == array_access.NOTHING:
            return array_access.SLOT_EMPTY
        r = array_access.region(self._regions, slot)
        if address != r.address + r.size:
            return array_access.NOT_AT_END
        at = self._place(address)
        if at < self.count and self._start(at) < address + size:
            return array_access.OVERLAP
        r.size += size
        return array_access.FINE

    def shorten(self, slot: int, address: int, size: int) -> int:
        """Undo `lengthen` of a region's row."""
        r = array_access.region(self._regions, slot)
        if address + size != r.address + r.size or size >= r.size:
            return array_access.NOT_AT_END
        r.size -= size
        return array_access.FINE

    def remove(self, slot: int, address: int, size: int) -> int:
        """Remove the row of a region that has this address and size."""
        r = array_access.region(self._regions, slot)
        if r.address != address or r.size != size:
            return array_access.OTHER_PLACE
        for i in range(self._place(address), self.count):
            self._order[i - 1] = self._order[i]
        self.count -= 1
        r.address = r.size = r.state = 0
        return array_access.FINE

    def _reserve(self, slot: int) -> None:
        if slot < self._slots:
            return
        slots = max(16, self._slots)
        while slots <= slot:
            slots *= 2
        compiled = bool(array_access.COMPILED)
        self._region_store = row_storage.grown(
            self._region_store, row_storage.REGION_ROW, slots, compiled=compiled
        )
        self._order_store = row_storage.grown(self._order_store, row_storage.NUMBER, slots, compiled=compiled)
        self._regions = array_access.regions(self._region_store)
        self._order = array_access.numbers(self._order_store)
        self._slots = slots

    def _start(self, at: int) -> int:
        start: int = array_access.region(self._regions, self._order[at]).address
        return start

    def _end(self, at: int) -> int:
        r = array_access.region(self._regions, self._order[at])
        end: int = r.address + r.size
        return end

    def _place(self, address: int) -> int:
        """Number of region rows that begin at or below `address`."""
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if self._start(middle) <= address:
                low = middle + 1
            else:
                high = middle
        return low
