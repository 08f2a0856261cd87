"""When allocations end: a search that continues where it stopped, as the trace grows."""

from typing import Final

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes.address_layout import NEVER

_LOW: Final = 2**32 - 1


class Ends:
    """Finds the FREEs of allocations of one pool, and remembers them; each search reads an event once.

    Args:
        trace: the events.
        pool: index of the pool.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace, self._pool = trace, pool
        # `born` -> (`seq` of its FREE or NEVER, step searched up to)
        self._known: dict[int, tuple[int, int]] = {}

    def end_of(self, born: int, stop: int) -> int:
        """The `seq` of the FREE of the allocation of event `born`; NEVER where it is not before `stop`."""
        end, step = self._known.get(born, (int(NEVER), born + 1))
        if end == NEVER and step < stop:
            end = self._search(born, max(step, self._trace.first), stop)
            self._known[born] = end, stop
        return end if end < stop else int(NEVER)

    def _search(self, born: int, start: int, stop: int) -> int:
        for block in self._trace.blocks(start, stop):
            freed = (block["kind"] == Kind.FREE) & (block["other"] == born & _LOW)
            hits = np.flatnonzero(freed & (block["pool"] == self._pool))
            if len(hits):
                return int(block["seq"][hits[0]])
        return int(NEVER)
