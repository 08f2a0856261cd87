"""Model: one pool of a trace at one step, which can be moved either way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.event_source import BLOCK
from bfcviz.events.row_copy import taken
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.seeking.keyframes import decode
from bfcviz.model.seeking.snapshots import Snapshot, Snapshots, snapshot_of
from bfcviz.model.state import array_access
from bfcviz.model.state.pool_state import PoolState
from bfcviz.model.state.views import ModelStats, bins_of, chunks_of, regions_of, stats_of

_EVENTS_A_CHUNK: Final = 6
"""Putting a chunk back from a snapshot takes as long as applying this many events (measured)."""


class Model:
    """The heap of one pool after the first `step` events of a trace; starts at the first step there is.

    Going forward applies events, going back undoes them, and a long way starts from the nearest snapshot kept
    in passing or keyframe stored in the trace. Not safe to use from several threads at once.

    Attributes:
        trace: where the events come from; it may grow meanwhile (`Trace.refresh`).
        pool: which of its pools this is.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        pools = len(trace.origin.pools)
        if not 0 <= pool < pools:
            raise TraceError(f"pool {pool} was asked for, of a trace with pools 0 to {pools - 1}")
        self.trace = trace
        self.pool = pool
        self._table = PoolState(pool, pools)
        self._snapshots = Snapshots()
        self._chunks: tuple[int, NDArray[np.void]] | None = None
        self._order = np.empty(0, np.intp)  # of the handles, by address, when that was last asked
        self._move_on()

    @property
    def step(self) -> int:
        """Events applied: `trace.first` to len(trace)."""
        return self._table.step

    @property
    def table(self) -> PoolState:
        """The state itself, for compiled passes over the events that follow; see `timeline`."""
        return self._table

    def seek(self, step: int) -> None:
        """Go to the state after the first `step` events, by the shortest way.

        Raises:
            TraceError: the trace has no such step (any more), or an event on the way contradicts the others; the
                model then stays at a step that is right.
        """
        self._move_on()
        if not self.trace.first <= step <= len(self.trace):
            gone = ": earlier ones are no longer kept" if 0 <= step < self.trace.first else ""
            raise TraceError(
                f"step {step} was asked for, of a trace with steps {self.trace.first} to {len(self.trace)}{gone}"
            )
        start = self._shorter_start(step)
        if start is not None:
            self._chunks = None
            self._table.restore(start)
        if step >= self.step:
            self._apply_to(step)
        else:
            self._undo_to(step)

    def forward(self, n: int = 1) -> None:
        """Go `n` events on. Raises as `seek`."""
        self.seek(self.step + n)

    def back(self, n: int = 1) -> None:
        """Go `n` events back. Raises as `seek`."""
        self.seek(self.step - n)

    def measure(self, block: Events) -> None:
        """Go over `block`, the trace's events from `step` on, as `PoolState.measure` does."""
        self._table.measure(block)
        self._keep()

    @contextmanager
    def visiting(self, step: int) -> Iterator["Model"]:
        """The model at another step, and back where it was at the end of the `with`."""
        home = self.step
        self.seek(step)
        try:
            yield self
        finally:
            self.seek(home)

    def chunks(self) -> NDArray[np.void]:
        """Every chunk by ascending address, shape (n,) of CHUNK, read-only; they tile every region."""
        if self._chunks is None or self._chunks[0] != self.step:
            chunks = chunks_of(self._table, self._order)
            self._order = chunks["handle"].astype(np.intp)
            chunks.flags.writeable = False
            self._chunks = (self.step, chunks)
        return self._chunks[1]

    def in_use(self) -> NDArray[np.void]:
        """The chunks in use in no order, shape (n,) of CHUNK_ROW: sooner to be had than `chunks`."""
        rows = self._table.chunk_rows()
        return taken(rows, rows["state"] == array_access.CHUNK_IN_USE)

    def regions(self) -> NDArray[np.void]:
        """Every region by ascending address, shape (n,) of REGION."""
        return regions_of(self._table)

    def bins(self) -> NDArray[np.void]:
        """21 rows of BIN: free chunks and chunks in use by size class."""
        return bins_of(self.chunks())

    def stats(self) -> ModelStats:
        """The totals at this step, peaks up to this step."""
        if self._table.peaks_step != self.step:
            self._find_peaks()
        return stats_of(self._table, self.trace.origin.pools[self.pool].limit)

    # -- the way there -----------------------------------------------------------------------------------

    def _move_on(self) -> None:
        """Let go of steps that the trace no longer has."""
        first = self.trace.first
        if first == self._snapshots.first:
            return
        found = self.trace.keyframe_before(first)
        if found is None:
            raise TraceError(f"the trace begins at step {first} and does not tell the state there")
        self._snapshots.begin(decode(found[1], found[0], self.pool, len(self.trace.origin.pools)))
        if self.step < first:
            self._chunks = None
            self._table.restore(self._snapshots.before(first))

    def _shorter_start(self, step: int) -> Snapshot | None:
        """The snapshot from which `step` is reached sooner than from here."""
        candidates = [self._snapshots.before(step), self._snapshots.after(step)]
        best, least = None, abs(step - self.step)
        for snapshot in candidates:
            if snapshot is not None and (cost := _cost(snapshot, step)) < least:
                best, least = snapshot, cost
        if least > BLOCK:
            stored = self._stored(step)
            if stored is not None and _cost(stored, step) < least:
                best = stored
        return best

    def _stored(self, step: int) -> Snapshot | None:
        """The keyframe the trace stores at or before `step`, if it is later than the snapshot there is."""
        near = self._snapshots.before(step).step
        if step - near <= BLOCK:  # none lies between, or it gains little: reading it would only cost
            return None
        found = self.trace.keyframe_before(step)
        if found is None or found[0] <= near:
            return None
        snapshot = decode(found[1], found[0], self.pool, len(self.trace.origin.pools))
        if self._snapshots.wants(snapshot.step):
            self._snapshots.add(snapshot)
        return snapshot

    def _apply_to(self, step: int) -> None:
        table = self._table
        for block in self.trace.blocks(table.step, step):
            table.apply(block)
            self._keep()

    def _keep(self) -> None:
        table = self._table
        if table.peaks_step == table.step and self._snapshots.wants(table.step):
            self._snapshots.add(snapshot_of(table))

    def _undo_to(self, step: int) -> None:
        while self.step > step:
            start = max(step, (self.step - 1) // BLOCK * BLOCK)
            self._table.undo(self.trace.read(start, self.step))

    def _find_peaks(self) -> None:
        """Work the peaks up to this step out again from the snapshot before it: undoing went below them."""
        start = self._snapshots.before(self.step)
        stored = self._stored(self.step)
        if stored is not None:
            start = stored
        in_use, pool_bytes = start.bytes_in_use, start.pool_bytes
        peaks = [start.peak_bytes_in_use, start.peak_pool_bytes, start.largest_alloc_size]
        for block in self.trace.blocks(start.step, self.step):
            # Columns only: picking this pool's whole records would copy 4 MiB.
            kinds, sizes = np.where(block["pool"] == self.pool, block["kind"], 0), block["size"]
            in_use_after = _running(in_use, kinds, sizes, Kind.ALLOCATE, Kind.FREE)
            pool_after = _running(pool_bytes, kinds, sizes, Kind.EXTEND, Kind.RELEASE)
            handed_out = sizes[kinds == Kind.ALLOCATE]
            for i, values in enumerate((in_use_after, pool_after, handed_out)):
                peaks[i] = max(peaks[i], int(values.max(initial=0)))
            in_use, pool_bytes = int(in_use_after[-1]), int(pool_after[-1])
        self._table.recall_peaks(*peaks)


def _cost(snapshot: Snapshot, step: int) -> int:
    return abs(step - snapshot.step) + _EVENTS_A_CHUNK * len(snapshot.chunk_rows)


def _running(
    start: int, kinds: NDArray[np.uint8], sizes: NDArray[np.uint64], plus: Kind, minus: Kind
) -> NDArray[np.uint64]:
    """A total before the first and after each of the events that change it."""
    at = np.flatnonzero((kinds == plus) | (kinds == minus))
    # Unsigned sums wrap and come back: every total itself fits.
    changes = np.where(kinds[at] == plus, sizes[at], -sizes[at])
    return np.cumsum(np.concatenate([np.array([start], np.uint64), changes]), dtype=np.uint64)
