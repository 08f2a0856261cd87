"""TraceIndex: what searches, timelines and colours need of all events of one heap, found in one pass, or stored.

::

    block     |  262,144 events  |  262,144 events  |  ...
    entry     rows of the timelines; OOMs and marks; bytes times steps of the largest labels; threads and streams;
              which labels its events have
    keyframe  the state before the block, where the heap is small against the events since the last one
    index     rows of every total; every OOM and MARK; bytes times steps of each label; states to seek from

The peak, the worst fragmentation, marks, failures and the set-up of a program then cost no second pass. The index is
of a trace that no longer grows; a live trace is followed by `RollingTimeline`.

An entry is stored with each block of a trace: a header and columns packed by zlib. It comes from a file, so it is
checked before it is used; where an entry is missing or damaged, the index is made of the events. The entry of a block
needs the events before it, so an `IndexBuilder` sees all blocks of a trace in order.
"""

import struct
import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, TraceError
from bfcviz.events.schema import EVENT, Events, Kind, wrong_fields
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.events.trace import Trace
from bfcviz.model import array_access
from bfcviz.model.extremes import add_byte_steps, nothing_seen
from bfcviz.model.keyframe_bytes import encode, shuffled, unshuffled
from bfcviz.model.pool_state import PoolState
from bfcviz.model.state_snapshots import EMPTY
from bfcviz.model.timelines import TIMELINE, RollingTimeline, put_row

ROWS: Final = 32
"""Rows of the timelines in a block, of all heaps together; each heap has at least `_LEAST_ROWS`."""

FINE_ROWS: Final = 128
_FINE_EVENTS: Final = 1 << 22
"""Instead of `ROWS`, in the blocks of the first events: a trace that has no others needs them for its pictures."""

_LEAST_ROWS: Final = 2
_MOST_LABELS: Final = 128
_MOST_NOTABLE_OF_BLOCK: Final = 4096
_MOST_BYTES: Final = 1 << 24
_EVENTS_A_CHUNK: Final = 10
"""A keyframe is stored when there were this many events for each of its chunks since the last one."""

_MAGIC: Final = b"BFCI"
_VERSION: Final = 2

_HEADER: Final = struct.Struct("<4sHHIIII")
"""Magic, version, pools, rows of each, notable events, labels of all pools, bytes of the columns."""

_POOL: Final = np.dtype(
    [("labels", "<u4"), ("threads", "<u2", 2), ("streams", "<u2", 2), ("allocations", "<u4")], align=True
)
_LABEL: Final = np.dtype([("label", "<u4"), ("part", "<u4"), ("byte_steps", "<f4")])

_NAMED: Final = np.dtype("<u4")
"""A label that events have: how much its number is above the one before."""

PARTS: Final = 4
"""Equal parts of a block of which the bytes of the largest labels are known."""

REST: Final = 0xFFFFFFFF
"""In place of a label: all others."""


class PoolIndexEntry(NamedTuple):
    """What an index entry says of one heap.

    Attributes:
        rows: of TIMELINE.
        labels: of each of `PARTS`, the labels with the most bytes times steps in use, and the `REST`.
        ranges: the lowest and highest thread and stream of its allocations; empty where there is none.
    """

    rows: NDArray[np.void]
    labels: NDArray[np.void]
    ranges: dict[str, tuple[int, int]]


class IndexEntry(NamedTuple):
    """The entry of a block in the index: of each heap, and of all together.

    Attributes:
        notable: the OOMs and marks; None: they are too many.
        named: numbers of the labels that events have, ascending, without 0; None: not kept.
    """

    pools: list[PoolIndexEntry]
    notable: Events | None
    named: NDArray[np.uint32] | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory of an index entry, without `named`."""
        of_pools = sum(pool.rows.nbytes + pool.labels.nbytes for pool in self.pools)
        return of_pools + (0 if self.notable is None else self.notable.nbytes)


class IndexBuilder:
    """Builds the index entry of each block of a trace, in order. For `Trace.save(describe=...)`.

    Where events contradict each other it gives up, and describes no later block. A recording may get more pools.
    """

    def __init__(self, pools: int) -> None:
        self._tables = [PoolState(pool, pools) for pool in range(pools)]
        self._since = 0  # events after the last keyframe
        self._failed = False

    def __call__(self, events: Events) -> tuple[bytes, bytes]:
        """The entry and the keyframe of the next block."""
        if self._failed:
            return b"", b""
        try:
            self._follow(int(events["pool"].max(initial=0)) + 1)
            keyframe = self._keyframe(len(events))
            return self._entry(events), keyframe
        except TraceError:
            self._failed = True
            return b"", b""

    def _follow(self, pools: int) -> None:
        """Describe so many heaps in the index from here on: those that are new have no event yet."""
        for pool in range(len(self._tables), pools):
            made = PoolState(pool, pools)
            made.restore(replace(EMPTY, step=self._tables[0].step))
            self._tables.append(made)
        for table in self._tables:
            table.pools = len(self._tables)

    def _keyframe(self, count: int) -> bytes:
        chunks = sum(table.chunks_in_use + table.chunks_free for table in self._tables)
        is_due = self._tables[0].step > 0 and self._since >= _EVENTS_A_CHUNK * chunks
        self._since = count if is_due else self._since + count
        return encode([table.snapshot() for table in self._tables]) if is_due else b""

    def _entry(self, events: Events) -> bytes:
        rows = FINE_ROWS if self._tables[0].step < _FINE_EVENTS else ROWS
        each = max(rows // len(self._tables), _LEAST_ROWS)
        ends = [len(events) * (i + 1) // each for i in range(each)]
        found = taken(events, events["kind"] >= Kind.OOM)
        heads = np.zeros(len(self._tables), _POOL)
        measured, labels = [], []
        for table, head in zip(self._tables, heads, strict=True):
            largest = joined(_largest_index_labels(table, events, head))
            head["labels"] = len(largest)
            labels.append(largest)
            measured.append(_measured_index_rows(table, events, ends))
        notable = found if len(found) <= _MOST_NOTABLE_OF_BLOCK else found[:0]
        named = np.diff(_named_labels(events), prepend=np.uint32(0))
        columns = heads.tobytes() + b"".join(
            map(shuffled, (joined(measured), joined(labels), notable, named))
        )
        count = min(len(found), _MOST_NOTABLE_OF_BLOCK + 1)
        held = sum(map(len, labels))
        head_bytes = _HEADER.pack(_MAGIC, _VERSION, len(heads), each, count, held, len(columns))
        return head_bytes + zlib.compress(columns, 1)


def _named_labels(events: Events) -> NDArray[np.uint32]:
    """The numbers of the labels of these events for the index, ascending, without 0."""
    numbers = events["label"]
    if (most := int(numbers.max(initial=0))) > _MOST_FLAGS:
        return np.setdiff1d(numbers, np.zeros(1, np.uint32))
    flags = np.zeros(most + 1, np.bool_)
    flags[numbers] = True
    flags[0] = False
    return np.flatnonzero(flags).astype(np.uint32)


_MOST_FLAGS: Final = 1 << 22


def index_parts(count: int) -> list[int]:
    """For the index, where the parts of a block of `count` events begin and end: shape (PARTS + 1,)."""
    return [count * part // PARTS for part in range(PARTS + 1)]


def _largest_index_labels(table: PoolState, events: Events, head: np.void) -> list[NDArray[np.void]]:
    """Bytes times steps in use within each part of these events; `table` is before them.

    Notes in `head` how many allocations there are, and their threads and streams.
    """
    rows = table.chunk_rows()
    used = rows["state"] == array_access.CHUNK_IN_USE
    held = with_index_sums(np.zeros(1), rows["label"][used], rows["size"][used].astype(np.float64))
    totals, found, seen = np.array([held, held]), [], nothing_seen()
    for part, (start, stop) in enumerate(pairwise(index_parts(len(events)))):
        totals[1], at = totals[0] * (stop - start), start
        while (
            at := at + add_byte_steps(events[at:stop], table.pool, table.step + stop, totals, seen)
        ) < stop:
            width = totals.shape[1]  # of a label seen first
            more = np.zeros((2, max(int(events["label"][at]) + 1 - width, width)))
            totals = np.concatenate([totals, more], axis=1)
        sums = totals[1]
        numbers = np.flatnonzero(sums > 0)
        largest = np.sort(numbers[np.argsort(-sums[numbers], kind="stable")[:_MOST_LABELS]])
        kept = np.zeros(len(largest) + 1, _LABEL)
        kept["part"], kept["label"] = part, np.append(largest, REST)
        kept["byte_steps"] = np.append(sums[largest], max(sums.sum() - sums[largest].sum(), 0.0))
        found.append(kept)
    head["allocations"] = seen[0]
    if seen[0]:
        head["threads"], head["streams"] = seen[1:3], seen[3:]
    return found


def with_index_byte_steps(
    totals: NDArray[np.float64], block: Events, pool: int, name: str, length: int
) -> NDArray[np.float64]:
    """`totals` and bytes times steps up to step `length` of a block's events, by the value of field `name`."""
    kinds = np.where(block["pool"] == pool, block["kind"], 0)
    at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
    sizes = block["size"][at].astype(np.float64)
    signed = np.where(kinds[at] == Kind.FREE, -sizes, sizes)
    # An ALLOCATE counts up to the end of the trace; its FREE subtracts the rest.
    return with_index_sums(totals, block[name][at], signed * (length - block["seq"][at].astype(np.float64)))


def with_index_sums(
    totals: NDArray[np.float64], numbers: NDArray[np.integer], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`totals` and the sums of the weights by number."""
    sums = np.bincount(numbers, weights=weights, minlength=len(totals))
    found: NDArray[np.float64] = sums.astype(np.float64)  # integers where there are none
    found[: len(totals)] += totals
    return found


def _measured_index_rows(table: PoolState, events: Events, ends: Sequence[int]) -> NDArray[np.void]:
    rows = np.zeros(len(ends), TIMELINE)
    table.extremes()
    begin, start = table.step, 0
    for at, end in enumerate(ends):
        if end > start:
            table.measure(events[start:end])
            put_row(rows, at, table, begin, int(events["time"][end - 1]))
            begin, start = table.step, end
    return rows


def decoded_index_entry(data: bytes, pools: int) -> IndexEntry:
    """Decode the index entry of a block of a trace with so many heaps.

    Raises:
        TraceError: it is damaged, or was written by another version.
    """
    try:
        return _checked_trace_index_entry(data, pools)
    except (ValueError, struct.error, zlib.error) as error:
        raise TraceError(f"the index of a block is damaged: {error}") from error


def _checked_trace_index_entry(data: bytes, pools: int) -> IndexEntry:
    magic, version, of, each, count, held, length = _HEADER.unpack_from(data)
    if (magic, version, of) != (_MAGIC, _VERSION, pools) or length > _MOST_BYTES:
        raise ValueError(f"it begins with {data[:8].hex()}")
    if each > FINE_ROWS or held > pools * PARTS * (_MOST_LABELS + 1):
        raise ValueError(f"{each} rows and {held} labels are impossible")
    inflate = zlib.decompressobj()
    columns = inflate.decompress(data[_HEADER.size :], length + 1)
    kept = count if count <= _MOST_NOTABLE_OF_BLOCK else 0
    sizes = [
        pools * _POOL.itemsize,
        pools * each * TIMELINE.itemsize,
        held * _LABEL.itemsize,
        kept * EVENT.itemsize,
    ]
    rest = length - sum(sizes)
    if len(columns) != length or not inflate.eof or rest < 0 or rest % _NAMED.itemsize:
        raise ValueError(f"its columns do not have the {sum(sizes)} bytes that its header gives")
    ends = np.cumsum([0, *sizes, rest]).tolist()
    parts = [columns[start:end] for start, end in pairwise(ends)]
    heads = np.frombuffer(parts[0], _POOL)
    rows = unshuffled(parts[1], TIMELINE).reshape(pools, each)
    labels = np.split(unshuffled(parts[2], _LABEL), np.cumsum(heads["labels"])[:-1])
    entries = [
        PoolIndexEntry(row[row["events"] > 0], label, _index_number_ranges(head))
        for row, label, head in zip(rows, labels, heads, strict=True)
    ]
    notable = None if count > _MOST_NOTABLE_OF_BLOCK else unshuffled(parts[3], EVENT)
    named = np.cumsum(unshuffled(parts[4], _NAMED), dtype=np.uint64).astype(np.uint32)
    return IndexEntry(entries, notable, named)


def _index_number_ranges(head: np.void) -> dict[str, tuple[int, int]]:
    if not head["allocations"]:
        return {}
    return {name: (int(head[f"{name}s"][0]), int(head[f"{name}s"][1])) for name in ("thread", "stream")}


MOST_NOTABLE: Final = 1 << 18
"""OOMs and marks of all heaps that an index keeps (16 MiB); with more, they are searched in the events."""

HELD: Final = np.dtype([("start", "<u8"), ("stop", "<u8"), ("label", "<u4"), ("byte_steps", "<f8")])
"""Bytes times steps in use of one label (or `REST`) within the events [start, stop)."""

LEAST_EVENTS: Final = 1 << 20
"""A shorter trace is read, for finer timelines than those that are stored: it takes less than a second."""

_ALWAYS_STORED: Final = 1 << 22
_PICTURE_INTERVALS: Final = 500
"""Of a trace below `_ALWAYS_STORED`, what is stored is used if a picture of so many intervals can be drawn from it."""

_NUMBERS: Final = ("thread", "stream")


class TraceIndex:
    """The index of one heap of a trace that does not grow; made by `index_of`.

    Attributes:
        length: events of the trace.
        rolling: the series of the heap.
        byte_steps: bytes in use times steps in use, summed over the trace, by label number.
    """

    def __init__(
        self, trace: Trace, pool: int, least: int = LEAST_EVENTS, stored: list[bytes] | None = None
    ) -> None:
        """Read what is stored with the blocks of a trace of at least so many events, or else all events.

        `stored`: the entries, where the caller has read them already.

        Raises:
            TraceError: events contradict each other.
        """
        self.length = len(trace)
        self.pool = pool
        self.byte_steps: NDArray[np.float64] = np.zeros(0)
        self._ranges: dict[str, tuple[int, int]] = {}
        self._found: list[Events] = []
        self._count = 0
        self._held = np.zeros(0, HELD)
        self._named: list[tuple[range, NDArray[np.uint32]]] = []
        entries = _decoded_index_entries(trace, stored) if self.length >= least else None
        rolling = RollingTimeline(pool)
        if entries is not None:
            rolling.adopt(joined([entry.pools[pool].rows for entry in entries]), self.length)
            has_picture = self.length >= _ALWAYS_STORED or rolling.holds(0, self.length, _PICTURE_INTERVALS)
            if least and not trace.first and not has_picture:
                entries, rolling = None, RollingTimeline(pool)
        if entries is None and trace.first:
            raise TraceError("the first events were dropped, and nothing is stored with the others")
        if entries is None:
            rolling.extend(trace, self._look_at)
        else:
            self._held = joined([_indexed_held_labels(entry, pool) for entry in entries])
            for entry in entries:
                self._take(entry)
                if entry.named is not None:
                    self._named.append((_index_entry_steps(entry), entry.named))
            for events in self._found:
                rolling.take(events, trace.labels)
        self.rolling = rolling.copy()  # a reference to the trace would keep both alive
        self._notable = joined(self._found) if self._found else np.zeros(0, EVENT)
        del self._found

    @property
    def varied(self) -> frozenset[str]:
        """By the index, which of `thread` and `stream` differ between allocations of the heap."""
        return frozenset(name for name, (low, high) in self._ranges.items() if low != high)

    def notable(self, kinds: Collection[Kind], pool: int | None, start: int, stop: int) -> Events | None:
        """By the index, all events of `kinds` in [start, stop) of a pool (None: of any); None: not kept."""
        if self._count > MOST_NOTABLE or not {Kind.OOM, Kind.MARK}.issuperset(kinds):
            return None
        first, end = np.searchsorted(self._notable["seq"], np.array([start, stop], np.uint64))
        events = self._notable[first:end]
        wanted = np.isin(events["kind"], [int(kind) for kind in kinds])
        return taken(events, wanted if pool is None else wanted & (events["pool"] == pool))

    @property
    def knows_holders(self) -> bool:
        """Whether the index has something for `held_within`: it is only stored with blocks."""
        return len(self._held) > 0

    def ranges_with(self, wanted: NDArray[np.bool_], start: int, stop: int) -> list[range]:
        """By the index, the parts of [start, stop) whose events can have a wanted label; ascending."""
        found, at = [], start
        for steps, named in self._named:
            low, high = max(at, steps.start), min(stop, steps.stop)
            if low >= high:
                continue
            if at < low:  # not known
                found.append(range(at, low))
            if wanted[named[named < len(wanted)]].any():
                found.append(range(low, high))
            at = high
        return [*found, range(at, stop)] if at < stop else found

    def held_within(self, start: int, stop: int) -> NDArray[np.void]:
        """By the index, bytes times steps in use by label, of HELD, of the parts that overlap [start, stop)."""
        found: NDArray[np.void] = self._held[(self._held["stop"] > start) & (self._held["start"] < stop)]
        return found

    def _look_at(self, block: Events) -> None:
        self._keep_notable(taken(block, block["kind"] >= Kind.OOM))
        self.byte_steps = with_index_byte_steps(self.byte_steps, block, self.pool, "label", self.length)
        if len(self.varied) < len(_NUMBERS):
            allocations = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self.pool)
            for name in _NUMBERS:
                values = block[name][allocations]
                if len(values):
                    self._widen(name, int(values.min()), int(values.max()))

    def _take(self, entry: IndexEntry) -> None:
        """As `_look_at`, from what is stored with a block."""
        found = entry.pools[self.pool]
        if entry.notable is not None:
            self._keep_notable(entry.notable)
        labels = found.labels[found.labels["label"] != REST]
        numbers, totals = labels["label"], labels["byte_steps"].astype(np.float64)
        self.byte_steps = with_index_sums(self.byte_steps, numbers, totals)
        for name, (low, high) in found.ranges.items():
            self._widen(name, low, high)

    def _keep_notable(self, found: Events) -> None:
        self._count += len(found)
        if len(found) and self._count <= MOST_NOTABLE:
            self._found.append(found)

    def _widen(self, name: str, low: int, high: int) -> None:
        least, most = self._ranges.get(name, (low, high))
        self._ranges[name] = min(low, least), max(high, most)


def _indexed_held_labels(entry: IndexEntry, pool: int) -> NDArray[np.void]:
    labels, steps = entry.pools[pool].labels, _index_entry_steps(entry)
    edges = np.array(index_parts(len(steps)), np.uint64) + np.uint64(steps.start)
    found = np.zeros(len(labels), HELD)
    found["start"], found["stop"] = edges[labels["part"]], edges[labels["part"] + 1]
    found["label"], found["byte_steps"] = labels["label"], labels["byte_steps"]
    return found


def _index_entry_steps(entry: IndexEntry) -> range:
    """The events of a block; each heap has rows for all of them."""
    rows = entry.pools[0].rows
    stop = int(rows["step"][-1])
    return range(stop - int(rows["events"].sum()), stop)


_MOST_ENTRIES: Final = 1 << 29
"""Bytes of all entries in memory: 25 kB for 262,144 events of one heap, where few are notable; without `named`."""

_MOST_NAMED: Final = 1 << 28
"""Bytes of `named` of all entries: up to 1 MiB in each where labels never repeat. Later ones are not kept."""


def _decoded_index_entries(trace: Trace, stored: list[bytes] | None) -> list[IndexEntry] | None:
    """What is stored with each block of a trace; None where something is missing, damaged or incomplete."""
    stored = trace.index_entries() if stored is None else stored
    if not stored:
        return None
    entries, stop, nbytes, of_named = [], trace.first, 0, 0
    for each in stored:
        try:
            entry = decoded_index_entry(each, len(trace.origin.pools))
        except TraceError:
            return None
        start, stop = stop, int(entry.pools[0].rows["step"].max(initial=0))
        if entry.named is not None:
            of_named += entry.named.nbytes
            entry = entry if of_named <= _MOST_NAMED else entry._replace(named=None)
        nbytes += entry.nbytes
        is_next = start < stop <= len(trace)
        if nbytes > _MOST_ENTRIES or not is_next or not _is_whole(entry, start, stop, trace):
            return None
        entries.append(entry)
    return entries if stop == len(trace) else None


def _is_whole(entry: IndexEntry, start: int, stop: int, trace: Trace) -> bool:
    """Whether all that an index entry says is possible for the events [start, stop): a file can say anything."""
    labels = len(trace.labels)
    return (
        all(
            _has_rows(pool.rows, start, stop) and _has_index_labels(pool.labels, labels)
            for pool in entry.pools
        )
        and entry.notable is not None
        and _are_notable(entry.notable, start, stop, trace)
    )


def _has_rows(rows: NDArray[np.void], start: int, stop: int) -> bool:
    """Whether the rows of an index entry follow each other from `start` to `stop`, and their extremes lie there."""
    ends = np.append(np.uint64(start), rows["step"])
    if int(ends[-1]) != stop or not (ends[1:] > ends[:-1]).all() or (np.diff(ends) != rows["events"]).any():
        return False
    return bool(all((rows[name] <= stop).all() for name in TIMELINE.names or () if name.endswith("_step")))


def _has_index_labels(found: NDArray[np.void], labels: int) -> bool:
    """Whether parts and labels of an index entry exist, and the sums are numbers."""
    known = (found["label"] == REST) | (found["label"] < labels)
    return bool((known & (found["part"] < PARTS) & np.isfinite(found["byte_steps"])).all())


def _are_notable(events: Events, start: int, stop: int, trace: Trace) -> bool:
    """Whether the notable events of an index entry are valid OOMs and marks of [start, stop), in order."""
    seq = events["seq"]
    wrong = wrong_fields(events, len(trace.origin.pools)) | (events["kind"] < Kind.OOM)
    wrong |= (seq < start) | (seq >= stop) | (events["label"] >= len(trace.labels))
    return not wrong.any() and bool((seq[1:] > seq[:-1]).all())


_Indexes = WeakKeyDictionary[Trace, dict[tuple[int, int], TraceIndex | None]]

_made: _Indexes = WeakKeyDictionary()
"""By pool and length; None: it cannot be made."""

_summaries: _Indexes = WeakKeyDictionary()
"""As `_made`, those of `summary_index_of`."""

_making: Final = Lock()


def index_of(trace: Trace, pool: int = 0) -> TraceIndex | None:
    """The index of a heap; the first call for it reads all events of a trace that is not long.

    None for a trace that grows, whose events are wrong or cannot be read, or that dropped its first events and has
    nothing stored with the others.
    """
    return _kept_trace_index(_made, trace, pool, LEAST_EVENTS)


def summary_index_of(trace: Trace, pool: int = 0) -> TraceIndex | None:
    """The index of a heap for its extremes and notable events, not for pictures: also a short trace is not read.

    Its timelines have as few rows as are stored with the trace. None as for `index_of`.
    """
    return _kept_trace_index(_summaries, trace, pool, 0)


def _kept_trace_index(
    known: _Indexes, trace: Trace, pool: int, least: int, stored: list[bytes] | None = None
) -> TraceIndex | None:
    if trace.following:
        return None
    with _making:
        made, key = known.setdefault(trace, {}), (pool, len(trace))
        if key not in made:
            try:
                made[key] = TraceIndex(trace, pool, least, stored)
            except BfcvizError:  # the caller reads the events it needs, and raises
                made[key] = None
        return made[key]


def known_index(trace: Trace, pool: int | None = None) -> TraceIndex | None:
    """The index of a heap (None: of any) where `index_of` made one of all events that the trace has now."""
    return _known_trace_index(_made, trace, pool)


def known_notable(trace: Trace) -> TraceIndex | None:
    """An index of any heap for its `notable` and `ranges_with`: whatever made it, or of what is stored with blocks."""
    found = _known_trace_index(_made, trace, None) or _known_trace_index(_summaries, trace, None)
    # What could not be made is in `_summaries`, too: it is not tried again.
    if found is None and not trace.following and (0, len(trace)) not in _summaries.get(trace, {}):
        stored = trace.index_entries()
        return None if stored is None else _kept_trace_index(_summaries, trace, 0, 0, stored)
    return found


def _known_trace_index(indexes: _Indexes, trace: Trace, pool: int | None) -> TraceIndex | None:
    made, length = indexes.get(trace, {}), len(trace)
    found = (index for (of, at), index in list(made.items()) if at == length and pool in (None, of))
    return next((index for index in found if index is not None), None)
