"""The events that build a heap state, and the events of several heaps of one file in one stream."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind, bin_numbers
from bfcviz.native import MAX_REGIONS

# ------------------------------------------------------------------------------
# Join the events of several heaps of one file into one stream.


def one_after_another(logs: Sequence[Events]) -> Events:
    """The events of heap 0, then those of heap 1, ...: for states, or where there are no common times.

    Args:
        logs: one per heap; `seq` of each counts from 0, and `other` of a FREE is the `seq` of its ALLOCATE.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.arange(len(together)))


def by_time(logs: Sequence[Events]) -> Events:
    """The events of all heaps in the order of their `time`; events of one heap keep their order.

    Args:
        logs: as for `one_after_another`; `time` never decreases within a log.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.argsort(together["time"], kind="stable"))


def without(log: Events, dropped: NDArray[np.bool_]) -> Events:
    """A copy of the events of one heap without some of them, numbered again.

    Args:
        log: `seq` counts from 0.
        dropped: shape (n,); no ALLOCATE or FREE.
    """
    events: Events = taken(log, np.flatnonzero(~dropped))
    place = np.cumsum(~dropped) - 1
    frees = events["kind"] == Kind.FREE
    born: NDArray[np.uint64] = events["other"][frees]
    events["other"][frees] = place[born]
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


def _in_order(logs: Sequence[Events], order_of: Callable[[Events], NDArray[np.intp]]) -> Events:
    """The events of all logs in the order of `order_of`; the only log is not copied."""
    if len(logs) > MAX_POOLS:
        raise TraceError(f"the file holds {len(logs)} heaps; a trace can have {MAX_POOLS}")
    for pool, log in enumerate(logs):
        log["pool"] = pool
    if len(logs) == 1:
        return logs[0]
    together = joined(list(logs))
    return reordered(together, order_of(together), [len(log) for log in logs])


def reordered(together: Events, order: NDArray[np.intp], lengths: Sequence[int], first: int = 0) -> Events:
    """A copy in another order; renumbers `seq`, and `other` of each FREE, the `seq` of its ALLOCATE.

    Args:
        together: the logs one after another; changed in place.
        order: index of each event in `together`.
        lengths: of the logs.
        first: index where the first log begins.
    """
    place = np.empty(len(together), np.uint32)
    place[order] = np.arange(len(together), dtype=np.uint32)
    for length in lengths:
        log = together[first : first + length]
        frees = log["kind"] == Kind.FREE
        # A log is complete, so the original seq of an event is its index.
        log["other"][frees] = place[first + log["other"][frees]]
        first += length
    events: Events = taken(together, order)
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


# ------------------------------------------------------------------------------
# The events that build a heap state: for files that hold the chunks of one moment, and no history.
#
# ::
#
#     regions    [ aaaa | .... | bb | ......... ]      from the file
#     events     EXTEND                                the whole region is one free chunk
#                SPLIT ALLOCATE(a)  SPLIT              for each chunk from left to right
#                SPLIT ALLOCATE(b)
#
# The file does not say how the heap came into this state. These events are one way to it, so a reader must not take
# their order for the order of the requests: an importer that uses them sets `details["history"]` to
# `origin_details.STATE_ONLY`.

HEAP_CHUNK = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),  # the size where the file does not say it; ignored for free chunks
        ("label", "<u4"),
        ("stream", "<u2"),
        ("in_use", "?"),
    ]
)
"""One chunk of a state, free or in use."""

HeapChunks = NDArray[np.void]
"""An array of `HEAP_CHUNK`."""


class HeapRegion(NamedTuple):
    """One region: the half-open range of its addresses."""

    address: int
    size: int


def regions_without_gaps(chunks: HeapChunks) -> list[HeapRegion]:
    """The regions of a file that does not name them: a gap between two chunks begins a new one.

    Args:
        chunks: shape (n,) of HEAP_CHUNK, by ascending address, without overlaps.
    """
    if not len(chunks):
        return []
    stops = chunks["address"] + chunks["size"]
    first = np.flatnonzero(np.concatenate(([True], chunks["address"][1:] != stops[:-1])))
    last = np.concatenate((first[1:], [len(chunks)])) - 1
    starts = chunks["address"][first].tolist()
    return [HeapRegion(start, stop - start) for start, stop in zip(starts, stops[last].tolist(), strict=True)]


def events_of_state(chunks: HeapChunks, regions: list[HeapRegion]) -> Events:
    """EXTEND, SPLIT and ALLOCATE events after which the heap has exactly these chunks; `pool` and `time` are 0.

    Args:
        chunks: shape (n,) of HEAP_CHUNK, by ascending address; they tile every region.
        regions: by ascending address.

    Raises:
        TraceError: the chunks do not tile the regions; the message names the first address that is wrong.
    """
    if len(regions) > MAX_REGIONS:
        raise TraceError(f"{len(regions)} regions were given; a trace can number {MAX_REGIONS}")
    slots = _slots(chunks, regions)
    stops = np.array([region.address + region.size for region in regions], np.uint64)[slots]
    is_first = np.concatenate(([True], slots[1:] != slots[:-1]))[: len(chunks)]
    address: NDArray[np.uint64] = chunks["address"]
    ends: NDArray[np.uint64] = address + chunks["size"]
    is_split = ends < stops
    # Three rows a chunk, of which those that do not happen are dropped.
    rows: Events = np.zeros((len(chunks), 3), EVENT)
    extends, splits, allocates = rows[:, 0], rows[:, 1], rows[:, 2]
    handles = np.arange(len(chunks), dtype=np.uint32)
    rows["chunk"], rows["region"] = handles[:, None], slots[:, None]
    extends["kind"], splits["kind"], allocates["kind"] = Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE
    extends["address"], extends["size"] = address, stops - address
    extends["requested"] = extends["size"]
    splits["address"], splits["size"], splits["other"] = ends, stops - ends, handles + 1
    for field in ("address", "size", "requested", "label", "stream"):
        allocates[field] = chunks[field]
    rows["bin"] = bin_numbers(rows["size"])
    allocates["other"] = np.cumsum(chunks["in_use"])
    happens = np.stack([is_first, is_split, chunks["in_use"]], axis=1)
    events: Events = joined([rows.reshape(-1)[happens.reshape(-1)]])
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    return events


def _slots(chunks: HeapChunks, regions: list[HeapRegion]) -> NDArray[np.intp]:
    """The region of each chunk, by its index; checks that the chunks tile the regions."""
    starts = np.array([region.address for region in regions], np.uint64)
    stops = starts + np.array([region.size for region in regions], np.uint64)
    slots: NDArray[np.intp] = np.searchsorted(starts, chunks["address"], "right") - 1
    address: NDArray[np.uint64] = chunks["address"]
    ends: NDArray[np.uint64] = address + chunks["size"]
    expected = np.concatenate((address[:1], ends[:-1]))
    is_first = np.concatenate(([True], slots[1:] != slots[:-1]))[: len(chunks)]
    outside = slots < 0
    expected[is_first] = starts[slots[is_first]]
    wrong = outside | (expected != address) | (chunks["size"] == 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise TraceError(
            f"the chunk at {int(chunks['address'][at]):#x} does not begin where the last one ends"
        )
    last = np.flatnonzero(np.concatenate((is_first[1:], [True]))[: len(chunks)])
    if len(last) != len(regions) or (chunks["address"][last] + chunks["size"][last] != stops).any():
        raise TraceError(f"{len(chunks)} chunks do not fill {len(regions)} regions")
    return slots


def failed_request(requested: int, free_bytes: int, largest_free_chunk: int, label: int = 0) -> Events:
    """One OOM event, to append to the events of a state; `pool` and `time` are 0."""
    event: Events = np.zeros(1, EVENT)
    event["kind"], event["requested"], event["label"] = Kind.OOM, requested, label
    event["address"], event["size"] = free_bytes, largest_free_chunk
    event["bin"] = bin_numbers(np.array([max(1, requested)], np.uint64))
    return event


# ------------------------------------------------------------------------------
# Join the events of the heaps of a log into one stream, in the order of its records.


def in_record_order(logs: Sequence[Events], times: Sequence[int]) -> Events:
    """One stream, with times in ns from the first record; a record never has an earlier time than one before it.

    Args:
        logs: one per heap, with the number of the record in `time`.
        times: ns of each record; 0: before the first record with a time.
    """
    events = by_time(logs)
    clock = np.maximum.accumulate(np.array(times, np.int64))
    first = clock[clock > 0][:1]
    if len(first):
        events["time"] = np.maximum(clock - first, 0)[events["time"]]
    else:
        events["time"] = 0
    return events
