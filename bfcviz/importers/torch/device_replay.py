"""DeviceReplay: the events of one device, from the state before its trace to the state at its end."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.origin import HISTORY_BEGINS
from bfcviz.events.schema import Events
from bfcviz.events.sorted_addresses import SortedAddresses
from bfcviz.formats.torch import Rules, StreamNumbers
from bfcviz.formats.torch_segments import MAX_ADDRESS, Change, MappedPiece, OldBlock, Rewind, Segments
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.importers.torch import allocation_history as rows_of
from bfcviz.importers.torch.allocation_history import (
    ACTIONS,
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_MAP,
    TraceRange,
    TraceRows,
    pool_words,
)
from bfcviz.importers.torch.snapshot_content import Annotation, StackLabels

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
    labels: StackLabels
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


def _rewind(tables: SnapshotTables, trace: TraceRange, segments: Sequence[Mapping[str, Any]]) -> Rewind:
    """The state before a trace; `segments`: of its device at the end, by ascending address."""
    rows = tables.rows
    changes = (
        Change(row, ACTIONS[rows.action[row]], rows.address[row], rows.size[row], rows.stream[row])
        for row in reversed(effective(rows, trace).tolist())
    )
    return Rewind(changes, segments, tables.rules, range(trace.first, trace.stop))


def _annotated(rows: TraceRows, trace: TraceRange, old: Mapping[int, OldBlock]) -> dict[int, str]:
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
        self._rewind = _rewind(tables, trace, segments)
        self._heap = Segments(RecordedBlocks(self.history))
        self._streams = StreamNumbers()
        self._names = _annotated(tables.rows, trace, self._rewind.blocks)
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
