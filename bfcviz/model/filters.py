"""Filters of events and chunks, and the events of a trace that match one.

Events are read a block at a time: memory is bounded by a block and the result. `order_chunks` orders chunks.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import Events, Kind, bin_numbers
from bfcviz.events.trace import Trace
from bfcviz.model.trace_index import known_notable
from bfcviz.units import format_bytes, parse_bytes

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
        """Whether each label is found by a search for a text, by number."""
        known, count = len(self._hits), len(self._labels)
        if count > known:
            new = np.fromiter((self._contains(number) for number in range(known, count)), np.bool_)
            self._hits = np.concatenate([self._hits, new])
        return self._hits

    def _contains(self, number: int) -> bool:
        name, details = self._labels[number]
        return any(self._folded in text.casefold() for text in (name, *details.values()))


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
        """The address that the text of a filter names; None where it names none."""
        try:
            number = int(self.text, 16) if self.text[:2].lower() == "0x" else -1
        except ValueError:
            return None
        return number if 0 <= number < 1 << 64 else None

    def reasons(self) -> list[str]:
        """The conditions of a filter in words; empty where all match."""
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
        """Which rows, of EVENT or CHUNK, match a filter.

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


_SIZE_BOUND: Final = re.compile(
    r"(?:^|\s)([<>]=?|=)\s*(\d+(?:\.\d+)?\s*(?:[KMGTPE](?:i?B)?|B)?)(?=\s|$)", re.IGNORECASE
)


def search_filter(text: str) -> Filter:
    """What the user types into a search box as conditions.

    Args:
        text: words in a label, a frame of its stack, a file, a shape or a type; or `0x...`, an address; and bounds of
            the size such as `>100MiB`, `<=1 GiB` or `=512`.
    """
    least: list[int] = []
    most: list[int] = []
    for sign, written in _SIZE_BOUND.findall(text):
        size = parse_bytes(written)
        if "<" not in sign:
            least.append(size + (sign == ">"))
        if ">" not in sign:
            most.append(size - (sign == "<"))
    rest = " ".join(_SIZE_BOUND.sub(" ", text).split())
    return Filter(rest, max(least, default=None), min(most, default=None))


_searches: Final[WeakKeyDictionary[Labels, LabelSearch]] = WeakKeyDictionary()
"""The last search in these labels: several views make the same one."""


def found_by(labels: Labels, text: str) -> Callable[[NDArray[np.void]], NDArray[np.bool_]]:
    """A filter function that says which records a `search_filter` finds, by address, size and label."""
    wanted = search_filter(text)
    search = _searches.get(labels)
    if search is None or search.text != wanted.text:
        search = _searches[labels] = LabelSearch(labels, wanted.text)
    return lambda records: wanted.matches(records, records["size"], search)


@dataclass(frozen=True)
class EventFilter(Filter):
    """Conditions on events. The size of an OOM is its requested size; marks have neither size nor address.

    Attributes:
        kinds: kinds of events; empty: all.
    """

    kinds: frozenset[Kind] = frozenset()

    def reasons(self) -> list[str]:
        """The conditions of a filter of events in words; empty where all match."""
        kinds = " or ".join(kind.name for kind in sorted(self.kinds))
        return [f"kind {kinds}" if kinds else "", *super().reasons()][not kinds :]

    def among(self, events: Events, pool: int, search: LabelSearch) -> NDArray[np.intp]:
        """Indices of the events of this pool that match a filter."""
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
        """The conditions of a filter of chunks in words; empty where all match."""
        return [self.state, *super().reasons()][self.state == "all" :]

    def among(self, chunks: NDArray[np.void], search: LabelSearch) -> NDArray[np.intp]:
        """Indices of the chunks that match a filter."""
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
) -> NDArray[np.unsignedinteger] | range:
    """The `seq` of each event of `pool` that matches a filter, ascending, as uint32 where that is enough.

    A range where no filter leaves any out: of an hour of training, an array would take 400 MB.

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
        return range(start, stop)
    search = LabelSearch(trace.labels, wanted.text)
    found: list[NDArray[np.unsignedinteger]] = [np.zeros(0, dtype)]
    for part in _parts_to_search(trace, wanted, search, start, stop):
        at = part.start
        for block in trace.blocks(part.start, part.stop):
            found.append((wanted.among(block, pool, search) + at).astype(dtype))
            at += len(block)
            if progress is not None and not progress(at):
                return np.concatenate(found)
    return np.concatenate(found)


def _parts_to_search(
    trace: Trace, wanted: EventFilter, search: LabelSearch, start: int, stop: int
) -> list[range]:
    """The parts of [start, stop) in which events can match a filter: labels are stored with blocks."""
    index = known_notable(trace) if wanted.text and wanted.address is None else None
    if index is None:
        return [range(start, stop)]
    return index.ranges_with(search.hits(), start, stop)


# ------------------------------------------------------------------------------
# Chunks in an order that the user chose; only what one page needs is sorted.

_LAST: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class ChunkOrder:
    """The chunks that match a filter, in order.

    Attributes:
        chunks: all chunks of the heap by address, of CHUNK.
        at: indices in `chunks` of those that match, ascending, shape (n,).
        keys: the sort key of each match, shape (n,); equal keys are ordered by address.
    """

    chunks: NDArray[np.void]
    at: NDArray[np.intp]
    keys: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.at)

    def page(self, start: int, stop: int) -> NDArray[np.void]:
        """Rows [start, stop) of the filtered chunks, of CHUNK; fewer where the order ends before `stop`."""
        stop = min(stop, len(self))
        if start >= stop:
            return self.chunks[:0]
        # To sort everything takes ten times as long as to find the keys at both ends of the page.
        ends = np.partition(self.keys, (start, stop - 1))[[start, stop - 1]]
        near = np.flatnonzero((self.keys >= ends[0]) & (self.keys <= ends[1]))
        before = int(np.count_nonzero(self.keys < ends[0]))
        near = near[np.argsort(self.keys[near], kind="stable")]
        return self.chunks[self.at[near[start - before : stop - before]]]

    def place_of(self, address: int) -> int | None:
        """The row of the filtered chunk that begins at `address`; None where no match begins there."""
        place = int(np.searchsorted(self.chunks["address"][self.at], np.uint64(address)))
        if place == len(self) or int(self.chunks["address"][self.at[place]]) != address:
            return None
        key = self.keys[place]
        return int(np.count_nonzero(self.keys < key) + np.count_nonzero(self.keys[:place] == key))


def order_chunks(  # noqa: PLR0913  the chunks, the filter and the order
    chunks: NDArray[np.void],
    labels: Labels,
    wanted: ChunkFilter,
    by: str = "address",
    *,
    descending: bool = False,
    search: LabelSearch | None = None,
) -> ChunkOrder:
    """Filter and order chunks.

    Args:
        chunks: all chunks of a heap at one step by address, of CHUNK.
        labels: the table of their `label` numbers.
        wanted: which chunks to keep.
        by: one of `SORTS`. Free chunks are last in both directions where they lack the value, such as a label.
        descending: the largest first.
        search: the search for `wanted.text` of the last call, so that labels are not searched again.
    """
    at = wanted.among(chunks, search or LabelSearch(labels, wanted.text))
    picked = chunks if len(at) == len(chunks) else chunks[at]
    keys = SORTS[by](picked, labels).astype(np.uint64, copy=False)
    if descending:
        keys = keys.max(initial=0) - keys
    if by in _IN_USE_ONLY:
        keys = np.where(picked["in_use"], keys, _LAST)
    return ChunkOrder(chunks, at, keys)


def chunk_waste_keys(chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    """The keys that order chunks by waste: bytes of each in use beyond its request; 0 for free chunks."""
    sizes, requested = chunks["size"], chunks["requested"]
    return np.where(chunks["in_use"] & (requested < sizes), sizes - requested, np.uint64(0))


def _chunk_order_by_label(chunks: NDArray[np.void], labels: Labels) -> NDArray[np.intp]:
    """The alphabetical rank of each chunk's label among the labels of these chunks."""
    numbers = chunks["label"].astype(np.intp)
    present = np.flatnonzero(np.bincount(numbers))  # np.unique takes ten times as long
    names = [labels.name(number).casefold() for number in present.tolist()]
    places = {name: place for place, name in enumerate(sorted(set(names)))}
    ranks = np.zeros(int(present.max(initial=0)) + 1, np.intp)
    ranks[present] = [places[name] for name in names]
    return ranks[numbers]


SORTS: Final[dict[str, Callable[[NDArray[np.void], Labels], NDArray[np.integer]]]] = {
    "address": lambda chunks, _: chunks["address"],
    "size": lambda chunks, _: chunks["size"],
    "requested": lambda chunks, _: chunks["requested"],
    "waste": lambda chunks, _: chunk_waste_keys(chunks),
    "state": lambda chunks, _: chunks["in_use"],
    "bin": lambda chunks, _: bin_numbers(chunks["size"]),
    "label": _chunk_order_by_label,
    "born": lambda chunks, _: chunks["born"],
    # Older chunks have a smaller `born`.
    "age": lambda chunks, _: chunks["born"].max(initial=0) - chunks["born"],
    "region": lambda chunks, _: chunks["region"],
    "thread": lambda chunks, _: chunks["thread"],
    "stream": lambda chunks, _: chunks["stream"],
}
"""The orders that exist, each with the function that computes its keys."""

_IN_USE_ONLY: Final = frozenset({"requested", "waste", "label", "born", "age", "thread", "stream"})
