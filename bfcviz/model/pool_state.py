"""PoolState: the chunks and regions of one pool, and events applied and undone on them; compiled where possible.

::

    address   0x1000                             0x5000
              |--------- region, slot 0 ---------|
              [ in use 7 ][        free 2        ]
    SPLIT     [ in use 7 ][ free 2 ][   free 9   ]    undone: 9 merges back into 2
    ALLOCATE  [ in use 7 ][in use 2][   free 9   ]    undone: 2 is free again
    FREE      [ in use 7 ][ free 2 ][   free 9   ]    undone: 2 is in use, as the record says
    MERGE     [ in use 7 ][        free 2        ]    undone: 9 is split off the end of 2

A chunk has the row of its handle, so an event changes one or two rows and needs no search. Every event is checked
against its rows before anything changes: a contradiction raises and leaves the state at the step before. `undo`
needs only the records.

Peaks cannot be undone from records. They hold for the furthest step applied (`peaks_step`); `Model` computes them
again from a snapshot where the state is before that step.

The C types are in `pool_state.pxd`; `array_access` has what C and Python write differently.
"""

from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import taken
from bfcviz.model import array_access, row_storage
from bfcviz.model.extremes import Extremes
from bfcviz.model.state_snapshots import Snapshot

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


# ------------------------------------------------------------------------------
# What is wrong with an event, as a sentence: from the code that `PoolState` found, the record and its chunks.


_STATES = {array_access.CHUNK_FREE: "free", array_access.CHUNK_IN_USE: "in use"}

_CONTRADICTIONS = {
    array_access.WRONG_STEP: "its number is {seq}: events are missing, repeated or out of order",
    array_access.WRONG_POOL: "its pool is {pool}, which the trace does not have",
    array_access.UNKNOWN_KIND: "{kind_number} is not a kind of event",
    array_access.ABSENT: "its chunk does not exist: {chunk}; {other}",
    array_access.NOT_FREE: "its chunk must be free and is in use: {chunk}; {other}",
    array_access.NOT_IN_USE: "the chunk is not in use: {chunk}",
    array_access.OTHER_REGION: "its region is {region}, but {chunk}; {other}",
    array_access.OTHER_PLACE: "it has {size} bytes at {address:#x}, but {chunk}; {other}",
    array_access.OTHER_OWNER: (
        "it has {requested} bytes requested, label {label}, thread {thread}, stream {stream}, allocated by an "
        "event whose low 32 bits are {other_number}, but {chunk}"
    ),
    array_access.SHORT: "{requested} bytes were requested, more than the chunk's {size}",
    array_access.EMPTY: "its size is 0 bytes",
    array_access.TOO_LARGE: "{size} bytes at {address:#x} are too large: {chunk}",
    array_access.HANDLE_TAKEN: "the new chunk's handle is taken: {chunk}; {other}",
    array_access.HANDLE_TOO_HIGH: "the new chunk's handle is higher than the number of chunks possible at this step",
    array_access.NOT_NEIGHBOURS: "the chunks are not neighbours: {chunk}; {other}",
    array_access.SLOT_TAKEN: "region {region} exists already",
    array_access.SLOT_EMPTY: "region {region} does not exist",
    array_access.OVERLAP: "{size} bytes at {address:#x} overlap another region",
    array_access.NOT_AT_END: "it extends region {region} at {address:#x}, which is not the region's end",
}


def _contradiction_text(
    code: int, record: np.void, event: int, chunk: np.void | None, other: np.void | None
) -> str:
    """One sentence that names the event, its kind and the contradiction.

    Args:
        code: a contradiction code of `array_access`.
        record: the event, of `EVENT`.
        event: its index; the state is at the step before it, which has the same number.
        chunk: the CHUNK_ROW of the record's `chunk`; None where no such row exists.
        other: the row of its `other`.
    """
    fields = {name: record[name].item() for name in record.dtype.names or ()}
    second = fields["kind"] in (Kind.SPLIT, Kind.MERGE)
    words = {
        "kind_number": fields["kind"],
        "other_number": fields["other"],
        "chunk": _contradiction_chunk_text(fields["chunk"], chunk),
        "other": _contradiction_chunk_text(fields["other"], other) if second else "",
    }
    described = _CONTRADICTIONS[code].format(**{**fields, **words})
    kind = Kind(fields["kind"]).name if fields["kind"] in set(Kind) else f"kind {fields['kind']}"
    return (
        f"event {event} ({kind} of chunk {fields['chunk']}): {described.removesuffix('; ')}. The file is damaged, or "
        f"some before it are missing; `bfcviz convert FILE --range :{event} -o part.parquet` writes the events before"
    )


def _contradiction_chunk_text(handle: int, row: np.void | None) -> str:
    if row is None or row["state"] == array_access.NOTHING:
        return f"chunk {handle} does not exist"
    words = (
        f"chunk {handle} is {_STATES[int(row['state'])]}, {row['size']} bytes at {row['address']:#x} "
        f"of region {row['region']}"
    )
    if row["state"] == array_access.CHUNK_IN_USE:
        words += (
            f", {row['requested']} requested, label {row['label']}, thread {row['thread']}, "
            f"stream {row['stream']}, allocated by event {row['born']}"
        )
    return words


# ------------------------------------------------------------------------------
# PoolState: the state, and the events that are applied to it and undone.


class PoolState:
    """The chunks, regions and totals of one pool after the first `step` events of a trace.

    Attributes (read only):
        pool, wanted: index of this pool, and the size given to `watch`.
        pools: number of pools of the trace; a recording may get more.
        step: events applied, including those of other pools.
        bytes_in_use, requested_bytes_in_use, pool_bytes, free_bytes: totals, in bytes.
        num_allocs, ooms, chunks_in_use, chunks_free: counts.
        peak_bytes_in_use, peak_pool_bytes, largest_alloc_size: the largest up to `peaks_step`.
        peaks_step: the furthest step applied.
    """

    def __init__(self, pool: int = 0, pools: int = 1) -> None:
        self.pool = pool
        self.pools = pools
        self.wanted = 0
        self.clear()

    def clear(self) -> None:
        """Set the state of a pool back to step 0: no region, no chunk."""
        self.step = self.peaks_step = 0
        self.bytes_in_use = self.requested_bytes_in_use = self.pool_bytes = self.free_bytes = 0
        self.num_allocs = self.ooms = self.chunks_in_use = 0
        self.peak_bytes_in_use = self.peak_pool_bytes = self.largest_alloc_size = 0
        self._chunks, self._regions, self._extremes = ChunkRows(), RegionRows(), Extremes()
        self._chunks.free_sizes.watch(self.wanted)

    def watch(self, wanted: int) -> None:
        """From now on, also measure in the state of a pool the bytes in free chunks smaller than `wanted` bytes."""
        self.wanted = wanted
        self._chunks.free_sizes.watch(wanted)

    @property
    def chunks_free(self) -> int:
        """Number of free chunks in the state of a pool."""
        return self._chunks.free

    @property
    def largest_free_chunk(self) -> int:
        """Size of the largest free chunk in the state of a pool, in bytes, 0 where nothing is free."""
        return self._chunks.free_sizes.largest()

    def apply(self, block: Events) -> None:
        """Apply a block of events to the state of a pool, those from `step` on.

        Raises:
            TraceError: an event contradicts the state, which stays at the step before that event.
        """
        self._run(block, noting=False)

    def measure(self, block: Events) -> None:
        """Apply a block of events to the state of a pool, and record the extremes of every series after each."""
        self._run(block, noting=True)

    def _run(self, block: Events, *, noting: bool) -> None:
        block = row_storage.contiguous(block)
        count = len(block)
        if count == 0:
            return
        records = array_access.events(block)
        for i in range(count):
            e = array_access.event(records, i)
            code = self._forward(e)
            if code != array_access.FINE:
                self._refuse(code, block[i])
            if noting:
                self._note(e.time)

    def undo(self, block: Events) -> None:
        """Undo a block of events on the state of a pool, those up to `step`; the inverse of `apply`.

        Raises:
            TraceError: these are not the events that led to this state; it stays at the step where that was found.
        """
        block = row_storage.contiguous(block)
        count = len(block)
        if count == 0:
            return
        records = array_access.events(block)
        for i in range(count - 1, -1, -1):
            code = self._back(array_access.event(records, i))
            if code != array_access.FINE:
                self._refuse(code, block[i])

    def extremes(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The extremes that `measure` of a pool's state took since the last call; see `Extremes.taken`."""
        return self._extremes.taken()

    # -- export and restore the whole state ---------------------------------------------------------------------

    def chunk_rows(self) -> NDArray[np.void]:
        """A copy of every chunk in the state of a pool, in no order, of CHUNK_ROW."""
        return self._chunks.exported()

    def rows_by_handle(self) -> NDArray[np.void]:
        """The row of each handle in a pool's state, of CHUNK_ROW, also without a chunk; valid until the next event."""
        return self._chunks.by_handle()

    def region_rows(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every region in the state of a pool by ascending address: rows of REGION_ROW, and their slots."""
        return self._regions.exported()

    def snapshot(self) -> Snapshot:
        """The state of a pool, for `restore`; the peaks must be up to date (`peaks_step` is `step`)."""
        region_rows, slots = self.region_rows()
        return Snapshot(
            self.step,
            self.chunk_rows(),
            region_rows,
            slots,
            self.num_allocs,
            self.ooms,
            self.peak_bytes_in_use,
            self.peak_pool_bytes,
            self.largest_alloc_size,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a pool's state that `snapshot` or `keyframes.decode` returned."""
        self.clear()
        self._chunks.load(snapshot.chunk_rows)
        self._regions.load(snapshot.region_rows, snapshot.slots)
        used = snapshot.chunk_rows[snapshot.chunk_rows["state"] == array_access.CHUNK_IN_USE]
        self.step = snapshot.step
        self.pool_bytes = snapshot.pool_bytes
        self.bytes_in_use = snapshot.bytes_in_use
        self.requested_bytes_in_use = int(used["requested"].sum())
        self.free_bytes = self.pool_bytes - self.bytes_in_use
        self.chunks_in_use = len(used)
        self.num_allocs = snapshot.num_allocs
        self.ooms = snapshot.ooms
        self.recall_peaks(snapshot.peak_bytes_in_use, snapshot.peak_pool_bytes, snapshot.largest_alloc_size)

    def recall_peaks(self, peak_bytes_in_use: int, peak_pool_bytes: int, largest_alloc_size: int) -> None:
        """Set the peaks in the state of a pool up to `step`, which the caller computed."""
        self.peaks_step = self.step
        self.peak_bytes_in_use = peak_bytes_in_use
        self.peak_pool_bytes = peak_pool_bytes
        self.largest_alloc_size = largest_alloc_size

    # -- one event ---------------------------------------------------------------------------------------

    def _forward(self, e: Any) -> int:
        code = self._check(e, self.step)
        if code == array_access.FINE and e.pool == self.pool:
            code = self._do(e)
        if code == array_access.FINE:
            self.step += 1
            self.peaks_step = max(self.peaks_step, self.step)
        return code

    def _back(self, e: Any) -> int:
        code = self._check(e, self.step - 1)
        if code == array_access.FINE and e.pool == self.pool:
            code = self._undo(e)
        if code == array_access.FINE:
            self.step -= 1
        return code

    def _check(self, e: Any, seq: int) -> int:
        if e.seq != seq:
            return array_access.WRONG_STEP
        if e.kind < array_access.EXTEND or e.kind > array_access.MARK:
            return array_access.UNKNOWN_KIND
        return array_access.WRONG_POOL if e.pool >= self.pools else array_access.FINE

    def _do(self, e: Any) -> int:
        code, kind = array_access.FINE, e.kind
        if kind == array_access.ALLOCATE:
            code = self._allocate(e)
        elif kind == array_access.FREE:
            code = self._free(e)
        elif kind == array_access.SPLIT:
            code = self._split_off(e)
        elif kind == array_access.MERGE:
            code = self._append(e)
        elif kind == array_access.EXTEND:
            code = self._add_bytes(e)
        elif kind == array_access.RELEASE:
            code = self._remove_bytes(e)
        elif kind == array_access.OOM:
            self.ooms += 1
        return code

    def _undo(self, e: Any) -> int:
        code, kind = array_access.FINE, e.kind
        if kind == array_access.ALLOCATE:
            code = self._undo_allocate(e)
        elif kind == array_access.FREE:
            code = self._undo_free(e)
        elif kind == array_access.SPLIT:
            code = self._append(e)
        elif kind == array_access.MERGE:
            code = self._split_off(e)
        elif kind == array_access.EXTEND:
            code = self._remove_bytes(e)
        elif kind == array_access.RELEASE:
            code = self._add_bytes(e)
        elif kind == array_access.OOM:
            self.ooms -= 1
        return code

    def _allocate(self, e: Any) -> int:
        code = self._free_here(e)
        if code != array_access.FINE:
            return code
        if e.requested > e.size:
            return array_access.SHORT
        self._mark_in_use(e, e.seq)
        self.num_allocs += 1
        self.peak_bytes_in_use = max(self.peak_bytes_in_use, self.bytes_in_use)
        self.largest_alloc_size = max(self.largest_alloc_size, e.size)
        return array_access.FINE

    def _undo_allocate(self, e: Any) -> int:
        code = self._matches_owner(e, e.seq)
        if code == array_access.FINE:
            self._mark_free(e)
            self.num_allocs -= 1
        return code

    def _free(self, e: Any) -> int:
        code = self._matches_owner(e, self._born(e))
        if code == array_access.FINE:
            self._mark_free(e)
        return code

    def _undo_free(self, e: Any) -> int:
        code = self._free_here(e)
        if code == array_access.FINE:
            self._mark_in_use(e, self._born(e))
        return code

    def _born(self, e: Any) -> int:
        """The latest step before this FREE whose low 32 bits are the record's `other`."""
        high = e.seq >> 32
        if e.other > e.seq - (high << 32) and high > 0:
            high -= 1
        born: int = (high << 32) + e.other
        return born

    def _matches_owner(self, e: Any, born: int) -> int:
        """FINE where the chunk of an event is in use exactly as the record says; else undoing would lose facts."""
        code = self._chunks.look(e.chunk, e.region, array_access.CHUNK_IN_USE)
        if code != array_access.FINE:
            return code
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        if c.address != e.address or c.size != e.size:
            return array_access.OTHER_PLACE
        if c.born != born or c.requested != e.requested or c.label != e.label:
            return array_access.OTHER_OWNER
        if c.thread != e.thread or c.stream != e.stream:
            return array_access.OTHER_OWNER
        return array_access.FINE

    def _mark_in_use(self, e: Any, born: int) -> None:
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        c.state = array_access.CHUNK_IN_USE
        c.requested = e.requested
        c.born = born
        c.label = e.label
        c.thread = e.thread
        c.stream = e.stream
        self._chunks.free_sizes.set(e.chunk, 0)
        self.bytes_in_use += e.size
        self.requested_bytes_in_use += e.requested
        self.free_bytes -= e.size
        self.chunks_in_use += 1
        self._chunks.free -= 1

    def _mark_free(self, e: Any) -> None:
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        c.state = array_access.CHUNK_FREE
        c.requested = c.born = c.label = c.thread = c.stream = 0
        self._chunks.free_sizes.set(e.chunk, e.size)
        self.bytes_in_use -= e.size
        self.requested_bytes_in_use -= e.requested
        self.free_bytes += e.size
        self.chunks_in_use -= 1
        self._chunks.free += 1

    def _split_off(self, e: Any) -> int:
        """SPLIT, or MERGE undone: chunk `other` is split off the end of `chunk`."""
        code = self._chunks.look(e.chunk, e.region, array_access.CHUNK_FREE)
        if code == array_access.FINE:
            code = self._chunks.vacant(e.other, e.seq)
        if code != array_access.FINE:
            return code
        self._chunks.reserve(e.other)
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        if e.size == 0:
            return array_access.EMPTY
        if e.size >= c.size:
            return array_access.TOO_LARGE
        if e.address != c.address + c.size - e.size:
            return array_access.OTHER_PLACE
        self._chunks.add(e.other, e.address, e.size, e.region)
        c.size -= e.size
        self._chunks.free_sizes.set(e.chunk, c.size)
        return array_access.FINE

    def _append(self, e: Any) -> int:
        """MERGE, or SPLIT undone: chunk `other` is appended to the end of `chunk`."""
        code = self._chunks.look(e.chunk, e.region, array_access.CHUNK_FREE)
        if code == array_access.FINE:
            code = self._chunks.look(e.other, e.region, array_access.CHUNK_FREE)
        if code != array_access.FINE:
            return code
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        o = array_access.chunk(self._chunks.chunks, e.other)
        if o.address != e.address or o.size != e.size:
            return array_access.OTHER_PLACE
        if c.address + c.size != e.address:
            return array_access.NOT_NEIGHBOURS
        self._chunks.drop(e.other)
        c.size += e.size
        self._chunks.free_sizes.set(e.chunk, c.size)
        return array_access.FINE

    def _add_bytes(self, e: Any) -> int:
        """EXTEND, or RELEASE undone: a region is added, or extended, by a free chunk."""
        code = self._addable(e)
        if code == array_access.FINE:
            if e.kind == array_access.EXTEND and e.flags & array_access.GREW:
                code = self._regions.lengthen(e.region, e.address, e.size)
            else:
                code = self._regions.add(e.region, e.address, e.size)
        if code == array_access.FINE:
            self._chunks.reserve(e.chunk)
            self._chunks.add(e.chunk, e.address, e.size, e.region)
            self.pool_bytes += e.size
            self.free_bytes += e.size
            self.peak_pool_bytes = max(self.peak_pool_bytes, self.pool_bytes)
        return code

    def _remove_bytes(self, e: Any) -> int:
        """RELEASE, or EXTEND undone: a region is removed, or shortened, by a free chunk."""
        code = self._free_here(e)
        if code == array_access.FINE:
            if e.kind == array_access.EXTEND and e.flags & array_access.GREW:
                code = self._regions.shorten(e.region, e.address, e.size)
            else:
                code = self._regions.remove(e.region, e.address, e.size)
        if code == array_access.FINE:
            self._chunks.drop(e.chunk)
            self.pool_bytes -= e.size
            self.free_bytes -= e.size
        return code

    def _addable(self, e: Any) -> int:
        if e.size == 0:
            return array_access.EMPTY
        if array_access.passes_end(e.address, e.size):
            return array_access.TOO_LARGE
        return self._chunks.vacant(e.chunk, e.seq)

    def _free_here(self, e: Any) -> int:
        """FINE where the chunk is free and has the address and size of the record."""
        code = self._chunks.look(e.chunk, e.region, array_access.CHUNK_FREE)
        if code != array_access.FINE:
            return code
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        return array_access.FINE if c.address == e.address and c.size == e.size else array_access.OTHER_PLACE

    # -- measure, and report contradictions -------------------------------------------------------------

    def _note(self, time: int) -> None:
        """Add the values of a pool's state after this event to the extremes."""
        free_sizes = self._chunks.free_sizes
        self._extremes.begin(self.step, time)
        self._extremes.fold_use(self.bytes_in_use, self.requested_bytes_in_use, self.pool_bytes)
        self._extremes.fold_free(self.free_bytes, free_sizes.largest(), free_sizes.below)

    def _refuse(self, code: int, record: np.void) -> Never:
        """Raise the sentence that says why the record of an event does not fit the state of a pool."""
        chunk, other = (self._chunks.row(int(record[name])) for name in ("chunk", "other"))
        raise TraceError(_contradiction_text(code, record, self.step, chunk, other))
