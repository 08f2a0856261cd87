"""Steps worth going to. A step found is the one just after its event: the state that the event left."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.source import BLOCK
from bfcviz.events.trace import Trace
from bfcviz.model.timeline import timeline


def next_step(trace: Trace, step: int, kinds: Collection[Kind], pool: int | None = 0) -> int | None:
    """The first step after `step` that an event of one of `kinds` leads to; None where there is none.

    Args:
        trace: where to look.
        step: where to begin.
        kinds: of the event.
        pool: the event's pool; None: any.
    """
    _check(trace, step)
    for block in trace.blocks(step):
        found = _matches(block, kinds, pool)
        if len(found):
            return int(block["seq"][found[0]]) + 1
    return None


def previous_step(trace: Trace, step: int, kinds: Collection[Kind], pool: int | None = 0) -> int | None:
    """The last step before `step` that an event of one of `kinds` leads to; None where there is none."""
    _check(trace, step)
    stop = step - 1  # event `step - 1` leads to `step` itself
    while stop > 0:
        start = (stop - 1) // BLOCK * BLOCK
        found = _matches(trace.read(start, stop), kinds, pool)
        if len(found):
            return start + int(found[-1]) + 1
        stop = start
    return None


def events_of(
    trace: Trace, kinds: Collection[Kind], pool: int | None = 0, start: int = 0, stop: int | None = None
) -> Events:
    """All events of `kinds` among [start, stop), such as the marks and OOMs to draw over a timeline."""
    found = [block[_matches(block, kinds, pool)] for block in trace.blocks(start, stop)]
    return np.concatenate(found) if found else np.zeros(0, EVENT)


def peak(trace: Trace, pool: int = 0) -> int:
    """The first step at which bytes_in_use is at its highest; 0 for a trace without events."""
    return _first_highest(trace, pool, "bytes_in_use")


def worst_fragmentation(trace: Trace, pool: int = 0) -> int:
    """The first step with the highest external fragmentation (1 - largest_free_chunk / free_bytes)."""
    return _first_highest(trace, pool, "external_fragmentation")


def _first_highest(trace: Trace, pool: int, series: str) -> int:
    whole = timeline(trace, pool, points=1)
    # Step 0, the empty heap, has 0 of everything: it is the first where nothing is ever higher.
    return int(whole[0][f"{series}_max_step"]) if len(whole) and whole[0][f"{series}_max"] > 0 else 0


def _matches(block: Events, kinds: Collection[Kind], pool: int | None) -> NDArray[np.intp]:
    fits = np.isin(block["kind"], [int(kind) for kind in kinds])
    if pool is not None:
        fits &= block["pool"] == pool
    return np.flatnonzero(fits)


def _check(trace: Trace, step: int) -> None:
    if not 0 <= step <= len(trace):
        raise TraceError(f"step {step} was asked for, of a trace with steps 0 to {len(trace)}")
