"""Segments: PyTorch's segments and blocks as regions and chunks of an ObservedHeap, and how they are compared."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bfcviz.live.observed import ObservedHeap

Row = Mapping[str, Any]


class Segments:
    """What is granted and in use, by address, as the events written so far say.

    An expandable segment may give back memory in its midst, which no region can: it stays, and is counted in
    `unmapped`, in bytes, until it is mapped again.
    """

    def __init__(self, heap: ObservedHeap) -> None:
        self._heap = heap
        self._granted: dict[int, int] = {}  # start -> stop
        self._starts: list[int] = []  # ascending
        self._used: dict[int, tuple[int, int]] = {}  # address -> bytes, and bytes asked for
        self._holes: dict[int, int] = {}  # start -> stop, of what is unmapped

    @property
    def unmapped(self) -> int:
        """See above."""
        return sum(stop - start for start, stop in self._holes.items())

    def allocate(
        self, address: int, size: int, requested: int, label: int, stream: int, time: int | None
    ) -> None:
        """A block came into use."""
        requested = min(requested, size)
        self._used[address] = size, requested
        self._heap.allocate(address, size, requested, label, stream, time)

    def free(self, address: int, time: int | None = None) -> None:
        """A block came back."""
        self._used.pop(address, None)
        self._heap.free(address, time)

    def grant(self, address: int, size: int, *, grows: bool, time: int | None = None) -> None:
        """PyTorch got memory; where it `grows`, part of an expandable segment."""
        for start, stop in list(self._holes.items()):
            if address <= start and stop <= address + size:
                del self._holes[start]
        for start, stop in self._not_granted(address, address + size):
            before = self._ending_at(start) if grows else None
            if before is None:
                insort(self._starts, start)
            self._granted[start if before is None else before] = stop
            self._heap.grant(start, stop - start, join=before is not None, time=time)

    def release(self, address: int, size: int, time: int | None = None) -> None:
        """PyTorch gave memory back."""
        if self._granted.get(address) == address + size:
            del self._granted[address]
            del self._starts[bisect_left(self._starts, address)]
            self._heap.release(address, time)
        else:
            self._holes[address] = address + size

    def mend(
        self, segments: Sequence[Row], label_of: Callable[[Row], int], stream_of: Callable[[int], int]
    ) -> int:
        """Bring it to a state that is known; returns how many blocks and segments differed."""
        blocks = {at: (block, segment) for segment in segments for at, block in _blocks_in_use(segment)}
        wrong = [at for at, known in self._used.items() if at not in blocks or known != _sizes(blocks[at][0])]
        for at in wrong:
            self.free(at)
        spans = sorted(
            (segment["address"], segment["address"] + segment["total_size"]) for segment in segments
        )
        gone = [start for start, stop in self._granted.items() if not _overlaps(spans, start, stop)]
        for start in gone:
            self.release(start, self._granted[start] - start)
        new = [
            segment
            for segment in segments
            if any(self._not_granted(segment["address"], segment["address"] + segment["total_size"]))
        ]
        for segment in new:
            self.grant(segment["address"], segment["total_size"], grows=bool(segment.get("is_expandable")))
        missing = [at for at in blocks if at not in self._used]
        for at in missing:
            block, segment = blocks[at]
            self.allocate(at, *_sizes(block), label_of(_who(block)), stream_of(segment["stream"]), None)
        return len(set(wrong) | set(missing)) + len(gone) + len(new)

    def _ending_at(self, address: int) -> int | None:
        at = bisect_left(self._starts, address) - 1
        return self._starts[at] if at >= 0 and self._granted[self._starts[at]] == address else None

    def _not_granted(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop) that lie in no grant."""
        parts = []
        for known in self._starts[
            max(bisect_right(self._starts, start) - 1, 0) : bisect_left(self._starts, stop)
        ]:
            if known > start:
                parts.append((start, known))
            start = max(start, self._granted[known])
        return [*parts, (start, stop)] if start < stop else parts


def bytes_in_use(segments: Sequence[Row]) -> int:
    """Bytes of all blocks in use, those that wait for another stream included."""
    return sum(int(block["size"]) for segment in segments for _, block in _blocks_in_use(segment))


def _blocks_in_use(segment: Row) -> Iterator[tuple[int, Row]]:
    at = segment["address"]
    for block in segment["blocks"]:
        if block["state"] != "inactive":
            yield at, block
        at += block["size"]


def _sizes(block: Row) -> tuple[int, int]:
    return block["size"], min(block.get("requested_size", block["size"]), block["size"])


def _who(block: Row) -> Row:
    """A block with the frames of whoever wanted it, wherever this version of PyTorch keeps them."""
    history = block.get("history")
    return block if "frames" in block or not history else history[0]


def _overlaps(spans: Sequence[tuple[int, int]], start: int, stop: int) -> bool:
    at = bisect_right(spans, (start, stop))
    return any(low < stop and start < high for low, high in spans[max(at - 1, 0) : at + 1])
