"""`read_snapshot`: a PyTorch memory snapshot as a trace, one heap a device."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import HISTORY_BEGINS, MAX_POOLS, STATE_ONLY, Origin, Pool, RecordedFailure, Status
from bfcviz.events.schema import Events, Kind
from bfcviz.events.sorted_addresses import SortedAddresses
from bfcviz.events.storage.files import loads
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import Rules, StreamNumbers
from bfcviz.formats.torch_segments import MAX_ADDRESS, Change, MappedPiece, OldBlock, Rewind, Segments
from bfcviz.importers.file_content import Content, read_content
from bfcviz.importers.file_format import Format, json_encoding
from bfcviz.importers.join_heaps import by_time, one_after_another
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.importers.torch import allocation_history as rows_of
from bfcviz.importers.torch.allocation_history import (
    ACTIONS,
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_MAP,
    CodeFrame,
    TraceRange,
    TraceRows,
    is_entry,
    pool_words,
)
from bfcviz.importers.torch.pickle_reader import PickleReader
from bfcviz.importers.torch.snapshot_content import (
    BEFORE,
    BEFORE_KEPT,
    Annotation,
    SnapshotContent,
    SnapshotLabels,
    content_of,
    state_events,
    totals_of,
)

# ------------------------------------------------------------------------------
# DeviceReplay: the events of one device, from the state before its trace to the state at its end.

MOST_FAILURES: Final = 1000  # each looks at all free chunks
SNAPSHOT: Final = "snapshot"


class RecordedBlocks:
    """Passes the reports of `Segments` on to a recorded history; without a time, at that of the last report."""

    def __init__(self, history: RecordedHistory) -> None:
        self._history = history
        self._ledger = history.ledger

    def allocate(  # noqa: PLR0913, PLR0917  as `BlockReports`
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """Memory came into use."""
        self._history.at(time or 0)
        self._ledger.allocate(address, size, requested, label, stream)

    def free(self, address: int, time: int | None) -> None:
        """Memory was freed."""
        self._history.at(time or 0)
        self._ledger.free(address)

    def grant(self, address: int, size: int, *, join: bool, time: int | None) -> None:
        """The allocator got memory."""
        self._history.at(time or 0)
        self._ledger.grant(address, size, join=join)

    def release(self, address: int, time: int | None) -> None:
        """A grant was released."""
        self._history.at(time or 0)
        self._ledger.release(address)


@dataclass(frozen=True)
class SnapshotTables:
    """What the devices of a snapshot share.

    Attributes:
        rows: of all traces.
        rules: of the allocator.
        labels: of allocations.
        table: of all labels, for marks.
        start: time of step 0, in microseconds.
    """

    rows: TraceRows
    rules: Rules
    labels: SnapshotLabels
    table: Labels
    start: int

    def time(self, microseconds: int) -> int:
        """Nanoseconds from step 0; 0 for an entry without a time."""
        return 0 if microseconds < 0 else (microseconds - self.start) * 1000


def effective(rows: TraceRows, trace: TraceRange) -> NDArray[np.intp]:
    """The rows of a trace that change the heap, ascending."""
    actions = np.frombuffer(rows.action, np.uint8)[trace.first : trace.stop]
    changes = (actions <= SEGMENT_MAP + 1) & (actions != FREE_REQUESTED)
    return np.flatnonzero(changes) + trace.first


def _rewind_device_trace(
    tables: SnapshotTables, trace: TraceRange, segments: Sequence[Mapping[str, Any]]
) -> Rewind:
    """The state before a trace; `segments`: of its device at the end, by ascending address."""
    rows = tables.rows
    changes = (
        Change(row, ACTIONS[rows.action[row]], rows.address[row], rows.size[row], rows.stream[row])
        for row in reversed(effective(rows, trace).tolist())
    )
    return Rewind(changes, segments, tables.rules, range(trace.first, trace.stop))


def _annotated_block_names(rows: TraceRows, trace: TraceRange, old: Mapping[int, OldBlock]) -> dict[int, str]:
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
    for row in (
        np.flatnonzero((actions == ALLOC) | (actions == FREE_COMPLETED) | (actions == rows_of.ANNOTATE))
        + trace.first
    ).tolist():
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


class DeviceReplay:
    """Writes the history of one device.

    Args:
        tables: of the snapshot.
        trace: the rows of this device.
        segments: of the device, by ascending address.

    Attributes:
        history: has the events, and counts of inconsistencies.
        failures: rows of the failed requests, in order; the first MOST_FAILURES.
        failures_left_out: further ones.
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
        self._rewind = _rewind_device_trace(tables, trace, segments)
        self._heap = Segments(RecordedBlocks(self.history))
        self._streams = StreamNumbers()
        self._names = _annotated_block_names(tables.rows, trace, self._rewind.blocks)
        self._ends: dict[int, int] = {}  # where a region stops -> the row of its release
        self._private = [
            (segment["address"], segment["address"] + segment["total_size"], pool)
            for segment in segments
            if (pool := pool_words(segment.get("segment_pool_id")))
        ]

    @property
    def impossible(self) -> int:
        """Entries that do not fit the state after them."""
        return self._rewind.impossible

    def run(self, annotations: Sequence[Annotation]) -> Events:
        """Write all events; `annotations`: of this device, by time."""
        self._write_beginning()
        rows, waiting = self._rows, list(reversed(annotations))
        actions = np.frombuffer(rows.action, np.uint8)[self._trace.first : self._trace.stop]
        for row in (np.flatnonzero(actions != rows_of.FREE_REQUESTED) + self._trace.first).tolist():
            while waiting and waiting[-1].time <= rows.time[row]:
                self._annotate(waiting.pop())
            self._carry_out(row, self._tables.time(rows.time[row]))
        while waiting:
            self._annotate(waiting.pop())
        self._correct()
        return self.history.events()

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

    def _carry_out(self, row: int, time: int) -> None:
        rows, rewind = self._rows, self._rewind
        action = rows.action[row]
        if action == rows_of.ALLOC:
            self._allocate(row, time)
        elif action == rows_of.FREE_COMPLETED:
            self._heap.free(rows.address[row], time)
        elif action in (rows_of.SEGMENT_ALLOC, rows_of.SEGMENT_MAP):
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

    def _allocate(self, row: int, time: int) -> None:
        address, requested = self._rows.address[row], max(1, self._rows.size[row])
        size = int(self._rewind.sizes[row - self._trace.first])
        if not size:
            size = self._tables.rules.block(requested, self.history.ledger.free_size(address))
        pool = self._pool_at(address) if self._private else ""
        label = self._tables.labels.of_row(self._rows.source[row], pool, self._names.get(row, ""))
        stream = self._streams.of(self._rows.stream[row])
        self._heap.allocate(address, size, requested, label, stream, time)

    def _grant(self, piece: MappedPiece, time: int) -> None:
        """Pieces that are released together, side by side in an expandable segment, are one region."""
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
        """Change what differs from the segments."""
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


def read_json(path: Path, data: bytes, rows: TraceRows) -> Any:
    """The value that a JSON snapshot holds; its entries become rows, its frames stacks.

    Raises:
        FileError: it is damaged, cut off, or too large.
    """
    try:
        value = loads(data.decode(json_encoding(data)), _MOST_VALUES)
        return _json_snapshot_value(value, rows, _DEEPEST)
    except UnicodeDecodeError as error:
        raise FileError(path, f"byte {error.start}", "corrupt snapshot: not text") from None
    except ValueError as error:
        raise FileError(path, "", f"corrupt snapshot: {error}") from None


def _json_snapshot_value(value: Any, rows: TraceRows, depth: int) -> Any:
    """What `PickleReader` makes of the same value: an entry is a row, a list of entries a range, of frames a stack."""
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
    """Entries belong into traces, frames into stacks."""
    if isinstance(value, list) and any(is_entry(each) or isinstance(each, CodeFrame) for each in value):
        raise ValueError("mixes entries or frames with other values in one list")
    return value


# ------------------------------------------------------------------------------
# `read_snapshot`: a PyTorch memory snapshot as a trace, one heap a device.


_MOST_OPTIONS: Final = 64
_LONGEST_OPTION: Final = 1024
_LATEST: Final = 1 << 52  # microseconds


def read_snapshot(path: Path) -> Trace:
    """Read a snapshot of any version of PyTorch, or what is whole of one that is cut off.

    Raises:
        FileError: it is no snapshot, or holds anything that can run code.
    """
    content = read_content(path)
    rows, size = TraceRows(), len(content.data)
    value, cut = _read_snapshot_value(path, content, rows)
    del content  # the file's bytes are not needed any more
    found = content_of(path, value, cut)
    try:
        return _Importer(path, found, rows, size).trace(cut)
    except (TraceError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from None


def _read_snapshot_value(path: Path, content: Content, rows: TraceRows) -> tuple[Any, str | None]:
    """The value of the file, and why its end is missing."""
    if (
        content.data[:1] in {b"{", b"["}
        or content.data[:2] in {b"\xff\xfe", b"\xfe\xff"}
        or content.data[:1] == b"\xef"
    ):
        return read_json(path, content.data, rows), None
    reader = PickleReader(path, content.data, rows)
    value = reader.read()
    return value, reader.cut and (content.cut or reader.cut)


class _Importer:
    """Makes the trace of a snapshot."""

    def __init__(self, path: Path, found: SnapshotContent, rows: TraceRows, file_size: int) -> None:
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
        """The trace; `cut`: why the end of the file is missing."""
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
        return bool(len(effective(self._rows, trace)) or (actions == OOM).any())

    def _events(self, device: int, *, replayed: bool) -> Events:
        segments = self._found.segments.get(device, [])
        if not replayed:
            return state_events(segments, self._tables.labels.of_block, StreamNumbers().of)
        trace = self._found.traces[device]
        replay = DeviceReplay(self._tables, trace, segments)
        annotations = sorted(
            (each for each in self._found.annotations if each.device == device), key=lambda each: each.time
        )
        events = replay.run(annotations)
        self._failures[device] = replay.failures
        self._add_doubts(device, replay)
        return events

    def _add_doubts(self, device: int, replay: DeviceReplay) -> None:
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
        trace = self._found.traces.get(device, TraceRange(0, 0))
        return totals_of(self._found.segments.get(device, []), trace.stop - trace.first)

    # -- all devices ----------------------------------------------------------------------------------------------

    def _first_time(self) -> int:
        """Time of step 0, in microseconds: the first entry or annotation."""
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
    """The allocator's settings that are plain values, by PyTorch's names."""
    options: dict[str, object] = {}
    for name, value in list(settings.items())[:_MOST_OPTIONS]:
        if isinstance(value, str):
            options[name] = value[:_LONGEST_OPTION]
        elif _is_setting_number(value):
            options[name] = value
        elif isinstance(value, dict) and any(value.values()) and all(map(_is_setting_number, value.values())):
            options[name] = dict(list(value.items())[:_MOST_OPTIONS])
    return options


def _is_setting_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < _LATEST
