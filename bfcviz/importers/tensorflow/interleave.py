"""Interleave the event logs of several heaps into one stream, in the order of the requests."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.importers.tensorflow.requests import Requests

_NO_STEP = (0, -1)


def step_marks(requests: Requests, label: int) -> Events:
    """A MARK before the first allocation of each step of the framework.

    Frees are ignored: a chunk is often freed after its step. `time` holds the index of the request.
    """
    named = np.flatnonzero(~requests["free"] & ~np.isin(requests["step"], _NO_STEP))
    steps = requests["step"][named]
    begins = named[np.concatenate(([True], steps[1:] != steps[:-1]))] if len(named) else named
    marks: Events = np.zeros(len(begins), EVENT)
    marks["time"] = begins
    marks["size"] = requests["step"][begins].view(np.uint64)
    marks["pool"] = requests["pool"][begins]
    marks["thread"] = marks["by"] = requests["thread"][begins]
    marks["label"] = label
    marks["kind"] = Kind.MARK
    marks["bin"] = -1
    return marks


def interleave(logs: Sequence[Events], marks: Events, times: NDArray[np.int64]) -> Events:
    """One stream from the logs of pool 0, 1, ... and the marks.

    Args:
        logs: one per pool, complete and in order; their `time` is the index of the request.
        marks: come before other events with the same index.
        times: time of each request in nanoseconds, by index; replaces the index in `time`.
    """
    for pool, log in enumerate(logs):
        log["pool"] = pool
    together: Events = joined([marks, *logs])
    order = np.argsort(together["time"], kind="stable")
    _point_frees_at_their_allocations(together, order, [len(marks), *map(len, logs)])
    woven: Events = taken(together, order)
    woven["time"] = times[woven["time"]]
    woven["seq"] = np.arange(len(woven), dtype=np.uint64)
    return woven


def _point_frees_at_their_allocations(together: Events, order: NDArray[np.intp], lengths: list[int]) -> None:
    """Renumber `other` of each FREE, the seq of its ALLOCATE, from its own log to the stream."""
    place_in_stream = np.empty(len(together), np.uint32)
    place_in_stream[order] = np.arange(len(together), dtype=np.uint32)
    start = lengths[0]
    for length in lengths[1:]:
        log = together[start : start + length]
        frees = log["kind"] == Kind.FREE
        # A log is complete, so the original seq of an event is its index.
        log["other"][frees] = place_in_stream[start + log["other"][frees]]
        start += length
