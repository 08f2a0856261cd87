"""Model: one pool of a trace at one step, which moves forwards and backwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.event_source import BLOCK
from bfcviz.events.schema import NUM_BINS, Events, Kind, bin_numbers
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace
from bfcviz.model import array_access
from bfcviz.model.keyframe_bytes import decode
from bfcviz.model.pool_state import PoolState
from bfcviz.model.row_storage import CHUNK_ROW
from bfcviz.model.state_snapshots import Snapshot, Snapshots

# ------------------------------------------------------------------------------
# One pool at one step as plain data: chunks, regions, bins (size classes) and totals.

CHUNK = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),  # 0 when free, as are born, label, thread and stream
        ("born", "<u8"),  # `seq` of its ALLOCATE
        ("handle", "<u4"),
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("region", "<u2"),  # slot
        ("in_use", "?"),
    ],
    align=True,  # as long as CHUNK_ROW, so that a row becomes a chunk in place
)
"""One chunk, free or in use."""

REGION = np.dtype([("address", "<u8"), ("size", "<u8"), ("slot", "<u2")])
"""One region."""

BIN = np.dtype(
    [
        ("bin", "i1"),
        ("free_chunks", "<u8"),
        ("free_bytes", "<u8"),
        ("in_use_chunks", "<u8"),
        ("in_use_bytes", "<u8"),
    ]
)
"""One bin. Only free chunks are really in it; chunks in use are counted by the same rule."""


@dataclass(frozen=True)
class ModelStats:
    """Totals of a `Model`, one pool at one step: bytes unless the name counts something.

    Peaks and `largest_alloc_size` are the maxima from step 0 to this step. `bytes_limit` is None where the trace
    does not have it.
    """

    num_allocs: int
    bytes_in_use: int
    requested_bytes_in_use: int
    peak_bytes_in_use: int
    pool_bytes: int
    peak_pool_bytes: int
    bytes_limit: int | None
    largest_alloc_size: int
    free_bytes: int
    largest_free_chunk: int
    chunks_in_use: int
    chunks_free: int
    ooms: int


def model_chunks(table: PoolState, near: NDArray[np.intp]) -> NDArray[np.void]:
    """Every chunk of a `Model` by ascending address, shape (n,) of CHUNK; they tile every region.

    `near`: handles, each once, in nearly that order, such as the order at another step; this makes sorting faster.
    """
    rows = table.rows_by_handle()
    left = rows["state"] != array_access.NOTHING
    near = near[near < len(rows)]
    near = near[left[near]]
    left[near] = False
    order = np.concatenate([near, np.flatnonzero(left)])
    rows = taken(rows, order[np.argsort(rows["address"][order], kind="stable")])
    in_use = rows["state"] == array_access.CHUNK_IN_USE
    chunks = rows.view(CHUNK)
    chunks["in_use"] = in_use
    return chunks


def model_regions(table: PoolState) -> NDArray[np.void]:
    """Every region of a `Model` by ascending address, shape (n,) of REGION."""
    rows, slots = table.region_rows()
    regions = np.empty(len(rows), REGION)
    regions["address"], regions["size"], regions["slot"] = rows["address"], rows["size"], slots
    return regions


def stats_of(table: PoolState, bytes_limit: int | None) -> ModelStats:
    """The totals of a `Model`. The peaks of `table` must be up to date (`peaks_step` is `step`)."""
    return ModelStats(
        num_allocs=table.num_allocs,
        bytes_in_use=table.bytes_in_use,
        requested_bytes_in_use=table.requested_bytes_in_use,
        peak_bytes_in_use=table.peak_bytes_in_use,
        pool_bytes=table.pool_bytes,
        peak_pool_bytes=table.peak_pool_bytes,
        bytes_limit=bytes_limit,
        largest_alloc_size=table.largest_alloc_size,
        free_bytes=table.free_bytes,
        largest_free_chunk=table.largest_free_chunk,
        chunks_in_use=table.chunks_in_use,
        chunks_free=table.chunks_free,
        ooms=table.ooms,
    )


# ------------------------------------------------------------------------------
# Model: one pool of a trace at one step, which moves forwards and backwards.

_EVENTS_A_CHUNK: Final = 6
"""Restoring one chunk from a snapshot takes as long as applying this many events (measured)."""


class Model:
    """The heap of one pool after the first `step` events of a trace; starts at the first step there is.

    Moving forwards applies events, moving backwards undoes them. A long move starts from the nearest snapshot that
    the model kept, or from a keyframe stored in the trace. Not thread-safe.

    Attributes:
        trace: the source of the events; it may grow (`Trace.refresh`).
        pool: index of the pool in the trace.
    """

    def __init__(self, trace: Trace, pool: int = 0, snapshots: Snapshots | None = None) -> None:
        pools = len(trace.origin.pools)
        if not 0 <= pool < pools:
            raise TraceError(f"pool {pool} does not exist: the trace has pools 0 to {pools - 1}")
        self.trace = trace
        self.pool = pool
        self._table = PoolState(pool, pools)
        self._snapshots = Snapshots() if snapshots is None else snapshots
        self._chunks: tuple[int, NDArray[np.void]] | None = None
        self._order = np.empty(0, np.intp)  # handles by address, as of the last `chunks()`
        self._move_on()

    @property
    def step(self) -> int:
        """Events applied to the model: `trace.first` to len(trace)."""
        return self._table.step

    @property
    def table(self) -> PoolState:
        """The state of the model itself, for compiled passes over the next events; see `timeline`."""
        return self._table

    def seek(self, step: int) -> None:
        """Move the model to the state after the first `step` events, from the nearest known state.

        Raises:
            TraceError: the trace does not have the step, or no longer has it, or an event on the way contradicts the
                others. The model then stays at a correct step.
        """
        self._move_on()
        if not self.trace.first <= step <= len(self.trace):
            verb = "is no longer kept" if 0 <= step < self.trace.first else "does not exist"
            raise TraceError(
                f"step {step} {verb}: the trace has steps {self.trace.first} to {len(self.trace)}"
            )
        start = self._shorter_start(step)
        if start is not None:
            self._chunks = None
            self._table.restore(start)
        if step >= self.step:
            self._apply_to(step)
        else:
            self._undo_to(step)

    def snapshots(self) -> Snapshots:
        """The states that the model kept so far, for another one of the same pool, which need not pass again."""
        return self._snapshots.copy()

    def forward(self, n: int = 1) -> None:
        """Move the model `n` events forwards. Raises as `seek`."""
        self.seek(self.step + n)

    def back(self, n: int = 1) -> None:
        """Move the model `n` events backwards. Raises as `seek`."""
        self.seek(self.step - n)

    def measure(self, block: Events) -> None:
        """Apply `block` to the model, the events of the trace from `step` on, as `PoolState.measure` does."""
        self._table.pools = len(self.trace.origin.pools)
        self._table.measure(block)
        self._keep()

    @contextmanager
    def visiting(self, step: int) -> Iterator["Model"]:
        """The model at another step; it returns to its step at the end of the `with`."""
        home = self.step
        self.seek(step)
        try:
            yield self
        finally:
            self.seek(home)

    def chunks(self) -> NDArray[np.void]:
        """Every chunk of the model by ascending address, shape (n,) of CHUNK, read-only; they tile every region.

        The numbers that `unknown_of_chunks` of the origin names are made up, such as a `requested` that is the size.
        """
        if self._chunks is None or self._chunks[0] != self.step:
            chunks = model_chunks(self._table, self._order)
            self._order = chunks["handle"].astype(np.intp)
            chunks.flags.writeable = False
            self._chunks = (self.step, chunks)
        return self._chunks[1]

    def in_use(self) -> NDArray[np.void]:
        """The chunks in use of the model in no order, shape (n,) of CHUNK_ROW; faster than `chunks`, which sorts."""
        rows = self._table.chunk_rows()
        return taken(rows, rows["state"] == array_access.CHUNK_IN_USE)

    def regions(self) -> NDArray[np.void]:
        """Every region of the model by ascending address, shape (n,) of REGION."""
        return model_regions(self._table)

    def bins(self) -> NDArray[np.void]:
        """The bins of the model, 21 rows of BIN: free chunks and chunks in use by size class."""
        chunks = self.chunks()
        bins = np.zeros(NUM_BINS, BIN)
        bins["bin"] = np.arange(NUM_BINS)
        cells = bin_numbers(chunks["size"]) + NUM_BINS * chunks["in_use"]
        counts = np.bincount(cells, minlength=2 * NUM_BINS)
        totals = np.zeros(2 * NUM_BINS, np.uint64)
        np.add.at(totals, cells, chunks["size"])  # bincount's weights would be float64
        for state, part in (("free", slice(NUM_BINS)), ("in_use", slice(NUM_BINS, None))):
            bins[f"{state}_chunks"], bins[f"{state}_bytes"] = counts[part], totals[part]
        return bins

    def stats(self) -> ModelStats:
        """The totals of the model at its step, peaks up to this step."""
        if self._table.peaks_step != self.step:
            self._find_peaks()
        return stats_of(self._table, self.trace.origin.pools[self.pool].limit)

    # -- how to reach a step -----------------------------------------------------------------------------------

    def _move_on(self) -> None:
        """Drop steps from the model that the trace no longer has."""
        self._table.pools = len(self.trace.origin.pools)  # a recording may have another heap now
        first = self.trace.first
        if first == self._snapshots.first:
            return
        found = self.trace.keyframe_before(first)
        if found is None:
            raise TraceError(f"the trace begins at step {first} and has no keyframe with the state there")
        self._snapshots.begin(decode(found[1], found[0], self.pool, len(self.trace.origin.pools)))
        if self.step < first:
            self._chunks = None
            self._table.restore(self._snapshots.before(first))

    def _shorter_start(self, step: int) -> Snapshot | None:
        """The model's snapshot from which `step` is nearer than from the present step; None: there is none."""
        best, least = None, abs(step - self.step)
        for snapshot in (self._snapshots.before(step), self._snapshots.after(step)):
            if snapshot is not None and (cost := _model_seek_cost(snapshot, step)) < least:
                best, least = snapshot, cost
        if least > BLOCK:
            stored = self._stored(step)
            if stored is not None and _model_seek_cost(stored, step) < least:
                best = stored
        return best

    def _stored(self, step: int) -> Snapshot | None:
        """The keyframe of the trace for a model at or before `step`, where it is later than the nearest snapshot."""
        near = self._snapshots.before(step).step
        if step - near <= BLOCK:  # none lies between, or it saves little
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
            self._snapshots.add(table.snapshot())

    def _undo_to(self, step: int) -> None:
        while self.step > step:
            start = max(step, (self.step - 1) // BLOCK * BLOCK)
            self._table.undo(self.trace.read(start, self.step))

    def _find_peaks(self) -> None:
        """Compute the peaks up to this step from the snapshot before it: `undo` cannot restore them."""
        start = self._snapshots.before(self.step)
        stored = self._stored(self.step)
        if stored is not None:
            start = stored
        in_use, pool_bytes = start.bytes_in_use, start.pool_bytes
        peaks = [start.peak_bytes_in_use, start.peak_pool_bytes, start.largest_alloc_size]
        for block in self.trace.blocks(start.step, self.step):
            # Columns only: to select the whole records of this pool would copy 4 MiB.
            kinds, sizes = np.where(block["pool"] == self.pool, block["kind"], 0), block["size"]
            in_use_after = _model_running_total(in_use, kinds, sizes, Kind.ALLOCATE, Kind.FREE)
            pool_after = _model_running_total(pool_bytes, kinds, sizes, Kind.EXTEND, Kind.RELEASE)
            allocated = sizes[kinds == Kind.ALLOCATE]
            for i, values in enumerate((in_use_after, pool_after, allocated)):
                peaks[i] = max(peaks[i], int(values.max(initial=0)))
            in_use, pool_bytes = int(in_use_after[-1]), int(pool_after[-1])
        self._table.recall_peaks(*peaks)


def _model_seek_cost(snapshot: Snapshot, step: int) -> int:
    return abs(step - snapshot.step) + _EVENTS_A_CHUNK * len(snapshot.chunk_rows)


def _model_running_total(
    start: int, kinds: NDArray[np.uint8], sizes: NDArray[np.uint64], plus: Kind, minus: Kind
) -> NDArray[np.uint64]:
    """A total before the first and after each of the events that change it, for the peaks of a `Model`."""
    at = np.flatnonzero((kinds == plus) | (kinds == minus))
    # Unsigned sums may wrap in between: every total itself fits.
    changes = np.where(kinds[at] == plus, sizes[at], -sizes[at])
    return np.cumsum(np.concatenate([np.array([start], np.uint64), changes]), dtype=np.uint64)


def model_chunks_in_use(trace: Trace, pool: int, step: int, model: Model | None = None) -> NDArray[np.void]:
    """The chunks in use of a model at a step, in no order, of CHUNK_ROW. Raises as `Model.seek`."""
    if step == 0:
        return np.zeros(0, CHUNK_ROW)
    with (model or Model(trace, pool)).visiting(step) as there:
        return there.in_use()
