"""Interleave the event logs of several heaps into one stream, in the order of the requests."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import joined
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.importers.pools import reordered
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
    woven = reordered(together, order, [len(log) for log in logs], first=len(marks))
    woven["time"] = times[woven["time"]]
    return woven
