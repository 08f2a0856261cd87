"""Events -> the chunk table of one pool, forwards and back; compiled where there is a compiler.

::

    address  0x1000                                                             0x5000
             |------------------------- region, slot 0 --------------------------|
             [ in use 7 ][  free 2  ][ in use 9 ][           free 4              ]
    events   SPLIT 2 -> 2 + 9, ALLOCATE 9      FREE 9, MERGE 9 <- 4, MERGE 2 <- 9
    undone   FREE 9 again, MERGE 9 back into 2   SPLIT 2, SPLIT 9, hand 9 out again

Chunks lie in rows by their handle, so an event touches one or two rows and no search is needed. Every event
is checked against the rows it names before anything changes: a contradiction raises and leaves the table at
the step before. `undo` needs nothing but the records themselves.

The largest free chunk is the root of a tournament over the handles, eight to a match: a change climbs only
while it changes the winner, which for most chunks is not even once, and never more than log8(handles) levels.

Peaks cannot be undone from records. They are kept for the furthest step applied (`peaks_step`); `replay`
works them out again from a snapshot when the table stands before that.

This is one file past the usual length because Cython inlines only within a module. The C types are in
`reduce.pxd`, what the two languages spell differently is in `raw`.
"""

from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events
from bfcviz.model import contradictions, raw, rows


class ChunkTable:
    """The chunks, regions and totals of one pool after the first `step` events of a trace.

    Attributes (read only):
        pool, pools: which pool this is, and how many the trace has.
        step: events applied so far, those of other pools included.
        bytes_in_use, requested_bytes_in_use, pool_bytes, free_bytes: totals, in bytes.
        num_allocs, ooms, chunks_in_use, chunks_free: counts.
        peak_bytes_in_use, peak_pool_bytes, largest_alloc_size: the largest up to `peaks_step`.
        peaks_step: the furthest step applied.
    """

    def __init__(self, pool: int = 0, pools: int = 1) -> None:
        self.pool = pool
        self.pools = pools
        self.clear()

    @property
    def compiled(self) -> bool:
        """Whether this runs as machine code."""
        return bool(raw.COMPILED)

    def clear(self) -> None:
        """Go back to step 0: no region, no chunk."""
        self.step = self.peaks_step = 0
        self.bytes_in_use = self.requested_bytes_in_use = self.pool_bytes = self.free_bytes = 0
        self.num_allocs = self.ooms = self.chunks_in_use = self.chunks_free = self.live_regions = 0
        self.peak_bytes_in_use = self.peak_pool_bytes = self.largest_alloc_size = 0
        self._capacity = self._leaves = self._slots = 0
        self._chunk_store: Any = None
        self._region_store: Any = None
        self._order_store: Any = None
        self._tree_store = rows.grown(None, rows.NUMBER, 1, compiled=bool(raw.COMPILED))
        self._tree = raw.numbers(self._tree_store)
        self._series_store = rows.grown(None, rows.EXTREMES_ROW, 5, compiled=bool(raw.COMPILED))
        self._series = raw.extremes(self._series_store)
        self._measuring = False
        self._ratio_low = self._ratio_high = 0.0
        self._ratio_low_step = self._ratio_high_step = self._ratio_low_time = self._ratio_high_time = 0

    @property
    def largest_free_chunk(self) -> int:
        """Size of the largest free chunk, 0 where nothing is free."""
        return self._tree[0]

    def apply(self, block: Events) -> None:
        """Take the table forward over `block`, the events from `step` on.

        Raises:
            TraceError: an event contradicts the table, which stays at the step before that event.
        """
        block = rows.contiguous(block)
        count = len(block)
        if count == 0:
            return
        records = raw.events(block)
        for i in range(count):
            code = self._forward(raw.event(records, i))
            if code != raw.FINE:
                self._refuse(code, block[i])

    def undo(self, block: Events) -> None:
        """Take the table back over `block`, the events up to `step`; the inverse of `apply`.

        Raises:
            TraceError: these are not the events that led here; the table stays where that shows.
        """
        block = rows.contiguous(block)
        count = len(block)
        if count == 0:
            return
        records = raw.events(block)
        for i in range(count - 1, -1, -1):
            code = self._back(raw.event(records, i))
            if code != raw.FINE:
                self._refuse(code, block[i])

    def measure(self, block: Events) -> None:
        """As `apply`, and note the extremes of every series after each event; `extremes` hands them out."""
        block = rows.contiguous(block)
        count = len(block)
        if count == 0:
            return
        records = raw.events(block)
        for i in range(count):
            e = raw.event(records, i)
            code = self._forward(e)
            if code != raw.FINE:
                self._refuse(code, block[i])
            self._note(e.time)

    def extremes(self) -> tuple[NDArray[np.void], tuple[float, float, int, int, int, int]]:
        """What `measure` saw since the last call: a row of EXTREMES_ROW a series, in the order of `raw`.

        External fragmentation, a ratio, is apart: (low, high, low_step, high_step, low_time, high_time).
        """
        self._measuring = False
        ratio = (
            self._ratio_low,
            self._ratio_high,
            self._ratio_low_step,
            self._ratio_high_step,
            self._ratio_low_time,
            self._ratio_high_time,
        )
        return rows.exported(self._series_store, rows.EXTREMES_ROW).copy(), ratio

    # -- the whole table, out and in ---------------------------------------------------------------------

    def chunk_rows(self) -> NDArray[np.void]:
        """Every chunk, in no order: a copy, of CHUNK_ROW."""
        if self._capacity == 0:
            return np.zeros(0, rows.CHUNK_ROW)
        table = rows.exported(self._chunk_store, rows.CHUNK_ROW)
        return rows.taken(table, table["state"] != raw.NOTHING)

    def region_rows(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every region by ascending address: rows of REGION_ROW, and their slots."""
        if self._slots == 0:
            return np.zeros(0, rows.REGION_ROW), np.zeros(0, np.uint64)
        slots = np.array(self._order_store[: self.live_regions], np.uint64)
        return rows.exported(self._region_store, rows.REGION_ROW)[slots.astype(np.intp)], slots

    def restore(
        self,
        step: int,
        chunk_rows: NDArray[np.void],
        region_rows: NDArray[np.void],
        slots: NDArray[np.uint64],
    ) -> None:
        """Set the table to chunks and regions that `keyframes` has checked; `recall` sets the counts.

        Arguments are as `chunk_rows` and `region_rows` hand them out.
        """
        self.clear()
        self.step = self.peaks_step = step
        if len(chunk_rows):
            self._reserve_chunk(int(chunk_rows["handle"].max()))
            rows.put(self._chunk_store, chunk_rows["handle"], chunk_rows)
        if len(slots):
            self._reserve_slot(int(slots.max()))
            rows.put(self._region_store, slots.astype(np.intp), region_rows)
            for at, slot in enumerate(slots.tolist()):
                self._order[at] = slot
        self.live_regions = len(slots)
        self.pool_bytes = int(region_rows["size"].sum())
        used = chunk_rows[chunk_rows["state"] == raw.CHUNK_IN_USE]
        self.bytes_in_use = int(used["size"].sum())
        self.requested_bytes_in_use = int(used["requested"].sum())
        self.free_bytes = self.pool_bytes - self.bytes_in_use
        self.chunks_in_use = len(used)
        self.chunks_free = len(chunk_rows) - len(used)
        free = chunk_rows[chunk_rows["state"] == raw.CHUNK_FREE]
        for handle, size in zip(free["handle"].tolist(), free["size"].tolist(), strict=True):
            self._set_free_size(handle, size)

    def recall(self, num_allocs: int, ooms: int) -> None:
        """Set the counts that chunks and regions do not show."""
        self.num_allocs = num_allocs
        self.ooms = ooms

    def recall_peaks(self, peak_bytes_in_use: int, peak_pool_bytes: int, largest_alloc_size: int) -> None:
        """Set the peaks up to `step`, which the caller has worked out."""
        self.peaks_step = self.step
        self.peak_bytes_in_use = peak_bytes_in_use
        self.peak_pool_bytes = peak_pool_bytes
        self.largest_alloc_size = largest_alloc_size

    # -- one event ---------------------------------------------------------------------------------------

    def _forward(self, e: Any) -> int:
        code = self._check(e, self.step)
        if code == raw.FINE and e.pool == self.pool:
            code = self._do(e)
        if code == raw.FINE:
            self.step += 1
            self.peaks_step = max(self.peaks_step, self.step)
        return code

    def _back(self, e: Any) -> int:
        code = self._check(e, self.step - 1)
        if code == raw.FINE and e.pool == self.pool:
            code = self._undo(e)
        if code == raw.FINE:
            self.step -= 1
        return code

    def _check(self, e: Any, seq: int) -> int:
        if e.seq != seq:
            return raw.WRONG_STEP
        if e.kind < raw.EXTEND or e.kind > raw.MARK:
            return raw.UNKNOWN_KIND
        return raw.WRONG_POOL if e.pool >= self.pools else raw.FINE

    def _do(self, e: Any) -> int:
        code, kind = raw.FINE, e.kind
        if kind == raw.ALLOCATE:
            code = self._allocate(e)
        elif kind == raw.FREE:
            code = self._free(e)
        elif kind == raw.SPLIT:
            code = self._cut(e)
        elif kind == raw.MERGE:
            code = self._join(e)
        elif kind == raw.EXTEND:
            code = self._extend(e)
        elif kind == raw.RELEASE:
            code = self._release(e)
        elif kind == raw.OOM:
            self.ooms += 1
        return code

    def _undo(self, e: Any) -> int:
        code, kind = raw.FINE, e.kind
        if kind == raw.ALLOCATE:
            code = self._undo_allocate(e)
        elif kind == raw.FREE:
            code = self._undo_free(e)
        elif kind == raw.SPLIT:
            code = self._join(e)
        elif kind == raw.MERGE:
            code = self._cut(e)
        elif kind == raw.EXTEND:
            code = self._undo_extend(e)
        elif kind == raw.RELEASE:
            code = self._grant(e)
        elif kind == raw.OOM:
            self.ooms -= 1
        return code

    def _look(self, handle: int, region: int, state: int) -> int:
        """FINE when the chunk exists, lies in the region and is in the state."""
        if handle >= self._capacity:
            return raw.ABSENT
        c = raw.chunk(self._chunks, handle)
        if c.state != state:
            if c.state == raw.NOTHING:
                return raw.ABSENT
            return raw.NOT_FREE if state == raw.CHUNK_FREE else raw.NOT_IN_USE
        return raw.FINE if c.region == region else raw.OTHER_REGION

    def _allocate(self, e: Any) -> int:
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        if c.address != e.address or c.size != e.size:
            return raw.OTHER_PLACE
        if e.requested > e.size:
            return raw.SHORT
        self._hand_out(e, e.seq)
        self.num_allocs += 1
        self.peak_bytes_in_use = max(self.peak_bytes_in_use, self.bytes_in_use)
        self.largest_alloc_size = max(self.largest_alloc_size, e.size)
        return raw.FINE

    def _undo_allocate(self, e: Any) -> int:
        code = self._owned(e, e.seq)
        if code == raw.FINE:
            self._take_back(e)
            self.num_allocs -= 1
        return code

    def _free(self, e: Any) -> int:
        code = self._owned(e, self._born(e))
        if code == raw.FINE:
            self._take_back(e)
        return code

    def _undo_free(self, e: Any) -> int:
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        if c.address != e.address or c.size != e.size:
            return raw.OTHER_PLACE
        self._hand_out(e, self._born(e))
        return raw.FINE

    def _born(self, e: Any) -> int:
        """The latest step before this FREE whose low 32 bits are the record's `other`."""
        high = e.seq >> 32
        if e.other > e.seq - (high << 32) and high > 0:
            high -= 1
        born: int = (high << 32) + e.other
        return born

    def _owned(self, e: Any, born: int) -> int:
        """FINE when the chunk is in use exactly as the record says: else undoing it would lose something."""
        code = self._look(e.chunk, e.region, raw.CHUNK_IN_USE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        if c.address != e.address or c.size != e.size:
            return raw.OTHER_PLACE
        if c.born != born or c.requested != e.requested or c.label != e.label:
            return raw.OTHER_OWNER
        if c.thread != e.thread or c.stream != e.stream:
            return raw.OTHER_OWNER
        return raw.FINE

    def _hand_out(self, e: Any, born: int) -> None:
        c = raw.chunk(self._chunks, e.chunk)
        c.state = raw.CHUNK_IN_USE
        c.requested = e.requested
        c.born = born
        c.label = e.label
        c.thread = e.thread
        c.stream = e.stream
        self._set_free_size(e.chunk, 0)
        self.bytes_in_use += e.size
        self.requested_bytes_in_use += e.requested
        self.free_bytes -= e.size
        self.chunks_in_use += 1
        self.chunks_free -= 1

    def _take_back(self, e: Any) -> None:
        c = raw.chunk(self._chunks, e.chunk)
        c.state = raw.CHUNK_FREE
        c.requested = c.born = c.label = c.thread = c.stream = 0
        self._set_free_size(e.chunk, e.size)
        self.bytes_in_use -= e.size
        self.requested_bytes_in_use -= e.requested
        self.free_bytes += e.size
        self.chunks_in_use -= 1
        self.chunks_free += 1

    def _cut(self, e: Any) -> int:
        """SPLIT, or MERGE undone: chunk `other` comes off the end of `chunk`."""
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code == raw.FINE:
            code = self._vacant(e.other, e.seq)
        if code != raw.FINE:
            return code
        self._reserve_chunk(e.other)
        c = raw.chunk(self._chunks, e.chunk)
        if e.size == 0:
            return raw.EMPTY
        if e.size >= c.size:
            return raw.TOO_LARGE
        if e.address != c.address + c.size - e.size:
            return raw.OTHER_PLACE
        self._add_chunk(e.other, e.address, e.size, e.region)
        c.size -= e.size
        self._set_free_size(e.chunk, c.size)
        return raw.FINE

    def _join(self, e: Any) -> int:
        """MERGE, or SPLIT undone: chunk `other` goes back onto the end of `chunk`."""
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code == raw.FINE:
            code = self._look(e.other, e.region, raw.CHUNK_FREE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        o = raw.chunk(self._chunks, e.other)
        if o.address != e.address or o.size != e.size:
            return raw.OTHER_PLACE
        if c.address + c.size != e.address:
            return raw.NOT_NEIGHBOURS
        self._drop_chunk(e.other)
        c.size += e.size
        self._set_free_size(e.chunk, c.size)
        return raw.FINE

    def _extend(self, e: Any) -> int:
        grew = e.flags & raw.GREW
        code = self._grow_region(e) if grew else self._grant(e)
        if code == raw.FINE:
            self.peak_pool_bytes = max(self.peak_pool_bytes, self.pool_bytes)
        return code

    def _grant(self, e: Any) -> int:
        """EXTEND, or RELEASE undone: a new region, all of it one free chunk."""
        code = self._grantable(e)
        if code != raw.FINE:
            return code
        self._reserve_slot(e.region)
        r = raw.region(self._regions, e.region)
        if r.state != raw.NOTHING:
            return raw.SLOT_TAKEN
        at = self._place(e.address)
        if at > 0 and self._end(at - 1) > e.address:
            return raw.OVERLAP
        if at < self.live_regions and self._start(at) < e.address + e.size:
            return raw.OVERLAP
        for i in range(self.live_regions, at, -1):
            self._order[i] = self._order[i - 1]
        self._order[at] = e.region
        self.live_regions += 1
        r.address = e.address
        r.size = e.size
        r.state = raw.REGION_LIVE
        self._add_grant(e)
        return raw.FINE

    def _grow_region(self, e: Any) -> int:
        """EXTEND with `Flag.GREW`: the region gets a free chunk at its end."""
        code = self._grantable(e)
        if code != raw.FINE:
            return code
        if e.region >= self._slots or raw.region(self._regions, e.region).state == raw.NOTHING:
            return raw.SLOT_EMPTY
        r = raw.region(self._regions, e.region)
        if e.address != r.address + r.size:
            return raw.NOT_AT_END
        at = self._place(e.address)
        if at < self.live_regions and self._start(at) < e.address + e.size:
            return raw.OVERLAP
        r.size += e.size
        self._add_grant(e)
        return raw.FINE

    def _grantable(self, e: Any) -> int:
        if e.size == 0:
            return raw.EMPTY
        if raw.passes_end(e.address, e.size):
            return raw.TOO_LARGE
        return self._vacant(e.chunk, e.seq)

    def _undo_extend(self, e: Any) -> int:
        if not e.flags & raw.GREW:
            return self._release(e)
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        r = raw.region(self._regions, e.region)
        if c.address != e.address or c.size != e.size or e.address + e.size != r.address + r.size:
            return raw.OTHER_PLACE
        if r.size == e.size:
            return raw.NOT_AT_END
        r.size -= e.size
        self._drop_grant(e)
        return raw.FINE

    def _release(self, e: Any) -> int:
        """RELEASE, or EXTEND undone: the region goes, which was one free chunk."""
        code = self._look(e.chunk, e.region, raw.CHUNK_FREE)
        if code != raw.FINE:
            return code
        c = raw.chunk(self._chunks, e.chunk)
        r = raw.region(self._regions, e.region)
        if r.address != e.address or r.size != e.size:
            return raw.OTHER_PLACE
        if c.size != r.size:
            return raw.NOT_WHOLE
        for i in range(self._place(e.address), self.live_regions):
            self._order[i - 1] = self._order[i]
        self.live_regions -= 1
        r.address = r.size = r.state = 0
        self._drop_grant(e)
        return raw.FINE

    # -- rows --------------------------------------------------------------------------------------------

    def _vacant(self, handle: int, seq: int) -> int:
        """FINE when a new chunk can have this handle. An event makes one chunk at most, which bounds it."""
        if handle > seq + 1:
            return raw.HANDLE_TOO_HIGH
        if handle < self._capacity and raw.chunk(self._chunks, handle).state != raw.NOTHING:
            return raw.HANDLE_TAKEN
        return raw.FINE

    def _add_grant(self, e: Any) -> None:
        self._reserve_chunk(e.chunk)
        self._add_chunk(e.chunk, e.address, e.size, e.region)
        self.pool_bytes += e.size
        self.free_bytes += e.size

    def _drop_grant(self, e: Any) -> None:
        self._drop_chunk(e.chunk)
        self.pool_bytes -= e.size
        self.free_bytes -= e.size

    def _add_chunk(self, handle: int, address: int, size: int, region: int) -> None:
        c = raw.chunk(self._chunks, handle)
        c.address = address
        c.size = size
        c.handle = handle
        c.region = region
        c.state = raw.CHUNK_FREE
        self._set_free_size(handle, size)
        self.chunks_free += 1

    def _drop_chunk(self, handle: int) -> None:
        c = raw.chunk(self._chunks, handle)
        c.address = c.size = c.handle = c.region = c.state = 0
        self._set_free_size(handle, 0)
        self.chunks_free -= 1

    def _reserve_chunk(self, handle: int) -> None:
        if handle < self._capacity:
            return
        capacity = max(64, self._capacity)
        while capacity <= handle:
            capacity *= 2
        self._chunk_store = rows.grown(
            self._chunk_store, rows.CHUNK_ROW, capacity, compiled=bool(raw.COMPILED)
        )
        self._chunks = raw.chunks(self._chunk_store)
        self._capacity = capacity
        while self._leaves < capacity:
            self._grow_tree()

    def _reserve_slot(self, slot: int) -> None:
        if slot < self._slots:
            return
        slots = max(16, self._slots)
        while slots <= slot:
            slots *= 2
        self._region_store = rows.grown(
            self._region_store, rows.REGION_ROW, slots, compiled=bool(raw.COMPILED)
        )
        self._order_store = rows.grown(self._order_store, rows.NUMBER, slots, compiled=bool(raw.COMPILED))
        self._regions = raw.regions(self._region_store)
        self._order = raw.numbers(self._order_store)
        self._slots = slots

    # -- regions by address ------------------------------------------------------------------------------

    def _start(self, at: int) -> int:
        start: int = raw.region(self._regions, self._order[at]).address
        return start

    def _end(self, at: int) -> int:
        r = raw.region(self._regions, self._order[at])
        end: int = r.address + r.size
        return end

    def _place(self, address: int) -> int:
        """How many regions begin at or below `address`."""
        low = 0
        high = self.live_regions
        while low < high:
            middle = (low + high) >> 1
            if self._start(middle) <= address:
                low = middle + 1
            else:
                high = middle
        return low

    # -- the tournament: node i is the largest of nodes 8i+1 .. 8i+8, the leaves are the handles ---------

    def _set_free_size(self, handle: int, size: int) -> None:
        """Set a leaf: the chunk's size, or 0 where there is none that is free."""
        node = self._first_leaf + handle
        old = self._tree[node]
        self._tree[node] = size
        if size >= old:
            while node > 0:
                node = (node - 1) >> 3
                if self._tree[node] >= size:
                    return
                self._tree[node] = size
        else:
            while node > 0:
                node = (node - 1) >> 3
                if self._tree[node] != old:
                    return
                size = self._largest_below(node)
                if size == old:
                    return
                self._tree[node] = size

    def _largest_below(self, node: int) -> int:
        first = 8 * node + 1
        best = self._tree[first]
        for i in range(first + 1, first + 8):
            best = max(best, self._tree[i])
        return best

    def _grow_tree(self) -> None:
        self._leaves = max(64, 8 * self._leaves)
        self._first_leaf = (self._leaves - 1) // 7
        self._tree_store = rows.grown(
            None, rows.NUMBER, self._first_leaf + self._leaves, compiled=bool(raw.COMPILED)
        )
        self._tree = raw.numbers(self._tree_store)
        for handle in range(self._capacity):
            c = raw.chunk(self._chunks, handle)
            if c.state == raw.CHUNK_FREE:
                self._set_free_size(handle, c.size)

    # -- measuring ---------------------------------------------------------------------------------------

    def _note(self, time: int) -> None:
        """Fold the values after this event into the extremes."""
        largest = self._tree[0]
        whole = self.free_bytes
        part = whole - largest
        # 1 - largest / free would round once more and could differ from `fragmentation.external`.
        ratio = part / whole if whole > 0 else 0.0
        fresh = not self._measuring
        self._measuring = True
        self._fold(raw.IN_USE, self.bytes_in_use, time, fresh)
        self._fold(raw.REQUESTED, self.requested_bytes_in_use, time, fresh)
        self._fold(raw.POOL, self.pool_bytes, time, fresh)
        self._fold(raw.FREE_BYTES, self.free_bytes, time, fresh)
        self._fold(raw.LARGEST, largest, time, fresh)
        if fresh or ratio < self._ratio_low:
            self._ratio_low = ratio
            self._ratio_low_step = self.step
            self._ratio_low_time = time
        if fresh or ratio > self._ratio_high:
            self._ratio_high = ratio
            self._ratio_high_step = self.step
            self._ratio_high_time = time

    def _fold(self, series: int, value: int, time: int, fresh: int) -> None:
        x = raw.extreme(self._series, series)
        if fresh or value < x.low:
            x.low = value
            x.low_step = self.step
            x.low_time = time
        if fresh or value > x.high:
            x.high = value
            x.high_step = self.step
            x.high_time = time

    def _refuse(self, code: int, record: np.void) -> Never:
        """Raise what `contradictions` says about the record and the rows it names."""
        named = [int(record["chunk"]), int(record["other"])]
        chunk, other = (self._row(handle) if handle < self._capacity else None for handle in named)
        raise TraceError(contradictions.text(code, record, self.step, chunk, other))

    def _row(self, handle: int) -> np.void:
        row: np.void = rows.exported(self._chunk_store[handle : handle + 1], rows.CHUNK_ROW)[0]
        return row
