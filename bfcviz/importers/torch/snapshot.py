"""`read_snapshot`: a PyTorch memory snapshot as a trace, one heap a device.

Its parts are checked first (`SnapshotContent`); versions of PyTorch differ in keys, and no version number is read. The
trace of a device is replayed from the state before it (`SnapshotDeviceReplay`) to the state that the file holds.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import MAX_LABEL_BYTES, Labels
from bfcviz.events.ledger import SortedAddresses
from bfcviz.events.origin import (
    HISTORY_BEGINS,
    MAX_POOLS,
    STATE_ONLY,
    Origin,
    Pool,
    RecordedFailure,
    Status,
    end_missing,
)
from bfcviz.events.schema import Events, Kind
from bfcviz.events.storage.files import parse_file_json
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import Rules, TorchStreamNumbers, metadata_text
from bfcviz.formats.torch_segments import (
    BLOCK_CHANGE,
    MAX_ADDRESS,
    STATES,
    OldSegmentBlock,
    SegmentChange,
    SegmentPiece,
    SegmentRewind,
    Segments,
    block_sizes,
    with_frames,
)
from bfcviz.importers.event_makers import (
    HEAP_CHUNK,
    HeapRegion,
    RecordedHistory,
    by_time,
    events_of_state,
    one_after_another,
)
from bfcviz.importers.file_content import TEXT, Content, read_content
from bfcviz.importers.file_format import Format, json_encoding
from bfcviz.importers.torch import allocation_history as rows_of
from bfcviz.importers.torch.allocation_history import (
    ACTIONS,
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_MAP,
    CodeFrame,
    HistoryEntrySource,
    HistoryRows,
    TraceRange,
    forward_in,
    is_entry,
    number_in,
    number_of,
    pool_words,
    words_in,
)
from bfcviz.importers.torch.pickle_reader import PickleReader
from bfcviz.stack_frames import (
    CodePlace,
    name_beside_frames,
    stack_of_traceback,
    stack_words,
)

# ------------------------------------------------------------------------------
# SnapshotContent: the parts of a snapshot, checked. Versions of PyTorch differ in keys; no version number is read.

# ruff: noqa: TRY004  all damage in a file is one error, a ValueError


_NEEDED = ("device", "address", "total_size", "blocks")


class Annotation(NamedTuple):
    """The begin or end of a named range of the program in a PyTorch snapshot.

    `time`: microseconds; `number`: both ends of a range have the same, and no other range has it.
    """

    name: str
    begins: bool
    device: int
    time: int
    number: int


@dataclass
class SnapshotContent:
    """What a PyTorch snapshot holds."""

    # Of each device, by ascending address; with the keys of the file.
    segments: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    traces: dict[int, TraceRange] = field(default_factory=dict)  # of each device that has entries
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the allocator
    annotations: list[Annotation] = field(default_factory=list)  # in the order of the file
    notes: list[str] = field(default_factory=list)  # what the snapshot holds that is left out

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that a PyTorch snapshot holds anything of, ascending."""
        return sorted({*self.segments, *self.traces})


def content_of(path: object, value: object, cut: str | None) -> SnapshotContent:
    """The parts of a PyTorch snapshot, from what its pickle holds: a dict, or before PyTorch 2.0 a list of segments.

    `cut`: why the end of the file is missing; `value` is then what is whole.

    Raises:
        FileError: it is no snapshot, its segments are missing, or a part of it is impossible.
    """
    whole = {"segments": value} if isinstance(value, list) else value
    if not isinstance(whole, dict) or not isinstance(whole.get("segments"), list):
        raise FileError(path, "", _why_no_snapshot(whole, cut))
    found = SnapshotContent()
    try:
        for number, segment in enumerate(whole["segments"]):
            device = _checked_segment(number, segment)
            found.segments.setdefault(device, []).append(segment)
        for segments in found.segments.values():
            segments.sort(key=lambda segment: int(segment["address"]))
            _check_segment_overlaps(segments)
        _add_device_traces(found, whole.get("device_traces", []))
        found.annotations += _snapshot_annotations(whole.get("external_annotations", []))
    except ValueError as error:
        raise FileError(path, "", str(error)) from None
    settings = whole.get("allocator_settings")
    found.settings = settings if isinstance(settings, dict) else {}
    if whole.get("host_segments") or any(_list_in_snapshot(whole.get("host_traces"))):
        found.notes.append(
            "memory of the host (host_segments, host_traces) is left out: only devices are shown"
        )
    return found


def _why_no_snapshot(whole: object, cut: str | None) -> str:
    if cut is not None:
        return (
            f"{cut}, before the end of its segments: without them the heap is not known. Copy the file again"
        )
    keys = ", ".join(map(str, whole)) if isinstance(whole, dict) else ""
    holds = f"a dict with the keys {keys[:200]}" if keys else f"a {type(whole).__name__}"
    return (
        f"this pickle holds {holds}, no PyTorch snapshot: that is a dict with segments and device_traces, "
        "which torch.cuda.memory._dump_snapshot writes"
    )


def _checked_segment(number: int, segment: object) -> int:
    """Check one segment of a snapshot and its blocks; returns its device."""
    if not isinstance(segment, dict) or not all(key in segment for key in _NEEDED):
        raise ValueError(f"segment {number} has not all of {', '.join(_NEEDED)}")
    address, size = number_in(segment["address"], "address"), number_in(segment["total_size"], "total_size")
    number_in(segment.get("stream", 0), "stream")
    if not size or address + size > MAX_ADDRESS:
        raise ValueError(f"segment {number} has {size} bytes at {address:#x}, which is no memory")
    at, blocks = address, segment["blocks"]
    if not isinstance(blocks, list):
        raise ValueError(f"segment {number} has blocks that are not a list")
    for place, block in enumerate(blocks):
        at = _checked_snapshot_block(f"block {place} of segment {number}", block, at)
    if at != address + size:
        raise ValueError(
            f"the blocks of segment {number}, at {address:#x}, have {at - address:,} bytes, the segment {size:,}"
        )
    return number_in(segment["device"], "device")


def _checked_snapshot_block(what: str, block: object, at: int) -> int:
    """Check a block of a snapshot that begins at `at`; returns where it ends."""
    if not isinstance(block, dict) or not number_in(block.get("size"), f"size of {what}"):
        raise ValueError(f"{what} has no size")
    if block.get("address", at) != at:
        raise ValueError(f"{what} does not begin where the block before it ends")
    state = block.get("state")
    if not isinstance(state, str) or state not in STATES:
        raise ValueError(f"{what} has the unknown state {str(state)[:40]!r}")
    number_in(block.get("requested_size", 0), f"requested_size of {what}")
    return at + int(block["size"])


def _check_segment_overlaps(segments: Sequence[Mapping[str, Any]]) -> None:
    stop = 0
    for segment in segments:
        if segment["address"] < stop:
            raise ValueError(f"the segment at {segment['address']:#x} overlaps the one before it")
        stop = segment["address"] + segment["total_size"]


def _add_device_traces(found: SnapshotContent, traces: object) -> None:
    if isinstance(traces, TraceRange):  # the entries of one device, without the list around them
        traces = [traces]
    for device, trace in enumerate(_list_in_snapshot(traces)):
        if isinstance(trace, TraceRange):
            found.traces[device] = trace
        elif trace:
            raise ValueError(f"the trace of device {device} is no list of entries")


def _snapshot_annotations(entries: object) -> list[Annotation]:
    """The annotations of a snapshot; an end belongs to the newest begin of that name and device."""
    found: list[Annotation] = []
    open_ranges: dict[tuple[str, int], list[int]] = {}
    for entry in _list_in_snapshot(entries):
        if not (isinstance(entry, dict) and "time_us" in entry and entry.get("stage") in ("START", "END")):
            continue
        device = number_in(entry.get("device", 0), "device of an annotation")
        time = number_in(entry["time_us"], "time_us of an annotation")
        name, begins = words_in(entry.get("name")), entry["stage"] == "START"
        begun = open_ranges.setdefault((name, device), [])
        number = len(found) + 1 if begins or not begun else begun.pop()
        if begins:
            begun.append(number)
        found.append(Annotation(name, begins, device, time, number))
    return found


def _list_in_snapshot(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# ------------------------------------------------------------------------------
# SnapshotLabels: the labels of a snapshot's allocations, each made once.

BEFORE: Final = "allocated before the recording began"
"""The name of memory without a stack that is older than the first entry."""

BEFORE_KEPT: Final = "allocated before the entries that were kept"
"""The same, where PyTorch overwrote entries."""

_LONGEST: Final = MAX_LABEL_BYTES // 8  # JSON escapes a character with up to 6 bytes


class SnapshotLabels:
    """Interns where entries and blocks of a snapshot come from: name, stack, compile context, private pool.

    Args:
        labels: the table.
        rows: has the stacks.
        file_size: bytes; the text of all stacks together has a limit in proportion.
        before: the name of memory without a stack that is older than the first entry.

    Attributes:
        without_stack: labels whose stack was left out, because of the limit.
    """

    def __init__(self, labels: Labels, rows: HistoryRows, file_size: int, before: str = BEFORE) -> None:
        self.without_stack = 0
        self._labels = labels
        self._before = before
        self._rows = rows
        self._most = TEXT.most(file_size)
        self._characters = 0
        self._numbers: dict[HistoryEntrySource, int] = {}
        self._of_sources: dict[int, int] = {}  # as `_numbers`, by `HistoryRows.source`

    def of_block(self, block: Mapping[str, Any], segment: Mapping[str, Any]) -> int:
        """The label of a block of a snapshot in use."""
        return self.of(self._source(block, segment))

    def of_old(self, block: Mapping[str, Any], segment: Mapping[str, Any], name: str = "") -> int:
        """The label of a block of a snapshot that is older than the first entry; `name`: of a later annotation."""
        source = self._source(block, segment)
        metadata = name or source.metadata or ("" if source.stack else self._before)
        return self.of(source._replace(metadata=metadata))

    def _source(self, block: Mapping[str, Any], segment: Mapping[str, Any]) -> HistoryEntrySource:
        stack = number_of(with_frames(block).get("frames"))
        metadata, context = metadata_text(block.get("user_metadata")), words_in(block.get("compile_context"))
        pool, forward = pool_words(segment.get("segment_pool_id")), forward_in(block.get("forward_frames"))
        return HistoryEntrySource(stack, metadata, context, pool, forward)

    def of_row(self, source: int, pool: str = "", name: str = "") -> int:
        """The label of an entry of a snapshot, by its `HistoryRows.source`.

        `pool`: of its segment, if the entry does not say it; `name`: of a later annotation.
        """
        found = self._rows.sources[source]
        if not (name or pool):
            known = self._of_sources.get(source)
            if known is None:
                known = self._of_sources[source] = self.of(found)
            return known
        found = found._replace(metadata=name) if name else found
        return self.of(found if found.pool or not pool else found._replace(pool=pool))

    def of(self, source: HistoryEntrySource) -> int:
        """The label of a source in a snapshot; 0 if nothing is known of it."""
        known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._intern(source)
        return known

    def _intern(self, source: HistoryEntrySource) -> int:
        metadata, context = source.metadata, source.context
        frames = self._rows.stacks[source.stack]
        lines = [CodePlace(frame.name, frame.filename, frame.line) for frame in frames]
        compiled = next((frame for frame in frames if frame.node or frame.origin), None)
        node, origin = ("", "") if compiled is None else (compiled.node, compiled.origin)
        forward = source.forward
        if not self._fits(lines, metadata, context, node, origin, forward):
            self.without_stack += 1
            lines, node, origin, forward = lines[:1], "", "", ""
            if not self._fits(lines, metadata, context):
                lines, metadata, context = [], "", ""
        name, stack = stack_words(metadata or name_beside_frames(lines, origin, forward), lines)
        details = {"stack": stack, "compile_context": context, "private_pool": source.pool, "fx_node": node}
        details |= {"fx_code": stack_of_traceback(origin), "forward_stack": stack_of_traceback(forward)}
        details["no_stack"] = name if name == self._before else ""
        details = {key: text for key, text in details.items() if text}
        return self._labels.intern(name, **details) if name or details else 0

    def _fits(self, lines: list[CodePlace], *texts: str) -> bool:
        """Count the characters of a label from a snapshot, if the limits allow them."""
        length = sum(len(line.file) + len(line.function) + 16 for line in lines) + sum(map(len, texts))
        if length > _LONGEST or self._characters + length > self._most:
            return False
        self._characters += length
        return True


# ------------------------------------------------------------------------------
# SnapshotDeviceReplay: the events of one device, from the state before its trace to the state at its end.

MOST_FAILURES: Final = 1000  # each looks at all free chunks
SNAPSHOT: Final = "snapshot"


class SnapshotBlockReports:
    """Passes the reports of a snapshot's `Segments` on to a history; without a time, at that of the last report."""

    def __init__(self, history: RecordedHistory) -> None:
        self._history = history
        self._ledger = history.ledger

    def allocate(  # noqa: PLR0913, PLR0917  as `SegmentReports`
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """Memory of a snapshot came into use."""
        self._history.at(time or 0)
        self._ledger.allocate(address, size, requested, label, stream)

    def free(self, address: int, time: int | None) -> None:
        """Memory of a snapshot was freed."""
        self._history.at(time or 0)
        self._ledger.free(address)

    def grant(self, address: int, size: int, *, join: bool, time: int | None) -> None:
        """The allocator of a snapshot got memory."""
        self._history.at(time or 0)
        self._ledger.grant(address, size, join=join)

    def release(self, address: int, time: int | None) -> None:
        """A grant of a snapshot was released."""
        self._history.at(time or 0)
        self._ledger.release(address)


@dataclass(frozen=True)
class SnapshotTables:
    """What the devices of a snapshot share."""

    rows: HistoryRows  # of all traces
    rules: Rules  # of the allocator
    labels: SnapshotLabels  # of allocations
    table: Labels  # of all labels, for marks
    start: int  # time of step 0, in microseconds

    def time(self, microseconds: int) -> int:
        """Nanoseconds from step 0 of a snapshot; 0 for an entry without a time."""
        return 0 if microseconds < 0 else (microseconds - self.start) * 1000


def changing_snapshot_rows(rows: HistoryRows, trace: TraceRange) -> NDArray[np.intp]:
    """The rows of a snapshot's trace that change the heap, ascending."""
    actions = np.frombuffer(rows.action, np.uint8)[trace.first : trace.stop]
    changes = (actions <= SEGMENT_MAP + 1) & (actions != FREE_REQUESTED)
    return np.flatnonzero(changes) + trace.first


def _rewound_snapshot_trace(
    tables: SnapshotTables, trace: TraceRange, segments: Sequence[Mapping[str, Any]]
) -> SegmentRewind:
    """The state before a trace in a snapshot; `segments`: of its device at the end, by ascending address."""
    rows = tables.rows
    changing = changing_snapshot_rows(rows, trace)
    actions = np.frombuffer(rows.action, np.uint8)[changing]
    is_block = actions < rows_of.SEGMENT_ALLOC
    blocks = np.zeros(np.count_nonzero(is_block), BLOCK_CHANGE)
    blocks["row"], blocks["allocates"] = changing[is_block], actions[is_block] == ALLOC
    blocks["address"] = np.frombuffer(rows.address, np.uint64)[blocks["row"]]
    blocks["size"] = np.frombuffer(rows.size, np.uint64)[blocks["row"]]
    blocks["block"] = np.frombuffer(rows.block, np.uint64)[blocks["row"]]
    changes = (
        SegmentChange(row, ACTIONS[rows.action[row]], rows.address[row], rows.size[row], rows.stream[row])
        for row in reversed(changing[~is_block].tolist())
    )
    return SegmentRewind(blocks, changes, segments, tables.rules, range(trace.first, trace.stop))


def _snapshot_block_names(
    rows: HistoryRows, trace: TraceRange, old: Mapping[int, OldSegmentBlock]
) -> dict[int, str]:
    """The names that `annotate` entries give to blocks: row of the allocation -> name; -1 - address: of an old block.

    An entry names the block in use that its address lies in; a later name follows the earlier ones.
    """
    actions = np.frombuffer(rows.action, np.uint8)[trace.first : trace.stop]
    if not (actions == rows_of.ANNOTATE).any():
        return {}
    starts = SortedAddresses()
    keys = {address: (-1 - address, max(block.size, block.requested, 1)) for address, block in old.items()}
    for address in keys:
        starts.add(address)
    found: dict[int, list[str]] = {}
    wanted = np.isin(actions, (ALLOC, FREE_COMPLETED, rows_of.ANNOTATE))
    for row in (np.flatnonzero(wanted) + trace.first).tolist():
        action, address = rows.action[row], rows.address[row]
        if action == rows_of.ANNOTATE:
            start = starts.at_or_before(address)
            key, size = keys.get(start, (0, 0))
            name = rows.sources[rows.source[row]].metadata
            if name and start >= 0 and address < start + size and name not in found.get(key, ()):
                found.setdefault(key, []).append(name)
        elif action == ALLOC:
            if address not in keys:
                starts.add(address)
            keys[address] = row, max(rows.size[row], 1)
        elif keys.pop(address, None):
            starts.remove(address)
    return {key: ", ".join(names[:_MOST_NAMES]) for key, names in found.items()}


_MOST_NAMES: Final = 8  # of one block
_ROWS_AT_ONCE: Final = 1 << 14


class SnapshotDeviceReplay:
    """Writes the events of one device of a snapshot, from its trace; `segments`: by ascending address.

    Attributes:
        history: has the events, and counts of inconsistencies.
        failures: rows of the failed requests, in order; the first MOST_FAILURES.
        failures_left_out: further ones.
        impossible: entries that do not fit the state after them.
        differing: blocks and segments that had to be corrected at the end.
        strange_regions: regions at the end that are not segments, after the correction.
    """

    def __init__(
        self, tables: SnapshotTables, trace: TraceRange, segments: Sequence[Mapping[str, Any]]
    ) -> None:
        self.failures: list[int] = []
        self.failures_left_out = 0
        self.differing = 0
        self.strange_regions = 0
        self.history = RecordedHistory()
        self._rows = tables.rows
        self._tables = tables
        self._trace = trace
        self._segments = segments
        self._rewind = _rewound_snapshot_trace(tables, trace, segments)
        self.impossible = self._rewind.impossible
        self._heap = Segments(SnapshotBlockReports(self.history))
        self._streams = TorchStreamNumbers()
        self._names = _snapshot_block_names(tables.rows, trace, self._rewind.blocks)
        self._ends: dict[int, int] = {}  # where a region stops -> the row of its release
        self._private = [
            (segment["address"], segment["address"] + segment["total_size"], pool)
            for segment in segments
            if (pool := pool_words(segment.get("segment_pool_id")))
        ]

    def run(self, annotations: Sequence[Annotation]) -> Events:
        """Write all events of a device of a snapshot; `annotations`: of this device, by time."""
        self._write_beginning()
        waiting = list(reversed(annotations))
        for row, action, address, microseconds in self._entries():
            while waiting and waiting[-1].time <= microseconds:
                self._annotate(waiting.pop())
            time = self._tables.time(microseconds)
            if action == ALLOC:
                self._allocate(row, address, time)
            elif action == FREE_COMPLETED:
                self._heap.free(address, time)
            else:
                self._carry_out(row, action, time)
        while waiting:
            self._annotate(waiting.pop())
        self._correct()
        return self.history.events()

    def _entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Number, action, address and time, in microseconds, of each entry of a snapshot but requests to free."""
        rows, first = self._rows, self._trace.first
        actions = np.frombuffer(rows.action, np.uint8)[first : self._trace.stop]
        wanted = np.flatnonzero(actions != rows_of.FREE_REQUESTED) + first
        columns = [np.frombuffer(each, each.typecode) for each in (rows.action, rows.address, rows.time)]
        for start in range(0, len(wanted), _ROWS_AT_ONCE):  # as Python's numbers all would need much memory
            some = wanted[start : start + _ROWS_AT_ONCE]
            yield from zip(some.tolist(), *(column[some].tolist() for column in columns), strict=True)

    def _write_beginning(self) -> None:
        for piece in self._rewind.pieces:
            self._grant(piece, 0)
        for address, block in sorted(self._rewind.blocks.items()):
            name = self._names.get(-1 - address, "")
            if block.block is not None and block.segment is not None:
                label = self._tables.labels.of_old(block.block, block.segment, name)
                stream = block.segment.get("stream", 0)
            else:  # its allocation is older than the trace, and its free tells another stack
                label = self._tables.labels.of_old({}, {}, name)
                stream = self._rows.stream[block.row]
            self._heap.allocate(address, block.size, block.requested, label, self._streams.of(stream), 0)
        self._mark(HISTORY_BEGINS, 0)

    def _carry_out(self, row: int, action: int, time: int) -> None:
        """Carry out an entry of a snapshot that is not about a block."""
        rows, rewind = self._rows, self._rewind
        if action in (rows_of.SEGMENT_ALLOC, rows_of.SEGMENT_MAP):
            for piece in rewind.granted.get(row, ()):
                self._grant(piece, time)
        elif action in (rows_of.SEGMENT_FREE, rows_of.SEGMENT_UNMAP):
            for piece in rewind.released.get(row, ()):
                self._heap.release(piece.start, piece.stop - piece.start, time)
                self._ends.pop(piece.stop, None)
        elif action == rows_of.OOM:
            self._fail(row, time)
        elif action == rows_of.SNAPSHOT:
            self._mark(SNAPSHOT, time, rows.size[row])
        elif action == rows_of.ANNOTATE:
            self._mark(rows.sources[rows.source[row]].metadata or "annotation", time, rows.size[row])

    def _fail(self, row: int, time: int) -> None:
        if len(self.failures) >= MOST_FAILURES:
            self.failures_left_out += 1
            return
        rows = self._rows
        label = self._tables.labels.of_row(rows.source[row])
        self.history.at(time)
        self.history.ledger.oom(max(1, rows.size[row]), label, self._streams.of(rows.stream[row]))
        self.failures.append(row)

    def _allocate(self, row: int, address: int, time: int) -> None:
        requested, size = self._rows.size[row] or 1, int(self._rewind.sizes[row - self._trace.first])
        if not size:
            size = self._tables.rules.block(requested, self.history.ledger.free_size(address))
        pool = self._pool_at(address) if self._private else ""
        name = self._names.get(row, "") if self._names else ""
        label = self._tables.labels.of_row(self._rows.source[row], pool, name)
        stream = self._streams.of(self._rows.stream[row])
        self._heap.allocate(address, size, requested, label, stream, time)

    def _grant(self, piece: SegmentPiece, time: int) -> None:
        """Grant memory of a snapshot: pieces of an expandable segment that are released together are one region."""
        joins = piece.grows and self._ends.pop(piece.start, None) == piece.ends
        if piece.grows:
            self._ends[piece.stop] = piece.ends
        self._heap.grant(piece.start, piece.stop - piece.start, grows=joins, time=time)

    def _pool_at(self, address: int) -> str:
        at = bisect_right(self._private, (address, MAX_ADDRESS, "")) - 1
        return self._private[at][2] if at >= 0 and address < self._private[at][1] else ""

    def _annotate(self, annotation: Annotation) -> None:
        name, side = annotation.name, "begins" if annotation.begins else "ends"
        time = self._tables.time(annotation.time)
        self._mark(f"{name} {side}", time, annotation.number, **{side: name})

    def _mark(self, name: str, time: int, value: int = 0, **details: str) -> None:
        self.history.at(time)
        self.history.mark(self._tables.table.intern(name, **details), value)

    def _correct(self) -> None:
        """Change what differs from the segments of the snapshot."""
        ledger = self.history.ledger
        self._heap.forget_refused(ledger.in_use)
        self.differing = self._heap.mend(
            self._segments,
            lambda block: self._tables.labels.of_block(block, {}),
            self._streams.of,
        )
        segments = {segment["address"]: segment["total_size"] for segment in self._segments}
        regions = {start: region.size for start, region in ledger.regions.items()}
        self.strange_regions = sum(segments.get(start) != size for start, size in regions.items())


# ------------------------------------------------------------------------------
# Reads a snapshot that was saved as JSON into the same rows and values as one that was pickled.


_MOST_VALUES: Final = 1 << 26
_DEEPEST: Final = 16  # lists and objects in each other; snapshots have 6


def read_json(path: Path, data: bytes, rows: HistoryRows) -> Any:
    """The value that a PyTorch snapshot in JSON holds; its entries become rows, its frames stacks.

    Raises:
        FileError: it is damaged, cut off, or too large.
    """
    try:
        value = parse_file_json(data.decode(json_encoding(data)), _MOST_VALUES)
        return _json_snapshot_value(value, rows, _DEEPEST)
    except UnicodeDecodeError as error:
        raise FileError(path, f"byte {error.start}", "corrupt snapshot: not text") from None
    except ValueError as error:
        raise FileError(path, "", f"corrupt snapshot: {error}") from None


def _json_snapshot_value(value: Any, rows: HistoryRows, depth: int) -> Any:
    """What a JSON value of a snapshot becomes: an entry is a row, a list of entries a range, of frames a stack."""
    if depth == 0:
        raise ValueError("is nested too deeply")
    if isinstance(value, dict):
        made = {key: _json_snapshot_value(each, rows, depth - 1) for key, each in value.items()}
        return rows.of_dict([part for item in made.items() for part in item])
    if not isinstance(value, list):
        return value
    first = rows.count
    made_list = [_json_snapshot_value(each, rows, depth - 1) for each in value]
    if not made_list or not is_entry(made_list[0]):
        return _plain_json_value(rows.of_list(made_list))
    if not all(map(is_entry, made_list)):
        raise ValueError("mixes trace entries with other values in one list")
    return TraceRange(first, rows.count)


def _plain_json_value(value: Any) -> Any:
    """A plain value of a snapshot in JSON: entries belong into traces, frames into stacks."""
    if isinstance(value, list) and any(is_entry(each) or isinstance(each, CodeFrame) for each in value):
        raise ValueError("mixes entries or frames with other values in one list")
    return value


# ------------------------------------------------------------------------------
# `read_snapshot`: a PyTorch memory snapshot as a trace, one heap a device.


_MOST_OPTIONS: Final = 64
_LONGEST_OPTION: Final = 1024
_LATEST: Final = 1 << 52  # microseconds


def read_snapshot(path: Path) -> Trace:
    """Read a PyTorch snapshot of any version, or what is whole of one that is cut off.

    Raises:
        FileError: it is no snapshot, or holds anything that can run code.
    """
    content = read_content(path)
    rows, size = HistoryRows(), len(content.data)
    value, cut = _read_snapshot_value(path, content, rows)
    del content  # the file's bytes are not needed any more
    found = content_of(path, value, cut)
    try:
        return _Importer(path, found, rows, size).trace(cut)
    except (TraceError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from None


def _read_snapshot_value(path: Path, content: Content, rows: HistoryRows) -> tuple[Any, str | None]:
    """The value of a snapshot's file, and why its end is missing."""
    if content.data.startswith((b"{", b"[", b"\xff\xfe", b"\xfe\xff", b"\xef")):
        return read_json(path, content.data, rows), None
    reader = PickleReader(path, content.data, rows)
    value = reader.read()
    return value, reader.cut and (content.cut or reader.cut)


class _Importer:
    """Makes the trace of a PyTorch snapshot."""

    def __init__(self, path: Path, found: SnapshotContent, rows: HistoryRows, file_size: int) -> None:
        self._path = path
        self._found = found
        self._rows = rows
        table = Labels()
        before = BEFORE_KEPT if found.settings.get(_OVERFLOWED) is True else BEFORE
        self._tables = SnapshotTables(
            rows,
            Rules.of(found.settings),
            SnapshotLabels(table, rows, file_size, before),
            table,
            self._first_time(),
        )
        self._devices = (found.devices or [0])[:MAX_POOLS]
        self._reasons = list(found.notes)
        self._failures: dict[int, list[int]] = {}

    def trace(self, cut: str | None) -> Trace:
        """The trace of a PyTorch snapshot; `cut`: why the end of the file is missing."""
        replayed = {device for device in self._devices if self._has_history(device)}
        logs = [self._events(device, replayed=device in replayed) for device in self._devices]
        timed = bool(replayed) and not any(self._is_without_times(device) for device in replayed)
        events = by_time(logs) if timed else one_after_another(logs)
        failures = self._recorded_failures(events)
        details: dict[str, Any] = {"framework": "torch", "totals": [self._totals(d) for d in self._devices]}
        if not replayed:
            details["history"] = STATE_ONLY
        if failures:
            details["failures"] = failures
        details |= end_missing(cut)
        self._add_reasons()
        status = Status.DEGRADED if self._reasons else Status.COMPLETE
        if self._found.settings.get(_OVERFLOWED) is True:
            status = Status.TRUNCATED if not self._reasons else status
            self._reasons.insert(0, _overwritten_history_text(self._found.settings))
        if cut is not None:
            status = Status.TRUNCATED if not self._reasons else status
            self._reasons.insert(
                0, f"{cut}: the heap at the end is shown, entries that are not whole are missing"
            )
        origin = Origin(
            format=Format.TORCH_SNAPSHOT.value,
            source=self._path.name,
            status=status,
            reasons=tuple(self._reasons),
            pools=tuple(
                Pool(f"cuda:{device}", None, _snapshot_pool_options(self._found.settings))
                for device in self._devices
            ),
            details=details,
        )
        return Trace.from_events(events, self._tables.table, origin)

    # -- one device -----------------------------------------------------------------------------------------------

    def _has_history(self, device: int) -> bool:
        trace = self._found.traces.get(device)
        if trace is None:
            return False
        actions = np.frombuffer(self._rows.action, np.uint8)[trace.first : trace.stop]
        return bool(len(changing_snapshot_rows(self._rows, trace)) or (actions == OOM).any())

    def _events(self, device: int, *, replayed: bool) -> Events:
        segments = self._found.segments.get(device, [])
        if not replayed:
            return self._state_events(segments)
        trace = self._found.traces[device]
        replay = SnapshotDeviceReplay(self._tables, trace, segments)
        annotations = sorted(
            (each for each in self._found.annotations if each.device == device), key=lambda each: each.time
        )
        events = replay.run(annotations)
        self._failures[device] = replay.failures
        self._add_doubts(device, replay)
        return events

    def _state_events(self, segments: Sequence[Mapping[str, Any]]) -> Events:
        """Events that build exactly the blocks of a device of a snapshot; `segments`: by ascending address."""
        rows, streams = [], TorchStreamNumbers()
        for segment in segments:
            at, stream = segment["address"], streams.of(segment.get("stream", 0))
            for block in segment["blocks"]:
                size, requested = block_sizes(block)
                in_use = STATES[block["state"]]
                label = self._tables.labels.of_block(block, segment) if in_use else 0
                rows.append((at, size, requested, label, stream, in_use))
                at += size
        regions = [HeapRegion(segment["address"], segment["total_size"]) for segment in segments]
        return events_of_state(np.array(rows, HEAP_CHUNK), regions)

    def _add_doubts(self, device: int, replay: SnapshotDeviceReplay) -> None:
        name = f"cuda:{device}"
        if replay.differing:
            self._reasons.append(
                f"{name}: {replay.differing:,} blocks or segments at the end of the trace differed from the snapshot's "
                "segments and were corrected there: entries are missing or were left out by PyTorch"
            )
        if replay.impossible:
            self._reasons.append(
                f"{name}: {replay.impossible:,} entries of the trace do not fit those after them"
            )
        if replay.strange_regions:
            self._reasons.append(
                f"{name}: {replay.strange_regions:,} regions are not the snapshot's segments"
            )
        if replay.failures_left_out:
            self._reasons.append(f"{name}: {replay.failures_left_out:,} failed requests are left out")
        if words := replay.history.inconsistencies.words():
            self._reasons.append(f"{name}: {words}")

    def _totals(self, device: int) -> dict[str, int]:
        """Sums over the blocks of a snapshot, by PyTorch's names; sizes in bytes.

        `active` includes blocks that were freed while another stream may still use them; `allocated` does not.
        """
        segments = self._found.segments.get(device, [])
        trace = self._found.traces.get(device, TraceRange(0, 0))
        blocks = [block for segment in segments for block in segment["blocks"]]
        inactive = [block["size"] for block in blocks if not STATES[block["state"]]]
        active = [block for block in blocks if STATES[block["state"]]]
        return {
            "segments": len(segments),
            "blocks": len(blocks),
            "reserved": sum(segment["total_size"] for segment in segments),
            "allocated": sum(block["size"] for block in active if block["state"] == "active_allocated"),
            "active": sum(block["size"] for block in active),
            "requested": sum(block_sizes(block)[1] for block in active),
            "inactive_blocks": len(inactive),
            "inactive_bytes": sum(inactive),
            "largest_inactive": max(inactive, default=0),
            "trace_entries": trace.stop - trace.first,
        }

    # -- all devices ----------------------------------------------------------------------------------------------

    def _first_time(self) -> int:
        """Time of step 0 of a snapshot, in microseconds: the first entry or annotation."""
        times = np.frombuffer(self._rows.time, np.int64)
        times = times[times >= 0]
        known = [annotation.time for annotation in self._found.annotations]
        if len(times):
            known += [int(times.min()), int(times.max())]
        if known and max(known) - min(known) > _LATEST:
            raise FileError(
                self._path, "", f"times of entries are {max(known) - min(known):,} microseconds apart"
            )
        return min(known, default=0)

    def _is_without_times(self, device: int) -> bool:
        trace = self._found.traces[device]
        return bool((np.frombuffer(self._rows.time, np.int64)[trace.first : trace.stop] < 0).any())

    def _recorded_failures(self, events: Events) -> list[dict[str, Any]]:
        found = []
        for index in np.flatnonzero(events["kind"] == Kind.OOM).tolist():
            device = self._devices[int(events["pool"][index])]
            row = self._failures[device].pop(0)
            failure = RecordedFailure(
                event=index,
                op=self._tables.table.name(int(events["label"][index])),
                device_free=self._rows.address[row],
            )
            found.append(failure.to_json())
        return found

    def _add_reasons(self) -> None:
        more = len(self._found.devices) - len(self._devices)
        if more > 0:
            self._reasons.append(f"{more:,} devices are left out: a trace can have {MAX_POOLS}")
        if strange := self._rows.strange:
            names = ", ".join(sorted(strange)[:5])
            self._reasons.append(
                f"{sum(strange.values()):,} entries of unknown kinds ({names[:200]}) are left out"
            )
        if without := self._tables.labels.without_stack:
            self._reasons.append(
                f"the stacks of {without:,} labels are left out: together they hold too much text"
            )


_OVERFLOWED: Final = "trace_alloc_overflowed"


def _overwritten_history_text(settings: Mapping[str, Any]) -> str:
    kept = settings.get("trace_alloc_max_entries")
    number = f" (max_entries={kept:,})" if isinstance(kept, int) and 0 < kept < _LATEST else ""
    return (
        f"PyTorch kept only the last entries of its history{number} and overwrote those before: it begins later than "
        "the recording"
    )


def _snapshot_pool_options(settings: Mapping[str, Any]) -> dict[str, object]:
    """The allocator's settings in a snapshot that are plain values, by PyTorch's names."""
    options: dict[str, object] = {}
    for name, value in list(settings.items())[:_MOST_OPTIONS]:
        numbers = value.values() if isinstance(value, dict) else ()
        if isinstance(value, str):
            options[name] = value[:_LONGEST_OPTION]
        elif _is_snapshot_number(value):
            options[name] = value
        elif any(numbers) and all(map(_is_snapshot_number, numbers)):
            options[name] = dict(list(value.items())[:_MOST_OPTIONS])
    return options


def _is_snapshot_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < _LATEST
