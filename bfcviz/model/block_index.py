"""What the model stores with each block of a trace, and the index of a trace made of it, without its events.

::

    block     |  262,144 events  |  262,144 events  |  ...
    entry     rows of the timelines; OOMs and marks; bytes times steps of the largest labels; threads and streams
    keyframe  the state before the block, where the heap is small against the events since the last one

An entry is a header and columns packed by zlib. It comes from a file, so it is checked before it is used; where an
entry is missing or damaged, the index is made of the events. The entry of a block needs the events before it, so a
`BlockDescriber` sees all blocks of a trace in order.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.row_copy import joined, taken
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.model import array_access
from bfcviz.model.keyframe_bytes import encode
from bfcviz.model.pool_state import PoolState
from bfcviz.model.snapshots import EMPTY
from bfcviz.model.timelines import TIMELINE, put_row

ROWS: Final = 32
"""Rows of the timelines in a block, of all heaps together; each heap has at least `_LEAST_ROWS`."""

_LEAST_ROWS: Final = 2
_MOST_LABELS: Final = 128
_MOST_NOTABLE: Final = 4096
_MOST_BYTES: Final = 1 << 24
_EVENTS_A_CHUNK: Final = 10
"""A keyframe is stored when there were this many events for each of its chunks since the last one."""

_MAGIC: Final = b"BFCI"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHHIIII")
"""Magic, version, pools, rows of each, notable events, labels of all pools, bytes of the columns."""

_POOL: Final = np.dtype(
    [("labels", "<u4"), ("threads", "<u2", 2), ("streams", "<u2", 2), ("allocations", "<u4")], align=True
)
_LABEL: Final = np.dtype([("label", "<u4"), ("part", "<u4"), ("byte_steps", "<f4")])

PARTS: Final = 4
"""Equal parts of a block of which the bytes of the largest labels are known."""

REST: Final = 0xFFFFFFFF
"""In place of a label: all others."""


class PoolEntry(NamedTuple):
    """What the entry of a block says of one heap.

    Attributes:
        rows: of TIMELINE.
        labels: of each of `PARTS`, the labels with the most bytes times steps in use, and the `REST`.
        ranges: the lowest and highest thread and stream of its allocations; empty where there is none.
    """

    rows: NDArray[np.void]
    labels: NDArray[np.void]
    ranges: dict[str, tuple[int, int]]


class BlockEntry(NamedTuple):
    """The entry of one block: of each heap, and the OOMs and marks of all (None: they are too many)."""

    pools: list[PoolEntry]
    notable: Events | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        of_pools = sum(pool.rows.nbytes + pool.labels.nbytes for pool in self.pools)
        return of_pools + (0 if self.notable is None else self.notable.nbytes)


class BlockDescriber:
    """Describes the blocks of a trace; called with the events of each, in order. For `Trace.save(describe=...)`.

    Where events contradict each other it gives up, and describes no later block.

    Args:
        pools: of the trace; a recording may get more.
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
        """Describe so many heaps from here on: those that are new have no event yet."""
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
        each = max(ROWS // len(self._tables), _LEAST_ROWS)
        ends = [len(events) * (i + 1) // each for i in range(each)]
        found = taken(events, events["kind"] >= Kind.OOM)
        heads = np.zeros(len(self._tables), _POOL)
        rows, labels = [], []
        for table, head in zip(self._tables, heads, strict=True):
            largest = joined(_largest_labels(table, events))
            _note_block_numbers(head, events, table.pool)
            head["labels"] = len(largest)
            labels.append(largest)
            rows.append(_measured_block_rows(table, events, ends))
        notable = found if len(found) <= _MOST_NOTABLE else found[:0]
        columns = b"".join(
            [heads.tobytes(), _by_byte(joined(rows)), _by_byte(joined(labels)), _by_byte(notable)]
        )
        count = len(found) if len(found) <= _MOST_NOTABLE else _MOST_NOTABLE + 1
        named = sum(map(len, labels))
        head_bytes = _HEADER.pack(_MAGIC, _VERSION, len(heads), each, count, named, len(columns))
        return head_bytes + zlib.compress(columns, 1)


def parts_of(count: int) -> list[int]:
    """Where the parts of a block of `count` events begin and end, as events of it: shape (PARTS + 1,)."""
    return [count * part // PARTS for part in range(PARTS + 1)]


def _largest_labels(table: PoolState, events: Events) -> list[NDArray[np.void]]:
    """Bytes times steps in use within each part of these events; `table` is before them."""
    rows = table.chunk_rows()
    used = rows["state"] == array_access.CHUNK_IN_USE
    held = with_sums(np.zeros(0), rows["label"][used], rows["size"][used].astype(np.float64))
    found = []
    for part, (start, stop) in enumerate(pairwise(parts_of(len(events)))):
        labels, signed, seq = _block_byte_changes(events[start:stop], table.pool, "label")
        sums = with_sums(held * (stop - start), labels, signed * (table.step + stop - seq))
        held = with_sums(held, labels, signed)
        numbers = np.flatnonzero(sums > 0)
        largest = np.sort(numbers[np.argsort(-sums[numbers], kind="stable")[:_MOST_LABELS]])
        kept = np.zeros(len(largest) + 1, _LABEL)
        kept["part"], kept["label"], kept["byte_steps"] = (
            part,
            np.append(largest, REST),
            np.append(sums[largest], 0),
        )
        kept["byte_steps"][-1] = max(sums.sum() - sums[largest].sum(), 0.0)
        found.append(kept)
    return found


def with_byte_steps(
    totals: NDArray[np.float64], block: Events, pool: int, name: str, length: int
) -> NDArray[np.float64]:
    """`totals` and bytes times steps up to step `length` of a block's events, by the value of field `name`."""
    numbers, signed, seq = _block_byte_changes(block, pool, name)
    # An ALLOCATE counts up to the end of the trace; its FREE subtracts the rest.
    return with_sums(totals, numbers, signed * (length - seq))


def _block_byte_changes(
    block: Events, pool: int, name: str
) -> tuple[NDArray[np.integer], NDArray[np.float64], NDArray[np.float64]]:
    """Of each ALLOCATE and FREE of a heap the value of field `name`, the bytes that it adds, and its `seq`."""
    kinds = np.where(block["pool"] == pool, block["kind"], 0)
    at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
    sizes = block["size"][at].astype(np.float64)
    signed = np.where(kinds[at] == Kind.FREE, -sizes, sizes)
    return block[name][at], signed, block["seq"][at].astype(np.float64)


def with_sums(
    totals: NDArray[np.float64], numbers: NDArray[np.integer], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`totals` and the sums of the weights by number."""
    sums = np.bincount(numbers, weights=weights, minlength=len(totals))
    found: NDArray[np.float64] = sums.astype(np.float64)  # integers where there are none
    found[: len(totals)] += totals
    return found


def _measured_block_rows(table: PoolState, events: Events, ends: Sequence[int]) -> NDArray[np.void]:
    rows = np.zeros(len(ends), TIMELINE)
    table.extremes()
    begin, start = table.step, 0
    for at, end in enumerate(ends):
        if end > start:
            table.measure(events[start:end])
            put_row(rows, at, table, begin, int(events["time"][end - 1]))
            begin, start = table.step, end
    return rows


def _note_block_numbers(head: np.void, events: Events, pool: int) -> None:
    made = (events["kind"] == Kind.ALLOCATE) & (events["pool"] == pool)
    head["allocations"] = np.count_nonzero(made)
    if head["allocations"]:
        for name in ("thread", "stream"):
            values = events[name][made]
            head[f"{name}s"] = values.min(), values.max()


def _by_byte(rows: NDArray[np.void]) -> bytes:
    """The bytes of equal fields beside each other."""
    return rows.view(np.uint8).reshape(len(rows), rows.itemsize).T.tobytes() if len(rows) else b""


def entry_of(data: bytes, pools: int) -> BlockEntry:
    """Decode the entry of a block of a trace with so many heaps.

    Raises:
        TraceError: it is damaged, or was written by another version.
    """
    try:
        return _decoded_block_entry(data, pools)
    except (ValueError, struct.error, zlib.error) as error:
        raise TraceError(f"the index of a block is damaged: {error}") from error


def _decoded_block_entry(data: bytes, pools: int) -> BlockEntry:
    magic, version, of, each, count, named, length = _HEADER.unpack_from(data)
    if (magic, version, of) != (_MAGIC, _VERSION, pools) or length > _MOST_BYTES:
        raise ValueError(f"it begins with {data[:8].hex()}")
    if each > ROWS or named > pools * PARTS * (_MOST_LABELS + 1):
        raise ValueError(f"{each} rows and {named} labels are impossible")
    inflate = zlib.decompressobj()
    columns = inflate.decompress(data[_HEADER.size :], length + 1)
    kept = count if count <= _MOST_NOTABLE else 0
    sizes = [
        pools * _POOL.itemsize,
        pools * each * TIMELINE.itemsize,
        named * _LABEL.itemsize,
        kept * EVENT.itemsize,
    ]
    if len(columns) != length or not inflate.eof or sum(sizes) != length:
        raise ValueError(f"its columns do not have the {sum(sizes)} bytes that its header gives")
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [columns[start:end] for start, end in pairwise(ends)]
    heads = np.frombuffer(parts[0], _POOL)
    rows = _unshuffled_entry_rows(parts[1], TIMELINE, pools * each).reshape(pools, each)
    labels = np.split(_unshuffled_entry_rows(parts[2], _LABEL, named), np.cumsum(heads["labels"])[:-1])
    entries = [
        PoolEntry(row[row["events"] > 0], label, _block_number_ranges(head))
        for row, label, head in zip(rows, labels, heads, strict=True)
    ]
    notable = None if count > _MOST_NOTABLE else _unshuffled_entry_rows(parts[3], EVENT, count)
    return BlockEntry(entries, notable)


def _unshuffled_entry_rows(data: bytes, dtype: np.dtype[np.void], count: int) -> NDArray[np.void]:
    if not count:
        return np.zeros(0, dtype)
    table = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, count)
    return np.ascontiguousarray(table.T).view(dtype).reshape(count)


def _block_number_ranges(head: np.void) -> dict[str, tuple[int, int]]:
    if not head["allocations"]:
        return {}
    return {name: (int(head[f"{name}s"][0]), int(head[f"{name}s"][1])) for name in ("thread", "stream")}
