"""Sums over the allocations and frees of a heap, in one pass; compiled where there is a compiler (`byte_steps.pxd`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.model import array_access, row_storage


def nothing_seen() -> NDArray[np.uint64]:
    """No allocations; their lowest and highest thread, lowest and highest stream: for `add_byte_steps` to note."""
    return np.array([0, 0xFFFF, 0, 0xFFFF, 0], np.uint64)


def add_byte_steps(
    block: Events, pool: int, stop: int, totals: NDArray[np.float64], seen: NDArray[np.uint64]
) -> int:
    """Add what the events of heap `pool` change: bytes in use, and bytes times steps in use before step `stop`.

    Args:
        block: contiguous events before step `stop`.
        pool: the number of the heap.
        stop: the step up to which a chunk counts.
        totals: shape (2, labels): of each label the bytes in use, and the bytes times steps.
        seen: of `nothing_seen`.

    Returns:
        How many events were added: those before the first label that has no place in `totals`.
    """
    block = row_storage.contiguous(block)
    count, places = len(block), totals.shape[1]
    if not count or not places:
        return 0
    records = array_access.events(block)
    bytes_held, byte_steps = array_access.floats(totals[0]), array_access.floats(totals[1])
    noted = array_access.numbers(seen)
    for i in range(count):
        e: Any = array_access.event(records, i)
        if e.pool != pool or e.kind not in (array_access.ALLOCATE, array_access.FREE):
            continue
        if e.label >= places:
            return i
        change = float(e.size)
        if e.kind == array_access.FREE:
            change = -change
        else:
            noted[0] += 1
            noted[1] = min(noted[1], e.thread)
            noted[2] = max(noted[2], e.thread)
            noted[3] = min(noted[3], e.stream)
            noted[4] = max(noted[4], e.stream)
        bytes_held[e.label] += change
        byte_steps[e.label] += change * (float(stop) - float(e.seq))
    return count
