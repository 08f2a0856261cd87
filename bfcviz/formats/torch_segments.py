"""PyTorch's segments and blocks, as its snapshots have them; Segments follows them as regions and chunks of a heap."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from bfcviz.formats.torch import Rules

Row = Mapping[str, Any]

STATES: Final = {
    "inactive": False,
    "active_allocated": True,
    "active_pending_free": True,
    "active_awaiting_free": True,  # the same, in PyTorch's documents
}
"""Whether a block of each state is in use. A pending block was freed, but another stream may still use it."""


class _Known(NamedTuple):
    """A block in use: bytes, bytes requested, and the numbers of its label and stream."""

    size: int
    requested: int
    label: int
    stream: int


class BlockReports(Protocol):
    """Takes reports about another allocator, such as an `ObservedHeap`; `time` is in nanoseconds, None: now."""

    def allocate(  # noqa: PLR0913, PLR0917  what a ledger records of a block
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """Memory [address, address + size) came into use."""

    def free(self, address: int, time: int | None) -> None:
        """The memory at an address was freed."""

    def grant(self, address: int, size: int, *, join: bool, time: int | None) -> None:
        """The allocator got memory; `join`: it extends the grant that ends there."""

    def release(self, address: int, time: int | None) -> None:
        """The grant at an address was released."""


class Spans:
    """A set of addresses, as disjoint half-open spans that ascend."""

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
    """Grants and blocks in use, by address, according to the events written so far.

    An expandable segment may unmap a part of itself. A region cannot: it stays whole, and `unmapped` counts the bytes
    of the part until it is mapped again.
    """

    def __init__(self, heap: BlockReports) -> None:
        self._heap = heap
        self._granted: dict[int, int] = {}  # start -> stop
        self._starts: list[int] = []  # ascending
        self._used: dict[int, _Known] = {}  # by address
        self._holes = Spans()  # unmapped parts: in a grant, and in no block

    @property
    def unmapped(self) -> int:
        """Unmapped bytes of all grants."""
        return self._holes.total

    def allocate(  # noqa: PLR0913, PLR0917  what a ledger records of a block
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """A block came into use."""
        requested = min(requested, size)
        self._used[address] = _Known(size, requested, label, stream)
        self._holes.discard(address, address + size)  # a block is mapped, even without an entry about it
        self._heap.allocate(address, size, requested, label, stream, time)

    def free(self, address: int, time: int | None = None) -> None:
        """A block was freed."""
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
        """Change it to a known state; returns how many blocks and segments differed.

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
            (
                segment["address"],
                segment["address"] + segment["total_size"],
                bool(segment.get("is_expandable")),
            )
            for segment in segments
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
        known: _Known,
        block: Row,
        segment: Row,
        label_of: Callable[[Row], int],
        stream_of: Callable[[int], int],
    ) -> bool:
        """Whether a block known before is another than the one of the state; a state tells no metadata of blocks."""
        row = with_frames(block)
        label = label_of(row) if row.get("frames") else known.label
        return (known.label, known.stream) != (label, stream_of(segment.get("stream", 0)))

    def _not_in(self, spans: Sequence[tuple[int, int]]) -> Spans:
        """The granted addresses outside of these spans, which are disjoint and ascending."""
        found = []
        for first in self._starts:
            start, stop = first, self._granted[first]
            for low, high in spans[max(bisect_left(spans, (start,)) - 1, 0) : bisect_left(spans, (stop,))]:
                if low > start:
                    found.append((start, low))
                start = max(start, high)
            if start < stop:
                found.append((start, stop))
        return Spans(found)

    def _grants_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The grants that overlap [start, stop)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found = [(at, self._granted[at]) for at in self._starts[first : bisect_left(self._starts, stop)]]
        return [(low, high) for low, high in found if high > start]

    def _ending_at(self, address: int) -> int | None:
        at = bisect_left(self._starts, address) - 1
        return self._starts[at] if at >= 0 and self._granted[self._starts[at]] == address else None

    def _not_granted(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop) that lie in no grant."""
        parts = []
        first = max(bisect_right(self._starts, start) - 1, 0)
        for known in self._starts[first : bisect_left(self._starts, stop)]:
            if known > start:
                parts.append((start, known))
            start = max(start, self._granted[known])
        return [*parts, (start, stop)] if start < stop else parts


def bytes_in_use(segments: Sequence[Row]) -> int:
    """Bytes of all blocks in use, including those that wait for another stream."""
    return sum(int(block["size"]) for segment in segments for _, block in blocks_in_use(segment))


def blocks_in_use(segment: Row) -> Iterator[tuple[int, Row]]:
    """The address of each block in use, and the block; old versions do not tell addresses."""
    at = segment["address"]
    for block in segment["blocks"]:
        if STATES.get(block["state"], True):
            yield at, block
        at += block["size"]


def block_sizes(block: Row) -> tuple[int, int]:
    """Bytes of a block, and bytes requested."""
    return block["size"], min(block.get("requested_size", block["size"]), block["size"])


def with_frames(block: Row) -> Row:
    """The part of a block that has the frames of its allocation; versions of PyTorch differ."""
    history = block.get("history")
    return block if "frames" in block or not history else history[0]


def rewound(segments: Sequence[Row], entries: Sequence[Row], rules: Rules) -> list[Row]:
    """The segments before some entries of the history, which ended in the given segments.

    A block whose allocation is before the entries, and whose free is in them, reaches to the next block or to the end
    of its segment, unless PyTorch would have split it.
    """
    spans: list[tuple[int, int, Row]] = [
        (segment["address"], segment["address"] + segment["total_size"], segment) for segment in segments
    ]
    used: dict[int, Row] = {at: block for segment in segments for at, block in blocks_in_use(segment)}
    for entry in reversed(entries):
        action, start = entry["action"], entry.get("addr", 0)
        stop = start + entry["size"]
        if action == "alloc":
            used.pop(start, None)
        elif action == "free_completed":
            used[start] = {"size": 0, "requested_size": entry["size"], "state": "active_allocated"}
        elif action in ("segment_alloc", "segment_map", "segment_free", "segment_unmap"):
            spans = [
                (low, high, segment)
                for first, last, segment in spans
                for low, high in ((first, min(last, start)), (max(first, stop), last))
                if low < high
            ]
            if action in ("segment_free", "segment_unmap"):
                grows = action == "segment_unmap"
                spans.append((start, stop, {"stream": entry.get("stream", 0), "is_expandable": grows}))
    starts = sorted(used)
    return [
        {
            **segment,
            "address": start,
            "total_size": stop - start,
            "blocks": _tiled(
                start,
                stop,
                [(at, used[at]) for at in starts[bisect_left(starts, start) : bisect_left(starts, stop)]],
                rules,
            ),
        }
        for start, stop, segment in _joined(sorted(spans, key=lambda span: span[0]))
    ]


def _joined(spans: Sequence[tuple[int, int, Row]]) -> list[tuple[int, int, Row]]:
    """Parts of expandable segments side by side are one."""
    found: list[tuple[int, int, Row]] = []
    for start, stop, segment in spans:
        grows = found and found[-1][1] == start and segment.get("is_expandable")
        if (
            grows
            and found[-1][2].get("is_expandable")
            and found[-1][2].get("stream", 0) == segment.get("stream", 0)
        ):
            found[-1] = found[-1][0], stop, found[-1][2]
        else:
            found.append((start, stop, segment))
    return found


def _tiled(start: int, stop: int, blocks: Sequence[tuple[int, Row]], rules: Rules) -> list[Row]:
    """The blocks of a segment, with the free ones between them; a size of 0 is unknown."""
    tiles: list[Row] = []
    ends = [*(at for at, _ in blocks[1:]), stop]
    for (at, block), end in zip(blocks, ends, strict=False):
        size = min(block["size"] or rules.block(max(block["requested_size"], 1), end - at), end - at)
        if at > start:
            tiles.append({"size": at - start, "state": "inactive"})
        tiles.append({**block, "size": size})
        start = at + size
    return [*tiles, {"size": stop - start, "state": "inactive"}] if start < stop else tiles


def _is_inside(spans: Sequence[tuple[int, int]], address: int) -> bool:
    """Whether an address is in one of the spans, which ascend."""
    at = bisect_right(spans, (address, 1 << 64)) - 1
    return at >= 0 and address < spans[at][1]
