"""DeviceReplay: the events of one device, from the state before its trace to the state at its end."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.origin import HISTORY_BEGINS
from bfcviz.events.schema import Events
from bfcviz.events.sorted_addresses import SortedAddresses
from bfcviz.formats.torch import Rules, StreamNumbers
from bfcviz.formats.torch_segments import Segments, block_sizes, blocks_in_use
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.importers.torch import allocation_history as rows_of
from bfcviz.importers.torch.allocation_history import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    TraceRange,
    TraceRows,
    pool_words,
)
from bfcviz.importers.torch.snapshot_content import MAX_ADDRESS, Annotation, StackLabels

# ------------------------------------------------------------------------------
# Rewind: the state of a device before the first entry of its trace, computed backwards from the state at the end.
#
# PyTorch keeps the last entries of a ring, so the trace begins in the middle of the history::
#
#     blocks at the end    [ aaaa | bb |    | cc ]       from the segments
#     <- alloc b           [ aaaa |         | cc ]       undone: b was free
#     <- free_completed d  [ aaaa | d |     | cc ]       undone: d was in use
#     before the trace     [ aaaa | d |     | cc ]
#
# An allocation whose block still exists at the end gets its exact size from there: entries tell only the requested
# size.
#
# A region is memory that is mapped and released together. An expandable segment may release a part of itself.
# Looking back, the end of each piece of memory is known when it appears: pieces with different ends become different
# regions.

NEVER = -1


class OldBlock(NamedTuple):
    """A block in use before the trace.

    `size` is 0 while only `requested` is known. `row`: of its free; NEVER: it is there at the end, as `block` tells.
    """

    size: int
    requested: int
    row: int
    block: Mapping[str, Any] | None
    segment: Mapping[str, Any] | None


class MappedPiece(NamedTuple):
    """Memory [start, stop) that is granted and released as one. `ends`: row of its release; NEVER: still there.

    `grows`: it belongs to an expandable segment, so that pieces side by side with the same end are one region.
    """

    start: int
    stop: int
    ends: int
    stream: int
    grows: bool


class Rewind:
    """Undoes the entries of one trace, the last first.

    Args:
        rows: of all traces.
        trace: the rows of this one.
        segments: of the device at the end, by ascending address.
        rules: of the allocator.

    Attributes:
        blocks: in use before the first entry, by address.
        pieces: mapped before the first entry.
        granted, released: pieces by the row that maps, and that releases them.
        sizes: of the blocks allocated by each row of the trace; 0: unknown.
        impossible: entries that do not fit the state after them.
    """

    def __init__(
        self, rows: TraceRows, trace: TraceRange, segments: Sequence[Mapping[str, Any]], rules: Rules
    ) -> None:
        self.blocks: dict[int, OldBlock] = {}
        self.granted: dict[int, list[MappedPiece]] = {}
        self.released: dict[int, list[MappedPiece]] = {}
        self.sizes: NDArray[np.uint64] = np.zeros(trace.stop - trace.first, np.uint64)
        self.impossible = 0
        self._rows = rows
        self._first = trace.first
        self._mapped: dict[int, MappedPiece] = {}
        self._starts = SortedAddresses()
        for segment in segments:
            self._add_piece(_piece_of(segment))
            for address, block in blocks_in_use(segment):
                size, requested = block_sizes(block)
                self.blocks[address] = OldBlock(size, requested, NEVER, block, segment)
        for row in reversed(effective(rows, trace).tolist()):
            self._undo(row)
        self.pieces = [self._mapped[start] for start in self._starts.at_or_after(0)]
        self._find_sizes(rules)

    def _undo(self, row: int) -> None:
        rows = self._rows
        action, address, size = rows.action[row], rows.address[row], rows.size[row]
        if action == ALLOC:
            block = self.blocks.pop(address, None)
            if block is None:
                self.impossible += 1
            elif block.size:
                self.sizes[row - self._first] = block.size
        elif action == FREE_COMPLETED:
            self.impossible += address in self.blocks
            self.blocks[address] = OldBlock(0, size, row, None, None)
        elif not size or address + size > MAX_ADDRESS:
            self.impossible += 1
        elif action in (SEGMENT_ALLOC, SEGMENT_MAP):
            found = self._cut_out(address, address + size)
            self.impossible += not found
            self.granted[row] = found
        else:
            self.impossible += bool(self._cut_out(address, address + size))
            grows = action not in (SEGMENT_ALLOC, SEGMENT_ALLOC + 1)
            piece = MappedPiece(address, address + size, row, rows.stream[row], grows)
            self._add_piece(piece)

    def _add_piece(self, piece: MappedPiece) -> None:
        self._mapped[piece.start] = piece
        self._starts.add(piece.start)
        if piece.ends != NEVER:
            self.released.setdefault(piece.ends, []).append(piece)

    def _cut_out(self, start: int, stop: int) -> list[MappedPiece]:
        """Remove [start, stop) from the mapped memory; returns what was there, in pieces."""
        found = []
        first = max(self._starts.at_or_before(start), 0)
        there = []
        for at in self._starts.at_or_after(first):
            if at >= stop:
                break
            there.append(self._mapped[at])
        for piece in there:
            low, high = max(piece.start, start), min(piece.stop, stop)
            if low >= high:
                continue
            found.append(piece._replace(start=low, stop=high))
            self._starts.remove(piece.start)
            del self._mapped[piece.start]
            for rest in (piece._replace(stop=low), piece._replace(start=high)):
                if rest.start < rest.stop:
                    self._mapped[rest.start] = rest
                    self._starts.add(rest.start)
        return found

    def _find_sizes(self, rules: Rules) -> None:
        """Find the sizes of the blocks that were freed: they reach to the next one, unless PyTorch would have split."""
        starts = sorted(self.blocks)
        runs = _runs(self.pieces)
        begins = [start for start, _ in runs]
        for place, address in enumerate(starts):
            block = self.blocks[address]
            if block.size:
                continue
            run = bisect_right(begins, address) - 1
            stop = (
                runs[run][1]
                if run >= 0 and runs[run][1] > address
                else address + rules.round_up(block.requested)
            )
            if place + 1 < len(starts):
                stop = min(stop, starts[place + 1])
            size = rules.block(max(block.requested, 1), stop - address)
            self.blocks[address] = block._replace(size=size)


def effective(rows: TraceRows, trace: TraceRange) -> NDArray[np.intp]:
    """The rows of a trace that change the heap, ascending."""
    actions = np.frombuffer(rows.action, np.uint8)[trace.first : trace.stop]
    changes = (actions <= SEGMENT_MAP + 1) & (actions != FREE_REQUESTED)
    return np.flatnonzero(changes) + trace.first


def _piece_of(segment: Mapping[str, Any]) -> MappedPiece:
    start = segment["address"]
    return MappedPiece(
        start,
        start + segment["total_size"],
        NEVER,
        segment.get("stream", 0),
        bool(segment.get("is_expandable")),
    )


def _runs(pieces: Sequence[MappedPiece]) -> list[tuple[int, int]]:
    """Spans of memory that blocks may lie in: an expandable segment is one, a block never leaves another segment."""
    found: list[tuple[int, int]] = []
    joins = False
    for piece in pieces:
        if joins and piece.grows and found[-1][1] == piece.start:
            found[-1] = found[-1][0], piece.stop
        else:
            found.append((piece.start, piece.stop))
        joins = piece.grows
    return found


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
        self._rewind = Rewind(tables.rows, trace, segments, tables.rules)
        self._heap = Segments(RecordedBlocks(self.history))
        self._streams = StreamNumbers()
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
            if block.block is not None and block.segment is not None:
                label = self._tables.labels.of_block(block.block, block.segment)
                stream = block.segment.get("stream", 0)
            else:  # its allocation is older than the trace, and its free tells another stack
                label, stream = 0, self._rows.stream[block.row]
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
        label = self._tables.labels.of_row(self._rows.source[row], pool)
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
