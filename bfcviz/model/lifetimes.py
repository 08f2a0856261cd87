"""Lifetimes: each allocation from its ALLOCATE event to its FREE event.

::

    address |      [== a ======]                 an allocation is alive at the steps born + 1 .. died
            |  [=== b =====================      died: NEVER where it is alive at the end of the range
            +------------------------------ step

A FREE has the low 32 bits of its ALLOCATE's `seq`, so one pass over the events matches all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.events.trace import Trace
from bfcviz.model.address_layout import LONG_AGO, NEVER
from bfcviz.model.model import Model, model_chunks_in_use

LIFETIME = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),
        ("born", "<u8"),  # `seq` of its ALLOCATE
        ("died", "<u8"),  # `seq` of its FREE; NEVER: alive at the end of the range
        ("label", "<u4"),
        ("chunk", "<u4"),  # handle
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("region", "<u2"),  # slot
        ("born_time", "<i8"),  # of its ALLOCATE; LONG_AGO: before the range
        ("died_time", "<i8"),  # of its FREE; undefined while `died` is NEVER
    ],
    align=True,
)
"""One allocation."""

Wanted = Callable[[NDArray[np.uint64], NDArray[np.uint64]], NDArray[np.bool_]]
"""Selects allocations by their addresses and sizes."""

_LOW: Final = np.uint64(2**32 - 1)


@dataclass(frozen=True)
class Found:
    """The lifetimes found in a range of steps: some of the allocations.

    Attributes:
        lifetimes: of LIFETIME, by `born`.
        seen: number of allocations in the range, where `largest` keeps only some.
    """

    lifetimes: NDArray[np.void]
    seen: int


def of_chunks(chunks: NDArray[np.void]) -> NDArray[np.void]:
    """Chunks in use as lifetimes that did not end, by `born`; when they began is not known."""
    found = _lifetime_rows(chunks, np.argsort(chunks["born"]), "handle")
    found["born_time"] = LONG_AGO
    return found


def born_by(events: Events, at: NDArray[np.intp]) -> NDArray[np.void]:
    """The lifetimes that the ALLOCATE events at these indices begin."""
    found = _lifetime_rows(events, at, "chunk")
    found["born"], found["born_time"] = events["seq"][at], events["time"][at]
    return found


def born_of(events: Events, at: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The `seq` of the ALLOCATE of each FREE at these indices: the last one before it with the same low 32 bits."""
    return last_with_low_bits(events["seq"][at], events["other"][at])


def last_with_low_bits(seq: NDArray[np.uint64] | np.uint64, low: NDArray[Any]) -> NDArray[np.uint64]:
    """To find the ALLOCATE of a lifetime's end: the last numbers up to `seq` that have these low 32 bits."""
    found: NDArray[np.uint64] = seq - ((seq - low) & _LOW)
    return found


class LifetimeReader:
    """Finds the allocations of a range of steps whose end moves on as the trace grows; reads each event once.

    Args:
        start: the first step of the range.
        largest: keep only the `largest` largest ones; of equal sizes, earlier ones count as larger.
        wanted: keep only these.
        most: stop, and return no lifetimes, as soon as there are more than this; `Found.seen` is then `most` + 1.
        model: a model of this trace and pool, to reach `start` sooner; it returns to its step.

    Attributes:
        stop: the step up to which events were read.

    Raises:
        TraceError: the events up to `start` contradict each other.
    """

    def __init__(  # noqa: PLR0913  each bounds the search in its own way
        self,
        trace: Trace,
        pool: int,
        start: int,
        *,
        largest: int | None = None,
        wanted: Wanted | None = None,
        most: int | None = None,
        model: Model | None = None,
    ) -> None:
        self.stop = start
        self._trace, self._pool = trace, pool
        self._wanted, self._largest, self._most = wanted, largest, most
        self._floor = 0  # smaller allocations are not kept
        carried = of_chunks(model_chunks_in_use(trace, pool, start, model))
        self._alive = taken(carried, self._selected(carried, np.arange(len(carried))))
        self._ended: list[NDArray[np.void]] = []
        self._seen = len(self._alive)
        self._forget()

    def read_to(self, stop: int) -> Found:
        """The lifetimes up to step `stop`, at least `self.stop`; reads the events between these steps."""
        for block in self._trace.blocks(self.stop, stop):
            if self._too_many:
                break
            kinds = np.where(block["pool"] == self._pool, block["kind"], 0)
            self._begin(block, np.flatnonzero(kinds == Kind.ALLOCATE))
            self._end(block, np.flatnonzero(kinds == Kind.FREE))
            self._forget()
        self.stop = stop
        if self._too_many:
            self._alive, self._ended = self._alive[:0].copy(), []
            return Found(self._alive, (self._most or 0) + 1)
        return Found(self._all(), self._seen)

    @property
    def _too_many(self) -> bool:
        return self._most is not None and self._seen > self._most

    def _begin(self, block: Events, at: NDArray[np.intp]) -> None:
        """Begin the lifetimes of the ALLOCATE events of a block at these indices."""
        at = self._selected(block, at)
        self._seen += len(at)
        large = at if self._floor == 0 else at[block["size"][at] > self._floor]
        self._alive = joined([self._alive, born_by(block, large)])

    def _end(self, block: Events, at: NDArray[np.intp]) -> None:
        """End the lifetimes of the FREE events of a block at these indices."""
        at = self._selected(block, at)
        at = at if self._floor == 0 else at[block["size"][at] >= self._floor]
        if len(self._alive) and len(at):
            born = born_of(block, at)
            place = np.minimum(np.searchsorted(self._alive["born"], born), len(self._alive) - 1)
            hit = self._alive["born"][place] == born
            self._alive["died"][place[hit]] = block["seq"][at[hit]]
            self._alive["died_time"][place[hit]] = block["time"][at[hit]]
            over = self._alive["died"] != NEVER
            self._ended.append(taken(self._alive, over))
            self._alive = taken(self._alive, ~over)

    def _all(self) -> NDArray[np.void]:
        """All kept lifetimes, by `born`."""
        self._ended = [joined(self._ended)] if self._ended else []
        kept = joined([*self._ended, self._alive])
        return taken(kept, np.argsort(kept["born"]))

    def _selected(self, records: NDArray[np.void], at: NDArray[np.intp]) -> NDArray[np.intp]:
        if self._wanted is None:
            return at
        return at[self._wanted(records["address"][at], records["size"][at])]

    def _forget(self) -> None:
        """Drop lifetimes that are too small to be among the largest."""
        largest = self._largest
        if largest is None or len(self._alive) + sum(map(len, self._ended)) <= largest:
            return
        kept = self._all()
        kept = taken(kept, np.sort(np.lexsort([kept["born"], ~kept["size"]])[:largest]))
        self._floor = int(kept["size"].min(initial=NEVER))
        over = kept["died"] != NEVER
        self._ended, self._alive = [taken(kept, over)], taken(kept, ~over)


def _lifetime_rows(records: NDArray[np.void], at: NDArray[np.intp], handle: str) -> NDArray[np.void]:
    # Field by field: NumPy selects whole records a hundred times slower.
    found = np.zeros(len(at), LIFETIME)
    names = set(records.dtype.names or ())
    for name in LIFETIME.names or ():
        source = handle if name == "chunk" else name
        if source in names:
            found[name] = records[source][at]
    found["died"] = NEVER
    return found


# ------------------------------------------------------------------------------
# When allocations end: a search that continues where it stopped, as the trace grows.


class Ends:
    """Finds the ends of lifetimes, the FREEs of one pool, and remembers them; each search reads an event once."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace, self._pool = trace, pool
        # `born` -> (`seq` of its FREE or NEVER, step searched up to)
        self._known: dict[int, tuple[int, int]] = {}

    def end_of(self, born: int, stop: int) -> int:
        """The end of a lifetime: the `seq` of the FREE of `born`; NEVER where it is not before `stop`."""
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


def elapsed(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.uint64]:
    """How long lifetimes are, in nanoseconds between two times; 0 where a clock went back."""
    # Unsigned: a difference may be more than int64 holds.
    span = end.view(np.uint64) - begin.view(np.uint64)
    return np.where(end > begin, span, np.uint64(0))
