"""The busy window: the steps of a trace after its set-up, where the training itself uses memory."""

from typing import Final

import numpy as np

from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace

BUSY: Final = 0.25
"""The set-up ends where the bytes in use first reach this share of their peak."""

LONG: Final = 0.25
"""A shorter set-up, as a share of all events, is not left out."""

_LEAD: Final = 0.02  # of the window, before the end of the set-up: the rise is then visible


def busy_window(trace: Trace, pool: int = 0) -> tuple[int, int] | None:
    """The steps from the end of the set-up to the last one; None where the set-up is short, or no longer in the trace.

    The set-up are the events before the bytes in use of the pool first reach a quarter of their peak, and the events
    with the time of the first one, which build the state that a file begins with.
    """
    first, last = trace.first, len(trace)
    if last == first or first > 0 or holds_only_states(trace.origin.details):
        return None
    ends = max(_rise(trace, pool), _built(trace))
    begin = int(ends - _LEAD * (last - ends))
    if begin < LONG * last or ends >= last:
        return None
    return begin, last


def _rise(trace: Trace, pool: int) -> int:
    """The first step whose bytes in use reach `BUSY` of their peak."""
    in_use = highest = 0
    steps, peaks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in trace.blocks():
        sizes, kinds = block["size"].astype(np.int64), block["kind"]
        sign = (kinds == Kind.ALLOCATE).astype(np.int64) - (kinds == Kind.FREE)
        held = in_use + np.cumsum(np.where(block["pool"] == pool, sign, 0) * sizes)
        peak = np.maximum.accumulate(np.append(highest, held))
        rises = np.flatnonzero(np.diff(peak))
        steps.append(block["seq"][rises].astype(np.int64) + 1)
        peaks.append(peak[rises + 1])
        in_use, highest = int(held[-1]), int(peak[-1])
    every = np.concatenate(peaks)
    reached = int(np.searchsorted(every, BUSY * highest))
    return int(np.concatenate(steps)[reached]) if len(every) else trace.first


def _built(trace: Trace) -> int:
    """The step after the leading events that have one time; the first step where all events have it, or are few."""
    begin = None
    for block in trace.blocks():
        begin = block["time"][0] if begin is None else begin
        later = np.flatnonzero(block["time"] != begin)
        if len(later):
            return int(block["seq"][later[0]])
    return trace.first
