"""The events of one heap as columns of small numbers, for a page that replays them: `page_heap.js` reads them.

::

    {"count": 3, "start": {...}, "columns": {"kind": "eJxj...", "time": "eJwz...", "SPLIT.kept": "eJw7...", ...}}

A column is a base64 text of a zlib stream of numbers: each number is zigzag encoded (0, -1, 1, -2 are 0, 1, 2, 3), then
written as a varint (seven bits a byte, low ones first, the eighth bit says that more follow). Each kind of event has
columns of its own. What the state of the heap implies is left out: an ALLOCATE takes the address and the size of its
free chunk, a FREE has the fields of its chunk, a MERGE those of the absorbed one, and a SPLIT says how many bytes its
chunk keeps. `PoolState` has checked that the events say the same.
"""

import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model

Numbers = NDArray[np.int64]

_EXACT: Final = 1 << 53
"""Whole numbers below are exact in a page, which computes in float64."""

_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.EXTEND: ("chunk", "address", "size", "region", "flags"),
    Kind.SPLIT: ("chunk", "other", "kept", "flags"),
    Kind.ALLOCATE: ("chunk", "waste", "label", "thread", "stream", "flags"),
    Kind.FREE: ("chunk", "flags"),
    Kind.MERGE: ("chunk", "other"),
    Kind.RELEASE: ("chunk",),
    Kind.OOM: ("address", "size", "requested", "label", "thread", "stream"),
    Kind.MARK: ("size", "label", "thread"),
}
"""The columns of each kind: fields of the event; `kept` and `waste` are differences of bytes."""

_BY_CHUNK_BEFORE: Final = {
    (kind, "chunk") for kind in (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE, Kind.MERGE, Kind.RELEASE)
} | {(Kind.MERGE, "other")}
"""Columns whose numbers are differences to `chunk` of the event before: one operation is about one chunk."""

_BY_LAST: Final = {(Kind.EXTEND, "address"), (Kind.SPLIT, "other")}
"""Columns whose numbers are differences to the number before in the same column."""


def packed(values: NDArray[Any]) -> str:
    """A column of whole numbers, of int64 or what fits into it, as text."""
    signed = values.astype(np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.ones(len(left), np.intp)
    rest = left >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest >>= np.uint64(7)
    ends = np.cumsum(lengths)
    found = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for nth in range(int(lengths.max(initial=0))):
        mine = lengths > nth
        more = np.where(lengths[mine] > nth + 1, 128, 0)
        bits = (left[mine] >> np.uint64(7 * nth)).astype(np.int64) & 127
        found[(ends - lengths)[mine] + nth] = bits | more
    return compressed(found.tobytes())


def compressed(content: bytes) -> str:
    """Bytes as base64 text of their zlib stream."""
    return b64encode(zlib.compress(content, 9)).decode()


def heap_events(trace: Trace, pool: int, first: int, last: int) -> Events:
    """The events of one heap in the steps [first, last]."""
    found = [block[block["pool"] == pool] for block in trace.blocks(first, last)]
    return np.concatenate(found) if found else trace.read(first, first)


def packed_heap(model: Model, events: Events, first: int) -> dict[str, Any]:
    """What a page replays: the state of the heap at the step `first`, and its `events` from there.

    Args:
        model: the heap; it stays at its step.
        events: as `heap_events` returns them.
        first: the step before them.

    Raises:
        BfcvizError: an address or a size is too large for a page.
    """
    with model.visiting(first):
        model.stats()  # finds the peaks, which a snapshot has
        snapshot, used = model.table.snapshot(), model.table.requested_bytes_in_use
    rows, regions = snapshot.chunk_rows, snapshot.region_rows
    _check_page_numbers_exact(events, [*regions["address"], *(regions["address"] + regions["size"])])
    handles = np.unique(
        np.concatenate([rows["handle"], events["chunk"], _chunks_created_by_events(events)[1]])
    )
    dense = {name: np.searchsorted(handles, events[name]).astype(np.int64) for name in ("chunk", "other")}
    columns = {
        "handles": packed(np.diff(handles.astype(np.int64), prepend=0)),
        "kind": packed(events["kind"]),
        "seq": packed(np.diff(events["seq"].astype(np.int64), prepend=first - 1) - 1),
        "time": packed(np.diff(events["time"], prepend=0)),
        **dict(_packed_event_columns(events, dense, rows)),
    }
    start = {
        "step": first,
        "chunks": {
            **{name: packed(rows[name]) for name in (*_ROW_FIELDS, "state")},
            "handle": packed(np.searchsorted(handles, rows["handle"])),
        },
        "regions": {
            "slot": packed(snapshot.slots),
            **{name: packed(regions[name]) for name in ("address", "size")},
        },
        "num_allocs": snapshot.num_allocs,
        "ooms": snapshot.ooms,
        "peak_bytes_in_use": snapshot.peak_bytes_in_use,
        "peak_pool_bytes": snapshot.peak_pool_bytes,
        "largest_alloc_size": snapshot.largest_alloc_size,
        "requested_bytes_in_use": used,
    }
    return {
        "count": len(events),
        "handles": len(handles),
        "rows": len(rows),
        "start": start,
        "columns": columns,
    }


_ROW_FIELDS: Final = ("address", "size", "requested", "born", "label", "thread", "stream", "region")


def _check_page_numbers_exact(events: Events, ends: list[Any]) -> None:
    sizes = events[(events["kind"] != Kind.OOM) & (events["kind"] != Kind.MARK)]
    highest = max(
        [int(each) for each in ends] + [int(sizes[name].max(initial=0)) for name in ("address", "size")]
    )
    if highest >= _EXACT:
        raise BfcvizError(
            f"a page without a kernel holds addresses below 2^53, and this file has {highest:#x}; "
            "`bfcviz view FILE` shows it"
        )


def _chunks_created_by_events(
    events: Events,
) -> tuple[NDArray[np.intp], NDArray[np.uint32], NDArray[np.uint64]]:
    """The events that create a chunk: their places, the handle of that chunk, and its address."""
    kinds = events["kind"]
    at = np.flatnonzero((kinds == Kind.EXTEND) | (kinds == Kind.SPLIT))
    made = events[at]
    return at, np.where(made["kind"] == Kind.SPLIT, made["other"], made["chunk"]), made["address"]


def _packed_event_columns(
    events: Events, dense: dict[str, Numbers], rows: NDArray[np.void]
) -> Iterator[tuple[str, str]]:
    """The columns of each kind that occurs."""
    before = np.concatenate([[0], dense["chunk"][:-1]])
    for kind, names in _FIELDS.items():
        at = np.flatnonzero(events["kind"] == kind)
        if not len(at):
            continue
        for name in names:
            if name == "kept":
                values = _bytes_kept_by_splits(events, at, rows)
            elif name == "waste":
                values = events["size"][at].astype(np.int64) - events["requested"][at].astype(np.int64)
            elif name in dense:
                values = dense[name][at]
            else:
                values = events[name][at].astype(np.int64)
            if (kind, name) in _BY_CHUNK_BEFORE:
                values = values - before[at]
            elif (kind, name) in _BY_LAST:
                values = np.diff(values, prepend=0)
            yield f"{kind.name}.{name}", packed(values)


def _bytes_kept_by_splits(events: Events, splits: NDArray[np.intp], rows: NDArray[np.void]) -> Numbers:
    """The bytes that the chunk of each SPLIT keeps: from its own address to that of the remainder."""
    at, handles, addresses = _chunks_created_by_events(events)
    at = np.concatenate([np.full(len(rows), -1), at])
    handles = np.concatenate([rows["handle"], handles]).astype(np.int64)
    addresses = np.concatenate([rows["address"], addresses])
    order = np.lexsort((at, handles))
    # One number for handle and place: the last one below that of a SPLIT created its chunk.
    keys = handles * (len(events) + 1) + at + 1
    asked = events["chunk"][splits].astype(np.int64) * (len(events) + 1) + splits
    found = order[np.searchsorted(keys[order], asked, side="right") - 1]
    kept: Numbers = (events["address"][splits] - addresses[found]).astype(np.int64)
    return kept
