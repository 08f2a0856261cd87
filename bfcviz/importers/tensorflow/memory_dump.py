"""Read TensorFlow's memory dump: the chunks of a BFC heap at the moment of a failed request.

With `TF_BFC_MEMORY_DUMP=<prefix>` TensorFlow writes a `MemoryDump` (tensorflow/core/protobuf/bfc_memory_map.proto) for
each failed request. The file holds all chunks, region by region, but neither the request nor the bounds of the regions:
a region ends at a gap, and between two free neighbours, which the heap would have merged.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, STATE_ONLY, Origin, Pool, Status, end_missing
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import (
    HEAP_CHUNK,
    HeapChunks,
    events_of_state,
    numbered_names,
    one_after_another,
    regions_of,
)
from bfcviz.importers.file_content import CHUNKS, LABELS, MAX_NAME_BYTES, PARTS, TEXT, Limits, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.protobuf_wire import LENGTH, VARINT, Field, Wire
from bfcviz.importers.row_blocks import RowBlocks
from bfcviz.importers.tensorflow.protobuf_messages import parse_protobuf_message, protobuf_message_text

_NAME, _BIN_SUMMARY, _CHUNK, _SNAPSHOT, _STATS = 1, 2, 3, 4, 5
_HALF_SPACE = 1 << 63  # processes use the lower half of all addresses
_TOTALS = {1: "num_allocs", 2: "bytes_in_use", 3: "peak_bytes_in_use", 4: "largest_alloc_size"}
_BIN_SUMS = (2, 3, 4, 5)
_SHOWN_SNAPSHOTS = 4096  # in `details`
_NO_REQUEST = (
    "a memory dump does not hold the failed request: the program's log says what was asked for (a line with "
    "`ran out of memory trying to allocate`)"
)

_ROW = np.dtype([*((name, HEAP_CHUNK[name]) for name in HEAP_CHUNK.names or ()), ("waits", "?")])
"""A chunk; `waits`: it is free, but not merged before its timestamp is safe."""


@dataclass
class _Dump:
    """One message of a memory dump: a heap at one moment.

    `bins`: the file's own sums of bytes in use, bytes, chunks in use and chunks; empty if it has none.
    """

    allocator: str
    rows: RowBlocks = field(default_factory=partial(RowBlocks, _ROW))
    totals: dict[str, int] = field(default_factory=dict)
    bins: list[int] = field(default_factory=list)
    snapshots: list[list[int]] = field(default_factory=list)
    num_snapshots: int = 0

    def chunks(self) -> NDArray[np.void]:
        """All chunks of a memory dump by address, of dtype `_ROW`."""
        rows = self.rows.table()
        return rows[np.argsort(rows["address"], kind="stable")]

    @property
    def is_empty(self) -> bool:
        """Whether it has no more than a name: TensorFlow also writes the bins of an empty heap."""
        return not (len(self.rows) or self.bins or self.totals or self.num_snapshots)


def read_memory_dump(path: Path) -> Trace:
    """The heap in a memory dump; several dumps one after another in a file become one heap each.

    Raises:
        FileError: it cannot be read, or is corrupt: a number is impossible, or chunks overlap.
    """
    content = read_content(path)
    wire = Wire(path, content.data, Limits.of(path), "memory dump")
    labels = Labels()
    dumps, cut = _DumpReader(wire, labels).read()
    missing = tuple(why for why in (content.cut, cut) if why is not None)
    if all(dump.is_empty for dump in dumps):
        raise FileError(path, "", ": ".join(["a memory dump without anything in it", *missing]))
    problems = []
    if len(dumps) > MAX_POOLS:
        problems.append(
            f"{len(dumps) - MAX_POOLS} of {len(dumps)} dumps were left out; a trace holds {MAX_POOLS}"
        )
    shown = dumps[:MAX_POOLS]
    logs: list[Events] = []
    for dump in shown:
        events, reasons = _memory_dump_events(dump, path, is_cut=bool(missing) and dump is dumps[-1])
        logs.append(events)
        problems += reasons
    names = numbered_names((dump.allocator for dump in shown), "dump ")
    origin = Origin(
        format=Format.MEMORY_DUMP.value,
        source=path.name,
        status=Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE,
        reasons=missing + tuple(problems),
        pools=tuple(
            Pool(name, options={"allocator_name": dump.allocator, "dump": number})
            for dump, (name, number) in zip(shown, names, strict=True)
        ),
        details={
            "history": STATE_ONLY,
            "framework": "tensorflow",
            "failed_request": _NO_REQUEST,
            "facts": [{"peak_bytes_in_use": dump.totals.get("peak_bytes_in_use")} for dump in shown],
            **end_missing(missing),
            "totals": [dump.totals for dump in shown],
            "snapshots": [dump.snapshots for dump in shown],
        },
    )
    return Trace.from_events(one_after_another(logs), labels, origin)


class _DumpReader:
    """Reads the messages of a file of memory dumps."""

    def __init__(self, wire: Wire, labels: Labels) -> None:
        self._wire = wire
        self._labels = labels

    def read(self) -> tuple[list[_Dump], str | None]:
        """The memory dumps, and what is missing at the end of the file, None if nothing is.

        A dump begins with the name of its allocator. A field that is cut off is left out.
        """
        wire = self._wire
        dumps: list[_Dump] = []
        for found in wire.fields(0, len(wire.data)):
            if found.missing:
                return dumps or [_Dump("")], (
                    f"the memory dump is cut off at byte {len(wire.data)}: {found.missing} or more bytes are missing"
                )
            if found.number == _NAME or not dumps:
                dumps.append(_Dump(""))
                if len(dumps) > MAX_POOLS:
                    wire.limits.count(PARTS, 1)
                    dumps[-2] = _Dump("")  # it is not shown
            if found.wire == LENGTH:
                self._take(dumps[-1], found)
        return dumps, None

    def _take(self, dump: _Dump, found: Field) -> None:
        if found.number == _NAME:
            dump.allocator = self._text(self._wire.data[found.start : found.stop])
        elif found.number == _CHUNK:
            self._wire.limits.count(CHUNKS, 1)
            dump.rows.add(*self._chunk(found))
        elif found.number == _BIN_SUMMARY:
            values = self._numbers(found)
            before = dump.bins or [0] * len(_BIN_SUMS)
            dump.bins = [sum_ + values.get(key, 0) for sum_, key in zip(before, _BIN_SUMS, strict=True)]
        elif found.number == _SNAPSHOT:
            self._wire.limits.count(PARTS, 1)
            dump.num_snapshots += 1
            values = self._numbers(found)
            if len(dump.snapshots) < _SHOWN_SNAPSHOTS:
                dump.snapshots.append([values.get(1, 0), values.get(2, 0)])
        elif found.number == _STATS:
            values = self._numbers(found)
            dump.totals = {name: values.get(key, 0) for key, name in _TOTALS.items()}

    def _numbers(self, message: Field) -> dict[int, int]:
        """The numbers of a message of a memory dump, by field; text and fractions are ignored."""
        wire = self._wire
        fields = wire.fields(message.start, message.stop)
        values = {each.number: wire.number(each) for each in fields if each.wire == VARINT}
        for number, value in values.items():
            if value >= _HALF_SPACE:
                raise wire.corrupt(message.start, f"field {number} is {value - (1 << 64)}, a negative number")
        return values

    def _chunk(self, message: Field) -> tuple[Any, ...]:
        raw = self._wire.data[message.start : message.stop]
        found = parse_protobuf_message(self._wire, "MemChunk", raw, message.start, "a chunk")
        address, size, requested, in_use = found.address, found.size, found.requested_size, found.in_use != 0
        if not 0 < size <= _HALF_SPACE - address or (in_use and not 0 <= requested <= size):
            what = f"a chunk of {size} bytes at {address:#x}, of which {requested} were requested"
            raise self._wire.corrupt(message.start, what)
        if not in_use:
            return address, size, 0, 0, 0, False, found.freed_at_count > 0
        label = self._label(found.op_name, found.step_id, found.action_count)
        return address, size, requested, label, 0, True, False

    def _label(self, op_name: bytes, step: int, action: int) -> int:
        """The label of a chunk of a memory dump; 0 if the build of TensorFlow records none of this."""
        details = {"step": step, "action_count": action}
        known = {key: str(value) for key, value in details.items() if value}
        if not op_name and not known:
            return 0
        self._wire.limits.count(LABELS, 1)
        return self._labels.intern(self._text(op_name), **known)

    def _text(self, raw: bytes) -> str:
        if len(raw) > MAX_NAME_BYTES:
            cause = f"corrupt memory dump: a name of {len(raw):,} bytes, the limit is {MAX_NAME_BYTES:,}"
            raise FileError(self._wire.path, "", cause)
        self._wire.limits.count(TEXT, len(raw))
        return protobuf_message_text(raw)


def _memory_dump_events(dump: _Dump, path: Path, *, is_cut: bool) -> tuple[Events, list[str]]:
    """The events that build the heap of a dump, and what the file does not say or contradicts."""
    rows = dump.chunks()
    starts: NDArray[np.uint64] = rows["address"]
    ends: NDArray[np.uint64] = starts + rows["size"]
    overlaps = starts[1:] < ends[:-1]
    if overlaps.any():
        address = int(starts[1:][overlaps][0])
        where = f"allocator {dump.allocator!r}, chunk {address:#x}"
        raise FileError(path, where, "corrupt memory dump: the chunk begins inside another one")
    chunks: HeapChunks = np.zeros(len(rows), HEAP_CHUNK)
    for name in HEAP_CHUNK.names or ():
        chunks[name] = rows[name]
    # Two free neighbours end a region, unless one of them waits to be merged.
    merges: NDArray[np.bool_] = ~rows["in_use"] & ~rows["waits"]
    regions = regions_of(chunks, merges[1:] & merges[:-1])
    try:
        events = events_of_state(chunks, regions)
    except TraceError as error:  # too many regions
        raise FileError(path, f"allocator {dump.allocator!r}", f"corrupt memory dump: {error}") from None
    return events, _memory_dump_reasons(dump, rows, len(regions), is_cut=is_cut)


def _memory_dump_reasons(dump: _Dump, rows: NDArray[np.void], regions: int, *, is_cut: bool) -> list[str]:
    heap = f"heap {dump.allocator!r}"
    reasons = []
    if regions:
        reasons.append(
            f"{heap}: a memory dump does not say where regions begin; {regions} were concluded from gaps between "
            "chunks. Adjacent regions look like one"
        )
    if dump.num_snapshots > len(dump.snapshots):
        reasons.append(
            f"{heap}: {dump.num_snapshots - len(dump.snapshots)} snapshots of its size were left out"
        )
    if is_cut:
        return reasons  # the sums come before the chunks or after them
    in_use = rows["in_use"]
    bytes_in_use = int(rows["size"][in_use].sum())
    counted = [
        ("bytes in use", bytes_in_use, dump.totals.get("bytes_in_use", bytes_in_use)),
        *zip(
            ("bytes in use in bins", "bytes in bins", "chunks in use", "chunks"),
            (bytes_in_use, int(rows["size"].sum()), int(in_use.sum()), len(rows)),
            dump.bins,
            strict=False,  # a file without bins
        ),
    ]
    for what, number, stated in counted:
        if stated != number:
            reasons.append(f"{heap}: its chunks make {number:,} {what}, but the file states {stated:,}")
    return reasons
