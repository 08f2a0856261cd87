"""Events -> the chunk table of one pool, forwards and back; compiled where there is a compiler.

::

    address   0x1000                             0x5000
              |--------- region, slot 0 ---------|
              [ in use 7 ][        free 2        ]
    SPLIT     [ in use 7 ][ free 2 ][   free 9   ]    undone: 9 goes back onto the end of 2
    ALLOCATE  [ in use 7 ][in use 2][   free 9   ]    undone: 2 is free again
    FREE      [ in use 7 ][ free 2 ][   free 9   ]    undone: 2 is in use, by whom the record says
    MERGE     [ in use 7 ][        free 2        ]    undone: 9 comes off the end of 2, as by SPLIT

Chunks lie in rows by their handle, so an event touches one or two rows and no search is needed. Every event
is checked against the rows it names before anything changes: a contradiction raises and leaves the table at
the step before. `undo` needs nothing but the records themselves.

Peaks cannot be undone from records. They are kept for the furthest step applied (`peaks_step`); `replay`
works them out again from a snapshot when the table stands before that.

The C types are in `reduce.pxd`, what the two languages spell differently is in `raw`.
"""

from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events
from bfcviz.model.seeking.snapshots import Snapshot
from bfcviz.model.state import array_access, consistency, row_storage
from bfcviz.model.state.chunk_rows import ChunkRows
from bfcviz.model.state.region_rows import RegionRows
from bfcviz.model.timelines.extremes import Extremes


class PoolState:
    """The chunks, regions and totals of one pool after the first `step` events of a trace.

    Attributes (read only):
        pool, pools, wanted: which pool this is, how many the trace has, and what `watch` was told.
        step: events applied so far, those of other pools included.
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
        """Go back to step 0: no region, no chunk."""
        self.step = self.peaks_step = 0
        self.bytes_in_use = self.requested_bytes_in_use = self.pool_bytes = self.free_bytes = 0
        self.num_allocs = self.ooms = self.chunks_in_use = 0
        self.peak_bytes_in_use = self.peak_pool_bytes = self.largest_alloc_size = 0
        self._chunks, self._regions, self._extremes = ChunkRows(), RegionRows(), Extremes()
        self._chunks.free_sizes.watch(self.wanted)

    def watch(self, wanted: int) -> None:
        """From now on measure the bytes in free chunks smaller than `wanted` bytes, too."""
        self.wanted = wanted
        self._chunks.free_sizes.watch(wanted)

    @property
    def chunks_free(self) -> int:
        """How many chunks are free."""
        return self._chunks.free

    @property
    def largest_free_chunk(self) -> int:
        """Size of the largest free chunk, 0 where nothing is free."""
        return self._chunks.free_sizes.largest()

    def apply(self, block: Events) -> None:
        """Take the table forward over `block`, the events from `step` on.

        Raises:
            TraceError: an event contradicts the table, which stays at the step before that event.
        """
        self._run(block, noting=False)

    def measure(self, block: Events) -> None:
        """As `apply`, and note the extremes of every series after each event; `extremes` hands them out."""
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
        """Take the table back over `block`, the events up to `step`; the inverse of `apply`.

        Raises:
            TraceError: these are not the events that led here; the table stays where that shows.
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
        """What `measure` saw since the last call; see `Extremes.taken`."""
        return self._extremes.taken()

    # -- the whole table, out and in ---------------------------------------------------------------------

    def chunk_rows(self) -> NDArray[np.void]:
        """Every chunk, in no order: a copy, of CHUNK_ROW."""
        return self._chunks.exported()

    def rows_by_handle(self) -> NDArray[np.void]:
        """The row of each handle, of CHUNK_ROW, also of those that are no chunk now; good until the next event."""
        return self._chunks.by_handle()

    def region_rows(self) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
        """Every region by ascending address: rows of REGION_ROW, and their slots."""
        return self._regions.exported()

    def restore(self, snapshot: Snapshot) -> None:
        """Go to a state that `snapshot_of` or `keyframes.decode` has made."""
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
        """Set the peaks up to `step`, which the caller has worked out."""
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
            code = self._cut(e)
        elif kind == array_access.MERGE:
            code = self._join(e)
        elif kind == array_access.EXTEND:
            code = self._grant(e)
        elif kind == array_access.RELEASE:
            code = self._withdraw(e)
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
            code = self._join(e)
        elif kind == array_access.MERGE:
            code = self._cut(e)
        elif kind == array_access.EXTEND:
            code = self._withdraw(e)
        elif kind == array_access.RELEASE:
            code = self._grant(e)
        elif kind == array_access.OOM:
            self.ooms -= 1
        return code

    def _allocate(self, e: Any) -> int:
        code = self._free_here(e)
        if code != array_access.FINE:
            return code
        if e.requested > e.size:
            return array_access.SHORT
        self._hand_out(e, e.seq)
        self.num_allocs += 1
        self.peak_bytes_in_use = max(self.peak_bytes_in_use, self.bytes_in_use)
        self.largest_alloc_size = max(self.largest_alloc_size, e.size)
        return array_access.FINE

    def _undo_allocate(self, e: Any) -> int:
        code = self._owned(e, e.seq)
        if code == array_access.FINE:
            self._take_back(e)
            self.num_allocs -= 1
        return code

    def _free(self, e: Any) -> int:
        code = self._owned(e, self._born(e))
        if code == array_access.FINE:
            self._take_back(e)
        return code

    def _undo_free(self, e: Any) -> int:
        code = self._free_here(e)
        if code == array_access.FINE:
            self._hand_out(e, self._born(e))
        return code

    def _born(self, e: Any) -> int:
        """The latest step before this FREE whose low 32 bits are the record's `other`."""
        high = e.seq >> 32
        if e.other > e.seq - (high << 32) and high > 0:
            high -= 1
        born: int = (high << 32) + e.other
        return born

    def _owned(self, e: Any, born: int) -> int:
        """FINE when the chunk is in use exactly as the record says: else undoing it would lose something."""
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

    def _hand_out(self, e: Any, born: int) -> None:
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

    def _take_back(self, e: Any) -> None:
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        c.state = array_access.CHUNK_FREE
        c.requested = c.born = c.label = c.thread = c.stream = 0
        self._chunks.free_sizes.set(e.chunk, e.size)
        self.bytes_in_use -= e.size
        self.requested_bytes_in_use -= e.requested
        self.free_bytes += e.size
        self.chunks_in_use -= 1
        self._chunks.free += 1

    def _cut(self, e: Any) -> int:
        """SPLIT, or MERGE undone: chunk `other` comes off the end of `chunk`."""
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

    def _join(self, e: Any) -> int:
        """MERGE, or SPLIT undone: chunk `other` goes back onto the end of `chunk`."""
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

    def _grant(self, e: Any) -> int:
        """EXTEND, or RELEASE undone: a region comes, or grows, by a free chunk."""
        code = self._grantable(e)
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

    def _withdraw(self, e: Any) -> int:
        """RELEASE, or EXTEND undone: a region goes, or shrinks, by a free chunk."""
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

    def _grantable(self, e: Any) -> int:
        if e.size == 0:
            return array_access.EMPTY
        if array_access.passes_end(e.address, e.size):
            return array_access.TOO_LARGE
        return self._chunks.vacant(e.chunk, e.seq)

    def _free_here(self, e: Any) -> int:
        """FINE when the chunk is free and where the record says."""
        code = self._chunks.look(e.chunk, e.region, array_access.CHUNK_FREE)
        if code != array_access.FINE:
            return code
        c = array_access.chunk(self._chunks.chunks, e.chunk)
        return array_access.FINE if c.address == e.address and c.size == e.size else array_access.OTHER_PLACE

    # -- measuring, and saying what is wrong -------------------------------------------------------------

    def _note(self, time: int) -> None:
        """Fold the values after this event into the extremes."""
        free_sizes = self._chunks.free_sizes
        self._extremes.begin(self.step, time)
        self._extremes.fold_use(self.bytes_in_use, self.requested_bytes_in_use, self.pool_bytes)
        self._extremes.fold_free(self.free_bytes, free_sizes.largest(), free_sizes.below)

    def _refuse(self, code: int, record: np.void) -> Never:
        """Raise what `contradictions` says about the record and the rows it names."""
        chunk, other = (self._chunks.row(int(record[name])) for name in ("chunk", "other"))
        raise TraceError(consistency.text(code, record, self.step, chunk, other))
