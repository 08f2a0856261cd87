"""Open any source as a Trace: a heap, its log, a recording, a trace, or a path.

The window on a live heap whose log lost events starts with the state of the heap, and the events still kept.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, Lapped
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Events, Kind
from bfcviz.events.sliding_window import KEEP, Beginning, WindowSource
from bfcviz.events.storage.folder import ORIGIN_FILE
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.model import array_access
from bfcviz.model.keyframe_bytes import encode, keyframes
from bfcviz.model.lifetimes import last_with_low_bits
from bfcviz.model.pool_state import PoolState
from bfcviz.model.row_storage import CHUNK_ROW, REGION_ROW
from bfcviz.model.state_snapshots import Snapshot


class TraceSourceMoment(Protocol):
    """A heap, the source of a trace, between two events: `BFCAllocator.moment`.

    Attributes:
        step: events written so far.
        chunks: with the fields address, size, requested_size, in_use, handle, label, thread, stream, region, born.
        regions: by ascending address; with the fields address, size, slot.
        num_allocs: successful requests since the heap was created.
        peak_bytes_in_use, peak_pool_bytes: the highest ever.
        largest_alloc_size: the largest chunk ever allocated.
    """

    step: int
    chunks: NDArray[np.void]
    regions: NDArray[np.void]
    num_allocs: int
    peak_bytes_in_use: int
    peak_pool_bytes: int
    largest_alloc_size: int


def beginning(moment: TraceSourceMoment, log: EventLog) -> Beginning:
    """The beginning of a heap's trace: the state at an old event that its log still has, and the events since.

    OOMs count from that event. Peaks count from there, too, where the highest one lies in these events: the peak before
    them is then unknown. Beside a very fast writer there may be no events: the state is then `moment` itself.
    """
    events = _source_events_before(log, moment.step)
    table = PoolState()
    table.restore(_source_heap_snapshot(moment, ooms=int(np.count_nonzero(events["kind"] == Kind.OOM))))
    table.undo(events)
    rows = table.chunk_rows()
    largest = int(rows["size"][rows["state"] == array_access.CHUNK_IN_USE].max(initial=0))
    table.recall_peaks(table.bytes_in_use, table.pool_bytes, largest)
    first = table.snapshot()
    table.apply(events)
    seen = (table.peak_bytes_in_use, table.peak_pool_bytes, table.largest_alloc_size)
    ever = (moment.peak_bytes_in_use, moment.peak_pool_bytes, moment.largest_alloc_size)
    table.restore(first)
    own = (table.peak_bytes_in_use, table.peak_pool_bytes, table.largest_alloc_size)
    table.recall_peaks(*(e if e > s else o for e, s, o in zip(ever, seen, own, strict=True)))
    return Beginning(first.step, encode([table.snapshot()]), events)


def _source_events_before(log: EventLog, step: int) -> Events:
    """The events before `step` that a source's log still has, without the oldest, which are overwritten next."""
    reader = Reader(log)
    margin = log.capacity // 16
    while (start := min(log.oldest + margin, step)) < step:
        reader.position = start
        try:
            return reader.read(step - start)
        except Lapped:
            margin *= 4
    return log.copy(step, step)


def _source_heap_snapshot(moment: TraceSourceMoment, ooms: int) -> Snapshot:
    chunks, regions = moment.chunks, moment.regions
    rows = np.zeros(len(chunks), CHUNK_ROW)
    for name in ("address", "size", "handle", "region"):
        rows[name] = chunks[name]
    used = chunks["in_use"]
    rows["state"] = np.where(used, array_access.CHUNK_IN_USE, array_access.CHUNK_FREE)
    for name, source in (("requested", "requested_size"), *((n, n) for n in ("label", "thread", "stream"))):
        rows[name][used] = chunks[source][used]
    low = chunks["born"][used].astype(np.uint64)  # 32 bits
    rows["born"][used] = last_with_low_bits(np.uint64(moment.step - 1), low)
    region_rows = np.zeros(len(regions), REGION_ROW)
    region_rows["address"], region_rows["size"] = regions["address"], regions["size"]
    region_rows["state"] = array_access.REGION_LIVE
    slots = regions["slot"].astype(np.uint64)
    return Snapshot(moment.step, rows, region_rows, slots, num_allocs=moment.num_allocs, ooms=ooms)


# A heap is recognised by its attributes: model must not import the allocator.
_HEAP: Final = ("log", "labels", "name", "limit", "options", "moment")


def trace_of(source: Any, keep: int = KEEP) -> Trace:
    """The trace of a source; it grows with a source that still grows.

    Args:
        source: a BFCAllocator, EventLog, Recording, Trace, or the path of a recording or trace.
        keep: the most events to keep of a heap whose log is a ring in memory.

    Raises:
        BfcvizError: `source` is none of these, or cannot be read.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, Recording):
        return source.trace()
    if isinstance(source, EventLog):
        recorded = _trace_of_recorded_log(source)
        if recorded is not None:
            return recorded
        return Trace(WindowSource(source, Labels(), Origin(), keyframes, keep=keep))
    if isinstance(source, str | os.PathLike):
        return Trace.open(source)
    if all(hasattr(source, name) for name in _HEAP):
        recorded = _trace_of_recorded_log(source.log)
        return _trace_of_live_heap(source, keep) if recorded is None else recorded
    raise BfcvizError(
        f"cannot watch a {type(source).__name__}; give a BFCAllocator, an EventLog, a Recording, a Trace, or the path "
        "of one"
    )


def source_name(source: Any, trace: Trace) -> str:
    """The name of the source of a trace, for a menu."""
    if isinstance(name := getattr(source, "name", None), str) and not isinstance(source, os.PathLike):
        return name
    return trace.origin.source or trace.origin.pools[0].name


def _trace_of_recorded_log(log: EventLog) -> Trace | None:
    """The trace of the recording that a heap's log belongs to, which has every event; None: there is none."""
    if log.path is None or not (log.path.parent / ORIGIN_FILE).exists():
        return None
    return Trace.open(log.path.parent)


def _trace_of_live_heap(heap: Any, keep: int) -> Trace:
    if heap.log.pools > 1:
        raise BfcvizError(
            f"{heap.name} shares its log with {heap.log.pools - 1} other heaps, and the folder of their recording is "
            "gone: keep it until the heaps are closed, or give each heap a log of its own"
        )
    pool = Pool(heap.name, heap.limit, vars(heap.options))
    gaps = getattr(heap, "gaps", None)
    more = {} if gaps is None else {"reasons": gaps.reasons, "details": gaps.to_details()}
    origin = Origin(pools=(pool,), **more)
    return Trace(WindowSource(heap.log, heap.labels, origin, keyframes, begin=_state_of(heap), keep=keep))


def _state_of(heap: Any) -> Callable[[], Beginning | None]:
    """A function that returns the state of a source heap at some event, without keeping the heap alive."""
    reference, log = weakref.ref(heap), heap.log

    def state() -> Beginning | None:
        alive = reference()
        return None if alive is None else beginning(alive.moment(), log)

    return state
