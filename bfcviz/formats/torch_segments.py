"""PyTorch's segments and blocks, as its snapshots have them; Segments follows them as regions and chunks of a heap."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz.formats.torch import BLOCK_SIZE, Rules

# ------------------------------------------------------------------------------
# Segments: PyTorch's segments and blocks as regions and chunks of an observed heap, and their comparison.

Row = Mapping[str, Any]
MAX_ADDRESS: Final = 1 << 62

STATES: Final = {
    "inactive": False,
    "active_allocated": True,
    "active_pending_free": True,
    "active_awaiting_free": True,  # the same, in PyTorch's documents
}
"""Whether a block of each state is in use. A pending block was freed, but another stream may still use it."""


_KnownSegmentBlock = tuple[int, int, int, int]
"""A block of a segment in use: bytes, bytes requested, and the numbers of its label and stream."""


class SegmentReports(Protocol):
    """Takes reports about PyTorch's segments, such as an `ObservedHeap`; `time` is in nanoseconds, None: now."""

    def allocate(  # noqa: PLR0913, PLR0917  what a ledger records of a block
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """Memory [address, address + size) of PyTorch came into use."""

    def free(self, address: int, time: int | None) -> None:
        """PyTorch freed the memory at an address."""

    def grant(self, address: int, size: int, *, join: bool, time: int | None) -> None:
        """PyTorch's allocator got memory; `join`: it extends the grant that ends there."""

    def release(self, address: int, time: int | None) -> None:
        """PyTorch released the grant at an address."""


class SegmentSpans:
    """A set of addresses in PyTorch's segments, as disjoint half-open spans that ascend."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans = list(spans)

    @property
    def total(self) -> int:
        """Total bytes of the spans."""
        return sum(stop - start for start, stop in self._spans)

    def add(self, start: int, stop: int) -> None:
        """Add [start, stop) to the set."""
        touching = [span for span in self._spans if span[0] <= stop and start <= span[1]]
        apart = [span for span in self._spans if span not in touching]
        low = min([start, *(low for low, _ in touching)])
        high = max([stop, *(high for _, high in touching)])
        self._spans = sorted([*apart, (low, high)])

    def discard(self, start: int, stop: int) -> None:
        """Remove [start, stop) from the set, as far as it is in it."""
        if not self._spans:
            return
        self._spans = [
            (low, high)
            for first, last in self._spans
            for low, high in ((first, min(last, start)), (max(first, stop), last))
            if low < high
        ]

    def covers(self, start: int, stop: int) -> bool:
        """Whether all of [start, stop) is in the set."""
        return any(low <= start and stop <= high for low, high in self._spans)


class Segments:
    """PyTorch's segments as grants, and their blocks in use, by address, according to the events written so far.

    An expandable segment may unmap a part of itself. A region cannot: it stays whole, and `unmapped` counts the bytes
    of the part until it is mapped again.
    """

    def __init__(self, heap: SegmentReports) -> None:
        self._heap = heap
        self._granted: dict[int, int] = {}  # start -> stop
        self._starts: list[int] = []  # ascending
        self._used: dict[int, _KnownSegmentBlock] = {}  # by address
        self._holes = SegmentSpans()  # unmapped parts: in a grant, and in no block

    @property
    def unmapped(self) -> int:
        """Unmapped bytes of all grants, which are PyTorch's segments."""
        return self._holes.total

    def allocate(  # noqa: PLR0913, PLR0917  what a ledger records of a block
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """A block of PyTorch's segments came into use."""
        requested = min(requested, size)
        self._used[address] = size, requested, label, stream
        self._holes.discard(address, address + size)  # a block is mapped, even without an entry about it
        self._heap.allocate(address, size, requested, label, stream, time)

    def free(self, address: int, time: int | None = None) -> None:
        """A block of PyTorch's segments was freed."""
        self._used.pop(address, None)
        self._heap.free(address, time)

    def grant(self, address: int, size: int, *, grows: bool, time: int | None = None) -> None:
        """PyTorch allocated memory; `grows`: as part of an expandable segment."""
        self._holes.discard(address, address + size)
        for start, stop in self._not_granted(address, address + size):
            before = self._ending_at(start) if grows else None
            if before is None:
                insort(self._starts, start)
            self._granted[start if before is None else before] = stop
            self._heap.grant(start, stop - start, join=before is not None, time=time)

    def release(self, address: int, size: int, time: int | None = None) -> None:
        """PyTorch released memory: a grant, or a part of one."""
        stop = address + size
        grants = self._grants_in(address, stop)
        if not grants:
            self._heap.release(address, time)  # counted there as unknown
        for start, end in grants:
            self._holes.add(max(start, address), min(end, stop))
            if self._holes.covers(start, end):
                self._holes.discard(start, end)
                del self._granted[start]
                del self._starts[bisect_left(self._starts, start)]
                self._heap.release(start, time)

    def forget_refused(self, in_use: Container[int]) -> None:
        """Forget the blocks that are not in use in the heap: it left out those that overlap others."""
        self._used = {at: known for at, known in self._used.items() if at in in_use}

    def mend(
        self,
        segments: Sequence[Row],
        label_of: Callable[[Row], int],
        stream_of: Callable[[int], int],
        *,
        time: int | None = None,
        relabel: bool = False,
    ) -> int:
        """Change the segments to a known state; returns how many blocks and segments differed.

        Args:
            segments: the state, with blocks.
            label_of: the label of a block in it.
            stream_of: the number of a stream's handle.
            time: of the changes, in nanoseconds; None: now.
            relabel: whether a block of another label or stream is another one, although it has the same place and
                sizes; that can only be after entries were missed.
        """
        blocks = {at: (block, segment) for segment in segments for at, block in blocks_in_use(segment)}
        spans = sorted(
            (each["address"], each["address"] + each["total_size"], bool(each.get("is_expandable")))
            for each in segments
        )
        gone = self._stale(spans, in_one=relabel)
        wrong = [
            at
            for at, known in self._used.items()
            if at not in blocks
            or known[:2] != block_sizes(blocks[at][0])
            or (relabel and self._is_other(known, *blocks[at], label_of, stream_of))
            or _is_inside(gone, at)
        ]
        for at in wrong:
            self.free(at, time)
        for start, stop in gone:
            self.release(start, stop - start, time)
        new = [(start, stop, grows) for start, stop, grows in spans if any(self._not_granted(start, stop))]
        for start, stop, grows in new:
            self.grant(start, stop - start, grows=grows, time=time)
        self._holes = self._not_in([span[:2] for span in spans])
        missing = [at for at in blocks if at not in self._used]
        for at in missing:
            block, segment = blocks[at]
            label, stream = label_of(with_frames(block)), stream_of(segment.get("stream", 0))
            self.allocate(at, *block_sizes(block), label, stream, time)
        return len(set(wrong) | set(missing)) + len(gone) + len(new)

    def _stale(self, spans: Sequence[tuple[int, int, bool]], *, in_one: bool) -> list[tuple[int, int]]:
        """The grants that are no segments any more, ascending; `spans`: start, stop, and whether it is expandable.

        Expandable segments move within their addresses: what is not mapped there is a hole, as `_holes` says. `in_one`:
        such a segment is one grant, so that no block lies in two.
        """
        found = []
        for start in self._starts:
            stop = self._granted[start]
            there = [
                span
                for span in spans[max(bisect_left(spans, (start,)) - 1, 0) : bisect_left(spans, (stop,))]
                if span[1] > start
            ]
            moves = all(span[2] for span in there) and not (in_one and there and there[0][0] < start)
            if not there or not (moves or there[0][:2] == (start, stop)):
                found.append((start, stop))
        return found

    @staticmethod
    def _is_other(
        known: _KnownSegmentBlock,
        block: Row,
        segment: Row,
        label_of: Callable[[Row], int],
        stream_of: Callable[[int], int],
    ) -> bool:
        """Whether a block of a segment is another than that of the state, which tells no metadata of blocks."""
        row = with_frames(block)
        label = label_of(row) if row.get("frames") else known[2]
        return known[2:] != (label, stream_of(segment.get("stream", 0)))

    def _not_in(self, spans: Sequence[tuple[int, int]]) -> SegmentSpans:
        """The granted addresses outside of these spans of segments, which are disjoint and ascending."""
        found = []
        for first in self._starts:
            start, stop = first, self._granted[first]
            for low, high in spans[max(bisect_left(spans, (start,)) - 1, 0) : bisect_left(spans, (stop,))]:
                if low > start:
                    found.append((start, low))
                start = max(start, high)
            if start < stop:
                found.append((start, stop))
        return SegmentSpans(found)

    def _grants_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The grants of segments that overlap [start, stop)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found = [(at, self._granted[at]) for at in self._starts[first : bisect_left(self._starts, stop)]]
        return [(low, high) for low, high in found if high > start]

    def _ending_at(self, address: int) -> int | None:
        at = bisect_left(self._starts, address) - 1
        return self._starts[at] if at >= 0 and self._granted[self._starts[at]] == address else None

    def _not_granted(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop) of a segment that lie in no grant."""
        parts = []
        first = max(bisect_right(self._starts, start) - 1, 0)
        for known in self._starts[first : bisect_left(self._starts, stop)]:
            if known > start:
                parts.append((start, known))
            start = max(start, self._granted[known])
        return [*parts, (start, stop)] if start < stop else parts


def bytes_in_use(segments: Sequence[Row]) -> int:
    """Bytes of all blocks of segments in use, including those that wait for another stream."""
    return sum(int(block["size"]) for segment in segments for _, block in blocks_in_use(segment))


def blocks_in_use(segment: Row) -> Iterator[tuple[int, Row]]:
    """The address of each block of segments in use, and the block; old versions do not tell addresses."""
    at = segment["address"]
    for block in segment["blocks"]:
        if STATES.get(block["state"], True):
            yield at, block
        at += block["size"]


def block_sizes(block: Row) -> tuple[int, int]:
    """Bytes of a block of a segment, and bytes requested."""
    return block["size"], min(block.get("requested_size", block["size"]), block["size"])


def with_frames(block: Row) -> Row:
    """The part of a block of a segment that has the frames of its allocation; versions of PyTorch differ."""
    history = block.get("history")
    return block if "frames" in block or not history else history[0]


def _is_inside(spans: Sequence[tuple[int, int]], address: int) -> bool:
    """Whether an address is in one of the spans, which ascend."""
    at = bisect_right(spans, (address, 1 << 64)) - 1
    return at >= 0 and address < spans[at][1]


# ------------------------------------------------------------------------------
# Rewind: the state of a device before some entries of its history, computed backwards from the state at the end.
#
# PyTorch keeps the last entries of a ring, so its history begins in the middle::
#
#     blocks at the end    [ aaaa | bb |    | cc ]       from the segments
#     <- alloc b           [ aaaa |         | cc ]       undone: b was free
#     <- free_completed d  [ aaaa | d |     | cc ]       undone: d was in use
#     before the entries   [ aaaa | d |     | cc ]
#
# An allocation whose block still exists at the end gets its exact size from there: entries tell only the requested
# size.
#
# A region is memory that is mapped and released together. An expandable segment may release a part of itself.
# Looking back, the end of each piece of memory is known when it appears: pieces with different ends become different
# regions.

NEVER: Final = -1
_MAPS: Final = ("segment_alloc", "segment_map")
_UNMAPS: Final = ("segment_free", "segment_unmap")


BLOCK_CHANGE: Final = np.dtype(
    [("row", "<i8"), ("allocates", "?"), ("address", "<u8"), ("size", "<u8"), ("block", "<u8")]
)
"""An entry of the history that allocates a block, or completes its free: its number, address, bytes requested, and
bytes of the block; 0: unknown."""


class SegmentChange(NamedTuple):
    """An entry of the history about segments: its number, action, address, bytes and the handle of its stream."""

    row: int
    action: str
    address: int
    size: int
    stream: int


class OldSegmentBlock(NamedTuple):
    """A block of a segment that was in use before the entries.

    `size` is 0 while only `requested` is known. `row`: of its free; NEVER: it is there at the end, as `block` tells.
    """

    size: int
    requested: int
    row: int
    block: Row | None
    segment: Row | None


class SegmentPiece(NamedTuple):
    """A piece of a segment, memory [start, stop), that is granted and released as one.

    `ends`: row of its release; NEVER: still there. `grows`: it belongs to an expandable segment, so that pieces side by
    side with the same end are one region.
    """

    start: int
    stop: int
    ends: int
    stream: int
    grows: bool


class SegmentRewind:
    """Undoes entries of PyTorch's history: from the segments at its end back to those before it.

    Args:
        blocks: the entries about blocks, the first one first; of `BLOCK_CHANGE`.
        changes: the entries about segments, the last one first.
        segments: of the device at the end.
        rules: of the allocator.
        rows: the numbers that the entries may have.

    Attributes:
        blocks: in use before the first entry, by address.
        pieces: mapped before the first entry, ascending.
        spans: the same, pieces of an expandable segment side by side as one.
        granted, released: pieces by the row that maps, and that releases them.
        sizes: of the blocks allocated by each row, from the first number on; 0: unknown.
        impossible: entries that do not fit the state after them.
    """

    def __init__(
        self,
        blocks: NDArray[np.void],
        changes: Iterable[SegmentChange],
        segments: Sequence[Row],
        rules: Rules,
        rows: range,
    ) -> None:
        self.blocks: dict[int, OldSegmentBlock] = {}
        self.granted: dict[int, list[SegmentPiece]] = {}
        self.released: dict[int, list[SegmentPiece]] = {}
        self.sizes: NDArray[np.uint64] = np.zeros(len(rows), np.uint64)
        self.impossible = 0
        self._first = rows.start
        self._mapped: dict[int, SegmentPiece] = {}
        self._starts: list[int] = []  # of `_mapped`, ascending
        for segment in segments:
            self._add_piece(_piece_of_segment(segment))
            for address, block in blocks_in_use(segment):
                size, requested = block_sizes(block)
                self.blocks[address] = OldSegmentBlock(size, requested, NEVER, block, segment)
        self._undo_blocks(blocks)
        for change in changes:
            self._undo(*change)
        self.pieces = [self._mapped[start] for start in self._starts]
        self.spans = _joined_segment_pieces(self.pieces)
        self._find_sizes(rules)

    def _undo(self, row: int, action: str, address: int, size: int, stream: int) -> None:
        if not size or address + size > MAX_ADDRESS:
            self.impossible += 1
        elif action in _MAPS:
            found = self._cut_out(address, address + size)
            self.impossible += not found
            self.granted[row] = found
        else:
            self.impossible += bool(self._cut_out(address, address + size))
            self._add_piece(SegmentPiece(address, address + size, row, stream, action == "segment_unmap"))

    def _undo_blocks(self, changes: NDArray[np.void]) -> None:
        """Undo allocations and frees. Those of one address follow each other, whatever happens elsewhere."""
        changes = changes.take(np.argsort(changes["address"], kind="stable"))
        borders = np.ones(len(changes) + 1, bool)
        borders[1:-1] = changes["address"][1:] != changes["address"][:-1]
        first, last = borders[:-1], borders[1:]
        is_used_after = np.zeros(len(changes), bool)  # if the next change frees it, or it is there at the end
        is_used_after[:-1] = ~changes["allocates"][1:]
        ends = changes.compress(last)
        at_end = [self.blocks.pop(address, None) for address in ends["address"].tolist()]
        is_used_after[last] = [block is not None for block in at_end]
        self.sizes[changes["row"] - self._first] = changes["block"]
        self.impossible += int(np.count_nonzero(is_used_after != changes["allocates"]))
        for row, allocates, block in zip(
            ends["row"].tolist(), ends["allocates"].tolist(), at_end, strict=True
        ):
            if allocates and block is not None:
                self.sizes[row - self._first] = block.size
        for row, _, address, requested, size in changes.compress(first & ~changes["allocates"]).tolist():
            self.blocks[address] = OldSegmentBlock(size, requested, row, None, None)

    def _add_piece(self, piece: SegmentPiece) -> None:
        self._put(piece)
        if piece.ends != NEVER:
            self.released.setdefault(piece.ends, []).append(piece)

    def _put(self, piece: SegmentPiece) -> None:
        """Put a piece into the mapped memory of the segments."""
        if piece.start not in self._mapped:
            insort(self._starts, piece.start)
        self._mapped[piece.start] = piece

    def _cut_out(self, start: int, stop: int) -> list[SegmentPiece]:
        """Remove [start, stop) from the mapped memory; returns what was there, in pieces."""
        found = []
        first = max(bisect_right(self._starts, start) - 1, 0)
        for at in self._starts[first : bisect_left(self._starts, stop)]:
            piece = self._mapped[at]
            low, high = max(at, start), min(piece.stop, stop)
            if low >= high:
                continue
            found.append(piece._replace(start=low, stop=high))
            del self._starts[bisect_left(self._starts, at)]
            del self._mapped[at]
            for rest in (piece._replace(stop=low), piece._replace(start=high)):
                if rest.start < rest.stop:
                    self._put(rest)
        return found

    def _find_sizes(self, rules: Rules) -> None:
        """Find the sizes of blocks that were freed: each reaches to the next one, unless PyTorch would have split."""
        starts = sorted(self.blocks)
        begins = [span.start for span in self.spans]
        for place, address in enumerate(starts):
            block = self.blocks[address]
            if block.size:
                continue
            span = bisect_right(begins, address) - 1
            is_mapped = span >= 0 and self.spans[span].stop > address
            stop = self.spans[span].stop if is_mapped else address + rules.round_up(block.requested)
            if place + 1 < len(starts):
                stop = min(stop, starts[place + 1])
            size = rules.block(max(block.requested, 1), stop - address)
            self.blocks[address] = block._replace(size=size)


def _piece_of_segment(segment: Row) -> SegmentPiece:
    start = segment["address"]
    grows = bool(segment.get("is_expandable"))
    return SegmentPiece(start, start + segment["total_size"], NEVER, segment.get("stream", 0), grows)


def _joined_segment_pieces(pieces: Iterable[SegmentPiece]) -> list[SegmentPiece]:
    """Spans of segments that blocks may lie in: an expandable one is one span, a block never leaves another."""
    found: list[SegmentPiece] = []
    for piece in pieces:
        before = found[-1] if found else None
        if before and before.grows and piece.grows and before[1::2] == (piece.start, piece.stream):
            found[-1] = before._replace(stop=piece.stop)
        else:
            found.append(piece)
    return found


def rewound_segments(segments: Sequence[Row], entries: Sequence[Row], rules: Rules) -> list[Row]:
    """The segments before some entries of the history, which ended in the given segments."""
    blocks = [
        (row, entry["action"] == "alloc", entry.get("addr", 0), entry["size"], entry.get(BLOCK_SIZE, 0))
        for row, entry in enumerate(entries)
        if entry["action"] in ("alloc", "free_completed")
    ]
    changes = (
        SegmentChange(row, entry["action"], entry.get("addr", 0), entry["size"], entry.get("stream", 0))
        for row, entry in zip(reversed(range(len(entries))), reversed(entries), strict=True)
        if entry["action"] in _MAPS or entry["action"] in _UNMAPS
    )
    found = SegmentRewind(np.array(blocks, BLOCK_CHANGE), changes, segments, rules, range(len(entries)))
    starts = sorted(found.blocks)
    return [
        {
            "address": span.start,
            "total_size": span.stop - span.start,
            "stream": span.stream,
            "is_expandable": span.grows,
            "blocks": _all_blocks_of_segment(
                span, found.blocks, starts[bisect_left(starts, span.start) : bisect_left(starts, span.stop)]
            ),
        }
        for span in found.spans
    ]


def _all_blocks_of_segment(
    span: SegmentPiece, blocks: Mapping[int, OldSegmentBlock], used: Sequence[int]
) -> list[Row]:
    """The blocks of a segment: those at the addresses in use, and the free ones between them."""
    tiles: list[Row] = []
    start = span.start
    for at in used:
        block = blocks[at]
        if at > start:
            tiles.append({"size": at - start, "state": "inactive"})
        known = block.block or {"state": "active_allocated", "requested_size": block.requested}
        tiles.append({**known, "size": block.size})
        start = at + block.size
    return [*tiles, {"size": span.stop - start, "state": "inactive"}] if start < span.stop else tiles
