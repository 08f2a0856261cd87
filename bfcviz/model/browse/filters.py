"""Filters of events and chunks, and the events of a trace that match one.

Events are read a block at a time: memory is bounded by a block and the result. `chunk_order` filters and orders chunks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes

State = Literal["all", "in use", "free"]

Progress = Callable[[int], bool]
"""Receives the number of events searched; returns whether to continue."""


class LabelSearch:
    """Which labels contain `text` in their name or in a detail (a call stack, a shape); case does not matter.

    Results are kept; the next call searches only labels added since.
    """

    def __init__(self, labels: Labels, text: str) -> None:
        self.text = text
        self._labels = labels
        self._folded = text.casefold()
        self._hits = np.zeros(0, np.bool_)

    def hits(self) -> NDArray[np.bool_]:
        """Whether each label contains the text, by number."""
        known, count = len(self._hits), len(self._labels)
        if count > known:
            new = np.fromiter((self._contains(number) for number in range(known, count)), np.bool_)
            self._hits = np.concatenate([self._hits, new])
        return self._hits

    def _contains(self, number: int) -> bool:
        label = self._labels[number]
        if self._folded in label.name.casefold():
            return True
        return any(self._folded in detail.casefold() for detail in label.details.values())


@dataclass(frozen=True)
class Condition:
    """A condition on the allocation of a chunk or of an event, such as who holds it.

    Attributes:
        reason: the condition in words.
        holds: whether it holds for each record, with the fields label, thread, stream and born.
    """

    reason: str
    holds: Callable[[NDArray[np.void]], NDArray[np.bool_]] = field(compare=False)


@dataclass(frozen=True)
class Filter:
    """Conditions on events and chunks; a condition that is not set matches all.

    Attributes:
        text: in the label's name or details, in any case; `0x...` instead: memory that contains this address.
        least_size: the smallest size in bytes.
        most_size: the largest size in bytes.
        thread: number of the thread that allocated the chunk or wrote the event.
        also: other conditions; only chunks in use and events of allocations can match.
    """

    text: str = ""
    least_size: int | None = None
    most_size: int | None = None
    thread: int | None = None
    also: tuple[Condition, ...] = ()

    @property
    def address(self) -> int | None:
        """The address in `text`; None where `text` is not an address."""
        try:
            number = int(self.text, 16) if self.text[:2].lower() == "0x" else -1
        except ValueError:
            return None
        return number if 0 <= number < 1 << 64 else None

    def reasons(self) -> list[str]:
        """The conditions in words; empty where all match."""
        conditions = []
        if self.address is not None:
            conditions.append(f"address {self.address:#x} lies in it")
        elif self.text:
            conditions.append(f"label contains '{self.text}'")
        if self.least_size is not None:
            conditions.append(f"size at least {format_bytes(self.least_size)}")
        if self.most_size is not None:
            conditions.append(f"size at most {format_bytes(self.most_size)}")
        if self.thread is not None:
            conditions.append(f"thread {self.thread}")
        return [*conditions, *(each.reason for each in self.also)]

    def matches(
        self, rows: NDArray[np.void], sizes: NDArray[np.uint64], search: LabelSearch
    ) -> NDArray[np.bool_]:
        """Which rows, of EVENT or CHUNK, match.

        Args:
            rows: events or chunks, shape (n,).
            sizes: the size of each row in bytes, shape (n,).
            search: the search for `text` in the labels of the rows.
        """
        matching_rows = np.ones(len(rows), np.bool_)
        if self.address is not None:
            # Below the row's start the difference wraps and is larger than any size.
            matching_rows &= np.uint64(self.address) - rows["address"] < sizes
        elif self.text:
            matching_rows &= search.hits()[rows["label"]]
        if self.least_size is not None:
            matching_rows &= sizes >= self.least_size
        if self.most_size is not None:
            matching_rows &= sizes <= self.most_size
        if self.thread is not None:
            matching_rows &= rows["thread"] == self.thread
        for each in self.also:
            matching_rows &= each.holds(rows)
        return matching_rows


@dataclass(frozen=True)
class EventFilter(Filter):
    """Conditions on events. The size of an OOM is its requested size; marks have neither size nor address.

    Attributes:
        kinds: kinds of events; empty: all.
    """

    kinds: frozenset[Kind] = frozenset()

    def reasons(self) -> list[str]:
        """The conditions in words; empty where all match."""
        kinds = " or ".join(kind.name for kind in sorted(self.kinds))
        return [f"kind {kinds}" if kinds else "", *super().reasons()][not kinds :]

    def among(self, events: Events, pool: int, search: LabelSearch) -> NDArray[np.intp]:
        """Indices of the events of this pool that match."""
        matching_rows = self._kind_matches()[events["kind"]] & (events["pool"] == pool)
        if not super().reasons():
            return np.flatnonzero(matching_rows)
        at = np.flatnonzero(matching_rows)
        # Columns of the candidates, not whole records: copying records would cost more than all conditions.
        names = ("address", "label", "thread", "stream", "kind", "size", "requested")
        rows = np.empty(len(at), [*((name, events.dtype[name]) for name in names), ("born", "<u8")])
        for name in names:
            rows[name] = events[name][at]
        rows["born"] = events["seq"][at]  # the phases of an event are those in which it happened
        sizes = np.where(rows["kind"] == Kind.OOM, rows["requested"], rows["size"])
        return at[self.matches(rows, sizes, search)]

    def _kind_matches(self) -> NDArray[np.bool_]:
        kinds = self.kinds or frozenset(Kind)
        if self.least_size is not None or self.most_size is not None:
            kinds -= {Kind.MARK}
        if self.address is not None:
            kinds -= {Kind.MARK, Kind.OOM}
        if self.also:
            kinds &= {Kind.ALLOCATE, Kind.FREE, Kind.OOM}
        return np.isin(np.arange(256), [int(kind) for kind in kinds])


@dataclass(frozen=True)
class ChunkFilter(Filter):
    """Conditions on chunks. Free chunks have no label and no thread: a condition on either excludes them.

    Attributes:
        state: state of the chunk.
    """

    state: State = "all"

    def reasons(self) -> list[str]:
        """The conditions in words; empty where all match."""
        return [self.state, *super().reasons()][self.state == "all" :]

    def among(self, chunks: NDArray[np.void], search: LabelSearch) -> NDArray[np.intp]:
        """Indices of the chunks that match."""
        if not self.reasons():
            return np.arange(len(chunks))
        matching_rows = self.matches(chunks, chunks["size"], search)
        if self.state != "all":
            matching_rows &= chunks["in_use"] == (self.state == "in use")
        if self.thread is not None or self.also:
            matching_rows &= chunks["in_use"]
        return np.flatnonzero(matching_rows)


def matching(  # noqa: PLR0913  the trace, the filter and the range
    trace: Trace,
    pool: int,
    wanted: EventFilter,
    progress: Progress | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
) -> NDArray[np.unsignedinteger]:
    """The `seq` of each event of `pool` that matches, ascending, shape (n,), as uint32 where that is enough.

    Args:
        trace: the events.
        pool: index of the pool.
        wanted: the conditions.
        progress: called after each block with the number of events searched; where it returns False, the search
            stops and the matches so far are returned.
        start: the first event to search; None: the first event of the trace.
        stop: one past the last event to search; None: the end of the trace.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    dtype = np.uint32 if stop < 1 << 32 else np.uint64
    if not wanted.reasons() and len(trace.origin.pools) == 1:  # no event must be read
        return np.arange(start, stop, dtype=dtype)
    search = LabelSearch(trace.labels, wanted.text)
    found: list[NDArray[np.unsignedinteger]] = [np.zeros(0, dtype)]
    for block in trace.blocks(start, stop):
        found.append((wanted.among(block, pool, search) + start).astype(dtype))
        start += len(block)
        if progress is not None and not progress(start):
            break
    return np.concatenate(found)
