"""TraceIndex: what searches, timelines and colours need of all events of one heap, found in one pass.

::

    events    |  65,536  |  65,536  |  65,536  |  ...      read once, block by block
    index     rows of every total; every OOM and MARK; bytes times steps of each label; states to seek from

The peak, the worst fragmentation, marks, failures and the set-up of a program then cost no second pass. The index is
of a trace that no longer grows; a live trace is followed by `growing_timeline`.
"""

from collections.abc import Collection
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError
from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.growing_timeline import RollingTimeline
from bfcviz.model.snapshots import Snapshots

MOST_NOTABLE: Final = 1 << 18
"""OOMs and marks of all heaps that an index keeps (16 MiB); with more, they are searched in the events."""

_NUMBERS: Final = ("thread", "stream")


class TraceIndex:
    """The index of one heap of a trace that does not grow; made by `index_of`.

    Attributes:
        length: events of the trace.
        rolling: the series of the heap.
        byte_steps: bytes in use times steps in use, summed over the trace, by label number.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        """Read all events.

        Raises:
            TraceError: events contradict each other.
        """
        self.length = len(trace)
        self.pool = pool
        self.byte_steps: NDArray[np.float64] = np.zeros(0)
        self._ranges: dict[str, tuple[int, int]] = {}
        self._found: list[Events] = []
        self._count = 0
        rolling = RollingTimeline(pool)
        rolling.extend(trace, self._look_at)
        self.rolling = rolling.copy()  # a reference to the trace would keep both alive
        self._notable = joined(self._found) if self._found else np.zeros(0, EVENT)
        del self._found

    @property
    def varied(self) -> frozenset[str]:
        """Which of `thread` and `stream` differ between allocations of the heap."""
        return frozenset(name for name, (low, high) in self._ranges.items() if low != high)

    def notable(self, kinds: Collection[Kind], pool: int | None, start: int, stop: int) -> Events | None:
        """All events of `kinds` in [start, stop) of a pool (None: of any); None where the index does not keep them."""
        if self._count > MOST_NOTABLE or not {Kind.OOM, Kind.MARK}.issuperset(kinds):
            return None
        first, end = np.searchsorted(self._notable["seq"], np.array([start, stop], np.uint64))
        events = self._notable[first:end]
        wanted = np.isin(events["kind"], [int(kind) for kind in kinds])
        return taken(events, wanted if pool is None else wanted & (events["pool"] == pool))

    def snapshots(self) -> Snapshots | None:
        """The states that the pass kept, for a model of its own of the same heap."""
        return self.rolling.snapshots()

    def _look_at(self, block: Events) -> None:
        notable = block["kind"] >= Kind.OOM
        count = int(np.count_nonzero(notable))
        self._count += count
        if count and self._count <= MOST_NOTABLE:
            self._found.append(taken(block, notable))
        self.byte_steps = with_byte_steps(self.byte_steps, block, self.pool, "label", self.length)
        if len(self.varied) < len(_NUMBERS):
            allocations = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self.pool)
            for name in _NUMBERS:
                values = block[name][allocations]
                if len(values):
                    low, high = self._ranges.get(name, (int(values[0]), int(values[0])))
                    self._ranges[name] = min(low, int(values.min())), max(high, int(values.max()))


def with_byte_steps(
    totals: NDArray[np.float64], block: Events, pool: int, name: str, length: int
) -> NDArray[np.float64]:
    """`totals` and bytes times steps up to step `length` of a block's events, by the value of field `name`."""
    kinds = np.where(block["pool"] == pool, block["kind"], 0)
    at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
    left = (length - block["seq"][at].astype(np.float64)) * block["size"][at]
    # An ALLOCATE counts up to the end of the trace; its FREE subtracts the rest.
    signed = np.where(kinds[at] == Kind.FREE, -left, left)
    sums = np.bincount(block[name][at], weights=signed, minlength=len(totals))
    found: NDArray[np.float64] = sums.astype(np.float64)  # integers where the block has none
    found[: len(totals)] += totals
    return found


_made: WeakKeyDictionary[Trace, dict[tuple[int, int], TraceIndex | None]] = WeakKeyDictionary()
"""By pool and length; None: it cannot be made."""

_making: Final = Lock()


def index_of(trace: Trace, pool: int = 0) -> TraceIndex | None:
    """The index of a heap; the first call for it reads all events.

    None for a trace that grows or has dropped its first events, or whose events are wrong or cannot be read.
    """
    if trace.following or trace.first:
        return None
    with _making:
        made, key = _made.setdefault(trace, {}), (pool, len(trace))
        if key not in made:
            try:
                made[key] = TraceIndex(trace, pool)
            except BfcvizError:  # the caller reads the events it needs, and raises
                made[key] = None
        return made[key]


def known_index(trace: Trace, pool: int | None = None) -> TraceIndex | None:
    """The index of a heap (None: of any) where one was made of all events that the trace has now."""
    made, length = _made.get(trace, {}), len(trace)
    found = (index for (of, at), index in list(made.items()) if at == length and pool in (None, of))
    return next((index for index in found if index is not None), None)
