"""One order for the events that an importer made of several heaps: one after another, by time, or as recorded."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import joined, taken


def one_after_another(logs: Sequence[Events]) -> Events:
    """The events of imported heap 0, then those of heap 1, ...: for states, or where there are no common times.

    Args:
        logs: one per heap; `seq` of each counts from 0, and `other` of a FREE is the `seq` of its ALLOCATE.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.arange(len(together)))


def by_time(logs: Sequence[Events]) -> Events:
    """The events of all imported heaps in the order of their `time`; events of one heap keep their order.

    Args:
        logs: as for `one_after_another`; `time` never decreases within a log.

    Raises:
        TraceError: there are more heaps than a trace can have.
    """
    return _in_order(logs, lambda together: np.argsort(together["time"], kind="stable"))


def without(log: Events, dropped: NDArray[np.bool_]) -> Events:
    """A copy of the events of one imported heap without some of them, numbered again.

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
    """The events of all imported heaps in the order of `order_of`; those of a single heap are not copied."""
    if len(logs) > MAX_POOLS:
        raise TraceError(f"the file holds {len(logs)} heaps; a trace can have {MAX_POOLS}")
    for pool, log in enumerate(logs):
        log["pool"] = pool
    if len(logs) == 1:
        return logs[0]
    together = joined(list(logs))
    return reordered(together, order_of(together), [len(log) for log in logs])


def reordered(together: Events, order: NDArray[np.intp], lengths: Sequence[int], first: int = 0) -> Events:
    """Events of imported heaps in another order; renumbers `seq`, and `other` of each FREE, the `seq` of its ALLOCATE.

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


def in_record_order(logs: Sequence[Events], times: Sequence[int]) -> Events:
    """One stream of events; times in ns from the first record, and never earlier than those of a record before.

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


def interleave(logs: Sequence[Events], marks: Events, times: NDArray[np.int64]) -> Events:
    """One stream of events from the logs of imported heaps 0, 1, ... and the marks.

    Args:
        logs: one per pool, complete and in order; their `time` is the index of the request.
        marks: come before other events with the same index.
        times: time of each request in nanoseconds, by index; replaces the index in `time`.
    """
    for pool, log in enumerate(logs):
        log["pool"] = pool
    together: Events = joined([marks, *logs])
    order = np.argsort(together["time"], kind="stable")
    woven = reordered(together, order, [len(log) for log in logs], first=len(marks))
    woven["time"] = times[woven["time"]]
    return woven
