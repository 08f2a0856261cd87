"""`convert`: write a trace, or a range of its steps as a trace of its own, in the format of a file's suffix."""

import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Origin, Status
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.storage.blocks import write_blocks
from bfcviz.events.storage.files import replacing
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace
from bfcviz.exporters.chrome_counters import write_chrome_trace
from bfcviz.exporters.torch_snapshot import write_snapshot
from bfcviz.extras import needed
from bfcviz.importers.event_makers import HEAP_CHUNK, HeapRegion, events_of_state
from bfcviz.model.keyframe_bytes import keyframes
from bfcviz.model.model import Model
from bfcviz.model.trace_index import IndexBuilder


def write_csv(trace: Trace, start: int, stop: int, path: Path) -> list[str]:
    """Write the events [start, stop), a row each, with names of kinds and labels; returns what the file leaves out."""
    with needed("a CSV file", "pyarrow", "tables"):
        from pyarrow import csv  # noqa: PLC0415  an extra
    from bfcviz.events.storage.parquet import SCHEMA, ParquetLabelNames, parquet_table, without_formulas  # noqa: PLC0415

    names = ParquetLabelNames(trace.labels)
    with csv.CSVWriter(path, without_formulas(SCHEMA.empty_table()).schema) as writer:
        for events in trace.blocks(start, stop):
            writer.write_table(without_formulas(parquet_table(events, names)))
    left_out = ["the names, limits and options of the heaps are left out"]
    if any(trace.labels[number].details for number in range(1, len(trace.labels))):
        left_out.append("details of labels, such as shapes and stacks, are left out")
    if start:
        left_out.append(f"the heap at step {start:,}, where the rows begin, is left out")
    return left_out


def convert(  # noqa: PLR0913  what, where to, and how
    trace: Trace,
    path: str | os.PathLike[str],
    start: int | None = None,
    stop: int | None = None,
    *,
    overwrite: bool = False,
    mode: int | None = None,
) -> list[str]:
    """Write the steps [start, stop] of a trace to `path`, in the format of its suffix, one of `SUFFIXES`.

    Args:
        trace: the events.
        path: the file; if anything fails, an existing file is not changed.
        start: the first step; None: the first of the trace.
        stop: the last step; None: the last of the trace.
        overwrite: replace an existing file.
        mode: the permissions of the file; None: those of any new file.

    Returns:
        What the file does not say, as sentences.

    Raises:
        FileError: the suffix is unknown, the file exists, or it cannot be written.
        TraceError: the trace has no such steps, or events contradict each other.
    """
    path = Path(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise FileError(path, "", f"names no format of a trace: its name must end in {', '.join(SUFFIXES)}")
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not trace.first <= start <= stop <= len(trace):
        raise TraceError(
            f"steps {start} to {stop} were asked for; the trace has steps {trace.first} to {len(trace)}"
        )
    with replacing(path, overwrite=overwrite, mode=mode) as made:
        return list(write(trace, start, stop, made))


def _convert_to_parquet(trace: Trace, start: int, stop: int, path: Path) -> Sequence[str]:
    from bfcviz.events.storage.parquet import write_parquet  # noqa: PLC0415  pyarrow, an extra

    part = part_of(trace, start, stop)
    write_parquet(part.source, path, partial(keyframes, part))
    return part.origin.reasons[len(trace.origin.reasons) :]


def _convert_to_blocks(trace: Trace, start: int, stop: int, path: Path) -> Sequence[str]:
    part = part_of(trace, start, stop)
    write_blocks(part.source, path, IndexBuilder(len(part.origin.pools)))
    return part.origin.reasons[len(trace.origin.reasons) :]


_WRITERS: Final[dict[str, Callable[[Trace, int, int, Path], Sequence[str]]]] = {
    ".parquet": _convert_to_parquet,
    ".bfc": _convert_to_blocks,
    ".csv": write_csv,
    ".json": write_chrome_trace,
    ".pickle": write_snapshot,
}

SUFFIXES: Final = tuple(_WRITERS)
"""The endings of file names that `convert` knows."""


# ------------------------------------------------------------------------------
# A range of steps as a trace of its own: events that build the heaps at its first step, then its events.
#
# ::
#
#     whole   | ............ | a b c d e f | ....... |
#                          start          stop
#     part    | build heaps  | a b c d e f |                handles of chunks are numbered anew

_LOW = 0xFFFFFFFF


def part_of(trace: Trace, start: int, stop: int) -> Trace:
    """The steps [start, stop] as a trace of their own; the whole trace if these are all.

    Raises:
        TraceError: the events before `start` contradict each other.
    """
    if (start, stop) == (0, len(trace)):
        return trace
    time = int(trace.read(start, start + 1)["time"][0]) if start < len(trace) else 0
    blocks = [np.array(block) for block in trace.blocks(start, stop)]
    after = joined(blocks) if blocks else np.zeros(0, EVENT)
    states, born = [], []
    for pool in range(len(trace.origin.pools)):
        model = Model(trace, pool)
        model.seek(start)
        renumber_part_handles(after, pool, model.chunks()["handle"])
        events, ids = _state_of(model, time)
        states.append(events)
        born.append(ids)
    events = joined([*states, after])
    built = len(events) - len(after)
    events["seq"] = np.arange(len(events), dtype=np.uint64)
    _renumber_frees(events, np.concatenate([*born, np.zeros(0, np.uint64)]), start, built)
    return Trace.from_events(events, trace.labels, _origin_of_part(trace, (start, stop), built))


def _state_of(model: Model, time: int) -> tuple[Events, NDArray[np.uint64]]:
    """The events that build a heap of the part, and for each chunk in use the `seq` of its ALLOCATE in the whole."""
    chunks, regions = model.chunks(), model.regions()
    if not len(chunks):
        return np.zeros(0, EVENT), np.zeros(0, np.uint64)
    rows = np.zeros(len(chunks), HEAP_CHUNK)
    for name in HEAP_CHUNK.names or ():
        rows[name] = chunks[name]
    places = [HeapRegion(*each) for each in regions[["address", "size"]].tolist()]
    events = events_of_state(rows, places)
    taken = events["kind"] == Kind.ALLOCATE
    in_use = chunks[chunks["in_use"]]
    region: NDArray[np.uint16] = events["region"]
    events["region"] = regions["slot"][region]
    events["thread"][taken] = events["by"][taken] = in_use["thread"]
    events["pool"], events["time"] = model.pool, time
    return events, in_use["born"]


def _renumber_frees(events: Events, before: NDArray[np.uint64], start: int, built: int) -> None:
    """Set `other` of each FREE of the part to the new `seq` of its ALLOCATE.

    Args:
        events: those that build the heaps, then the others.
        before: of each ALLOCATE that builds a heap, its `seq` in the whole trace.
        start: `seq` in the whole trace of the first event after those.
        built: how many events build the heaps.
    """
    allocates = np.flatnonzero(events["kind"][:built] == Kind.ALLOCATE)
    order = np.argsort(before)
    at = built + np.flatnonzero(events["kind"][built:] == Kind.FREE)
    # `other` holds the low 32 bits; an allocation is at most 2^32 events older than its FREE.
    seq = at.astype(np.uint64) + np.uint64(start) - np.uint64(built)
    age = (seq - events["other"][at]) & np.uint64(_LOW)
    old = seq - age
    is_older = old < np.uint64(start)
    new = old - np.uint64(start) + np.uint64(built)
    if len(before):
        new[is_older] = allocates[order[np.searchsorted(before[order], old[is_older])]]
    events["other"][at] = (new & np.uint64(_LOW)).astype(np.uint32)


def _origin_of_part(trace: Trace, steps: tuple[int, int], built: int) -> Origin:
    origin = trace.origin
    start, stop = steps
    reasons = [*origin.reasons]
    status = origin.status
    if start:
        reasons.append(
            f"this is the part from step {start:,} to {stop:,} of {len(trace):,}: its first {built:,} events build the "
            "heaps at its first step, and peaks before that are not known"
        )
        status = Status.DEGRADED
    elif status != Status.DEGRADED:
        reasons.append(f"this is the part up to step {stop:,} of {len(trace):,}")
        status = Status.TRUNCATED
    return replace(
        origin, status=status, reasons=tuple(reasons), details=_details_of_part(origin.details, steps, built)
    )


def _details_of_part(details: Mapping[str, object], steps: tuple[int, int], built: int) -> dict[str, Any]:
    """The details of the origin that are true of the part: not the facts and totals of the last step of the whole."""
    start, stop = steps
    found = {name: details[name] for name in ("framework", "threads", "way", "history") if name in details}
    failures = details.get("failures")
    kept = [
        {**each, "event": each["event"] - start + built}
        for each in (failures if isinstance(failures, list) else [])
        if start <= each["event"] < stop
    ]
    return found | ({"failures": kept} if kept else {})


# ------------------------------------------------------------------------------
# Number the handles of chunks anew: a model takes no handle higher than the number of chunks that there can be.

_SHIFT = np.uint64(32)


def renumber_part_handles(events: Events, pool: int, present: NDArray[np.uint32]) -> None:
    """Number the handles of a part anew: change `chunk` and `other` of the events of one heap in place.

    Args:
        events: in order; those of other heaps stay as they are.
        pool: index of the heap.
        present: the handles of its chunks before the first event; they become 0, 1, 2, ... in this order.
    """
    mine = np.flatnonzero(
        (events["pool"] == pool) & (events["kind"] != Kind.OOM) & (events["kind"] != Kind.MARK)
    )
    rows = events[mine]
    births, numbers = _renumbered_births(rows, present)
    order = np.argsort(births)
    births, numbers = births[order], numbers[order]
    fields = {"chunk": np.ones(len(rows), bool), "other": np.isin(rows["kind"], [Kind.SPLIT, Kind.MERGE])}
    for field, there in fields.items():
        at = np.flatnonzero(there)
        keys = (rows[field][at].astype(np.uint64) << _SHIFT) | (at.astype(np.uint64) + np.uint64(1))
        events[field][mine[at]] = numbers[np.searchsorted(births, keys, "right") - 1]


def _renumbered_births(
    rows: Events, present: NDArray[np.uint32]
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """For each beginning of a chunk its old handle and place as one key, and its new handle, the lowest unused one."""
    keys = [(int(handle) << 32) for handle in present]
    numbers = list(range(len(present)))
    now = dict(zip(present.tolist(), numbers, strict=True))
    unused: list[int] = []
    highest = len(numbers)
    for place, (kind, chunk, other) in enumerate(rows[["kind", "chunk", "other"]].tolist(), 1):
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
