"""Number the handles of chunks anew: a model takes no handle higher than the number of chunks that there can be."""

import heapq

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind

_SHIFT = np.uint64(32)


def renumber_handles(events: Events, pool: int, present: NDArray[np.uint32]) -> None:
    """Change `chunk` and `other` of the events of one heap in place.

    Args:
        events: in order; those of other heaps stay as they are.
        pool: index of the heap.
        present: the handles of its chunks before the first event; they become 0, 1, 2, ... in this order.
    """
    mine = np.flatnonzero(
        (events["pool"] == pool) & (events["kind"] != Kind.OOM) & (events["kind"] != Kind.MARK)
    )
    rows = events[mine]
    births, numbers = _births(rows, present)
    order = np.argsort(births)
    births, numbers = births[order], numbers[order]
    fields = {"chunk": np.ones(len(rows), bool), "other": np.isin(rows["kind"], [Kind.SPLIT, Kind.MERGE])}
    for field, there in fields.items():
        at = np.flatnonzero(there)
        keys = (rows[field][at].astype(np.uint64) << _SHIFT) | (at.astype(np.uint64) + np.uint64(1))
        events[field][mine[at]] = numbers[np.searchsorted(births, keys, "right") - 1]


def _births(rows: Events, present: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """For each beginning of a chunk its old handle and place as one key, and its new handle, the lowest unused one."""
    keys = [(int(handle) << 32) for handle in present]
    numbers = list(range(len(present)))
    now = dict(zip(present.tolist(), numbers, strict=True))
    unused: list[int] = []
    highest = len(numbers)
    for place, kind, chunk, other in zip(
        range(1, len(rows) + 1),
        rows["kind"].tolist(),
        rows["chunk"].tolist(),
        rows["other"].tolist(),
        strict=True,
    ):
        if kind in {Kind.SPLIT, Kind.EXTEND}:
            handle = other if kind == Kind.SPLIT else chunk
            if unused:
                number = heapq.heappop(unused)
            else:
                number, highest = highest, highest + 1
            now[handle] = number
            keys.append((handle << 32) | place)
            numbers.append(number)
        elif kind in {Kind.MERGE, Kind.RELEASE}:
            heapq.heappush(unused, now.pop(other if kind == Kind.MERGE else chunk))
    return np.array(keys, np.uint64), np.array(numbers, np.uint32)
