"""The start of a window on a live heap whose log lost events: the state of the heap, and the events still kept."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import Lapped
from bfcviz.events.live_window import Beginning
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Events
from bfcviz.model.seeking.keyframes import encode
from bfcviz.model.seeking.snapshots import Snapshot, snapshot_of
from bfcviz.model.state import array_access
from bfcviz.model.state.pool_state import PoolState
from bfcviz.model.state.row_storage import CHUNK_ROW, REGION_ROW


class LiveHeapState(Protocol):
    """A whole heap between two events, as `BFCAllocator.moment` returns it; arrays have named fields."""

    @property
    def step(self) -> int:
        """Events written so far."""

    @property
    def chunks(self) -> NDArray[np.void]:
        """Fields: address, size, requested_size, in_use, handle, label, thread, stream, region, born."""

    @property
    def regions(self) -> NDArray[np.void]:
        """By ascending address; fields: address, size, slot."""

    @property
    def num_allocs(self) -> int:
        """Successful requests since the heap was created."""

    @property
    def peak_bytes_in_use(self) -> int:
        """The highest bytes_in_use ever."""

    @property
    def largest_alloc_size(self) -> int:
        """The largest chunk ever allocated."""

    @property
    def peak_pool_bytes(self) -> int:
        """The highest pool_bytes ever."""


def beginning(moment: LiveHeapState, log: EventLog) -> Beginning:
    """The state at an old event that `log` still has, and the events since; the state is undone from `moment`.

    OOMs count from that event. Peaks count from there, too, where the highest one lies in these events: the peak before
    them is then unknown. Beside a very fast writer there may be no events: the state is then `moment` itself.
    """
    events = _events_before(log, moment.step)
    table = PoolState()
    table.restore(_snapshot(moment))
    events["pool"] = 0
    table.undo(events)
    table.recall_peaks(table.bytes_in_use, table.pool_bytes, _largest(table))
    first = snapshot_of(table)
    table.apply(events)
    seen = (table.peak_bytes_in_use, table.peak_pool_bytes, table.largest_alloc_size)
    ever = (moment.peak_bytes_in_use, moment.peak_pool_bytes, moment.largest_alloc_size)
    table.restore(first)
    own = (table.peak_bytes_in_use, table.peak_pool_bytes, table.largest_alloc_size)
    table.recall_peaks(*(e if e > s else o for e, s, o in zip(ever, seen, own, strict=True)))
    return Beginning(first.step, encode([snapshot_of(table)]), events)


def _events_before(log: EventLog, step: int) -> Events:
    """The events before `step` that the log still has, without the oldest: the next events would overwrite those."""
    reader = Reader(log)
    margin = log.capacity // 16
    while (start := min(log.oldest + margin, step)) < step:
        reader.position = start
        try:
            return reader.read(step - start)
        except Lapped:
            margin *= 4
    return log.copy(step, step)


def _largest(table: PoolState) -> int:
    rows = table.chunk_rows()
    return int(rows["size"][rows["state"] == array_access.CHUNK_IN_USE].max(initial=0))


def _snapshot(moment: LiveHeapState) -> Snapshot:
    chunks, regions = moment.chunks, moment.regions
    rows = np.zeros(len(chunks), CHUNK_ROW)
    for name in ("address", "size", "handle", "region"):
        rows[name] = chunks[name]
    used = chunks["in_use"]
    rows["state"] = np.where(used, array_access.CHUNK_IN_USE, array_access.CHUNK_FREE)
    for name, source in (("requested", "requested_size"), *((n, n) for n in ("label", "thread", "stream"))):
        rows[name][used] = chunks[source][used]
    rows["born"][used] = _whole_steps(chunks["born"][used].astype(np.uint64), moment.step)
    region_rows = np.zeros(len(regions), REGION_ROW)
    region_rows["address"], region_rows["size"] = regions["address"], regions["size"]
    region_rows["state"] = array_access.REGION_LIVE
    slots = regions["slot"].astype(np.uint64)
    return Snapshot(moment.step, rows, region_rows, slots, num_allocs=moment.num_allocs)


def _whole_steps(low: NDArray[np.uint64], step: int) -> NDArray[np.uint64]:
    """The last steps before `step` that have these low 32 bits."""
    last = np.uint64(step - 1)
    age: NDArray[np.uint64] = (last - low) & np.uint64(0xFFFF_FFFF)
    return last - age
