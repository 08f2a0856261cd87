"""Rewind: the state of a device before the first entry of its trace, computed backwards from the state at the end.

PyTorch keeps the last entries of a ring, so the trace begins in the middle of the history::

    blocks at the end    [ aaaa | bb |    | cc ]       from the segments
    <- alloc b           [ aaaa |         | cc ]       undone: b was free
    <- free_completed d  [ aaaa | d |     | cc ]       undone: d was in use
    before the trace     [ aaaa | d |     | cc ]

An allocation whose block still exists at the end gets its exact size from there: entries tell only the requested size.

A region is memory that is mapped and released together. An expandable segment may release a part of itself. Looking
back, the end of each piece of memory is known when it appears: pieces with different ends become different regions.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.ledger.sorted_addresses import SortedAddresses
from bfcviz.formats.torch import Rules
from bfcviz.importers.torch.allocation_history import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    TraceRange,
    TraceRows,
)
from bfcviz.importers.torch.snapshot_content import MAX_ADDRESS
from bfcviz.live.torch.segments_and_blocks import block_sizes, blocks_in_use

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
