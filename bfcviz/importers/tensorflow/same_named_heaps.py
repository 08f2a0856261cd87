"""Tell heaps apart that have the same name in one process: one for each NUMA node, or for each device.

A profile names only the allocator. But each event carries the bytes in use after it, so it continues the heap that had
that many bytes less (more, if it is a free) in use; a free belongs to the heap that has its chunk in use.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bfcviz.importers.tensorflow.requests import ABSENT, Requests

_MOST_HEAPS = 16


@dataclass
class _Traced:
    """One heap: the bytes in use after its last request, the addresses it used, and its requests."""

    in_use: int
    low: int
    high: int
    places: list[int] = field(default_factory=list)

    def distance(self, address: int) -> int:
        """Bytes between an address and those that the heap used."""
        return max(self.low - address, address - self.high, 0)


def heaps_of(requests: Requests) -> list[NDArray[np.intp]]:
    """The indices of the requests of each heap, in order of their first request; a single one if that fits.

    Every heap must begin with nothing in use. Where several heaps fit, the one that used the nearest addresses is
    taken: only a replay can show whether that is right.

    Returns:
        An empty list if some request fits no heap.
    """
    if (requests["bytes_in_use"] == ABSENT).any():
        return []
    heaps: list[_Traced] = []
    live: dict[int, _Traced] = {}
    columns = (requests[name].tolist() for name in ("address", "size", "bytes_in_use", "free"))
    for place, (address, size, after, free) in enumerate(zip(*columns, strict=True)):
        if free:
            heap = live.pop(address, None)
            if heap is None or heap.in_use != after + size:
                return []
        else:
            fitting = [each for each in heaps if each.in_use == after - size]
            if not fitting and (after != size or len(heaps) == _MOST_HEAPS):
                return []
            heap = min(fitting, key=lambda each: each.distance(address)) if fitting else None
            if heap is None:
                heap = _Traced(0, address, address)
                heaps.append(heap)
            live[address] = heap
            heap.low, heap.high = min(heap.low, address), max(heap.high, address + size)
        heap.in_use = after
        heap.places.append(place)
    return [np.array(heap.places, np.intp) for heap in heaps]
