"""A long, realistic stream of events for benchmarks: training steps on a best-fit heap, repeated."""

from bisect import bisect_left, insort
from random import Random

import numpy as np

from bfcviz.events.schema import EVENT, Kind, bin_of

MiB = 1 << 20


class Workload:
    """Best fit with coalescing on one region, chunks in a linked list, free chunks in a sorted list."""

    def __init__(self, region_bytes: int) -> None:
        self.rows: list[tuple] = []
        self.address = [0x7F0000000000]
        self.size = [region_bytes]
        self.before = [-1]
        self.after = [-1]
        self.owner: list[tuple | None] = [None]
        self.unused: list[int] = []
        self.free_chunks = [(region_bytes, self.address[0], 0)]
        self.allocs = 0
        self.row(Kind.EXTEND, (self.address[0], region_bytes), 0, (0, 0))

    def row(self, kind, place, requested, chunks, owner=(0, 0, 0)) -> None:
        seq = len(self.rows)
        row = (seq, seq * 40, *place, requested, *chunks, *owner, 0, owner[1], kind, bin_of(place[1]), 0, 0)
        self.rows.append(row)

    def new(self, address: int, size: int, before: int, after: int) -> int:
        handle = self.unused.pop() if self.unused else len(self.address)
        for column, value in (
            (self.address, address),
            (self.size, size),
            (self.before, before),
            (self.after, after),
            (self.owner, None),
        ):
            column[handle : handle + 1] = [value]
        return handle

    def allocate(self, requested: int, label: int) -> int:
        need = max(256, -(-requested // 256) * 256)
        size, address, chunk = self.free_chunks.pop(bisect_left(self.free_chunks, (need, 0, 0)))
        if size >= 2 * need or size - need >= 128 * MiB:
            rest = self.new(address + need, size - need, chunk, self.after[chunk])
            if self.after[chunk] >= 0:
                self.before[self.after[chunk]] = rest
            self.after[chunk] = rest
            self.size[chunk] = need
            insort(self.free_chunks, (size - need, address + need, rest))
            self.row(Kind.SPLIT, (address + need, size - need), 0, (chunk, rest))
        self.allocs += 1
        self.owner[chunk] = (requested, len(self.rows), label)
        self.row(Kind.ALLOCATE, (address, self.size[chunk]), requested, (chunk, self.allocs), (label, 1, 1))
        return chunk

    def free(self, chunk: int) -> None:
        requested, born, label = self.owner[chunk]
        self.owner[chunk] = None
        self.row(Kind.FREE, (self.address[chunk], self.size[chunk]), requested, (chunk, born), (label, 1, 1))
        after, before = self.after[chunk], self.before[chunk]
        if after >= 0 and self.owner[after] is None:
            self.merge(chunk, after)
        if before >= 0 and self.owner[before] is None:
            self.free_chunks.remove((self.size[before], self.address[before], before))
            self.merge(before, chunk, listed=False)
            chunk = before
        insort(self.free_chunks, (self.size[chunk], self.address[chunk], chunk))

    def merge(self, left: int, right: int, *, listed: bool = True) -> None:
        if listed:
            self.free_chunks.remove((self.size[right], self.address[right], right))
        self.row(Kind.MERGE, (self.address[right], self.size[right]), 0, (left, right))
        self.size[left] += self.size[right]
        self.after[left] = self.after[right]
        if self.after[right] >= 0:
            self.before[self.after[right]] = left
        self.unused.append(right)


def _size(random: Random) -> int:
    return int(random.lognormvariate(9, 3)) + 1


# The step ends as it began: each hole is whole again and has the handle of its first chunk, the one it had.
def training(length: int, *, live: int = 4000, period: int = 120_000, seed: int = 1) -> np.ndarray:
    """`length` events: `live` long-lived chunks, then one training step over and over."""
    random = Random(seed)
    heap = Workload((64 << 30) * max(1, live // 4000))
    kept = [heap.allocate(_size(random), i % 500) for i in range(live * 2)]
    for at in range(
        0, 2 * live, 24
    ):  # holes of a dozen chunks, so that most requests split and most frees merge
        for chunk in kept[at : at + 12]:
            heap.free(chunk)
    start = len(heap.rows)
    while len(heap.rows) - start < period:
        held = []
        for _ in range(800):  # forward: each layer keeps an output and drops a workspace
            held.append(heap.allocate(_size(random), random.randrange(500)))
            workspace = heap.allocate(_size(random), random.randrange(500))
            heap.free(workspace)
        while held:  # backward: outputs go, nearly last in first out
            heap.free(held.pop(-random.randint(1, min(8, len(held)))))
    return repeated(np.array(heap.rows, EVENT), start, length)


def repeated(events: np.ndarray, start: int, length: int) -> np.ndarray:
    """`events` with everything from `start` on repeated up to `length` events."""
    period = len(events) - start
    out = np.empty(length, EVENT)
    out[:start] = events[:start]
    for at in range(start, length, period):
        part = events[start : start + min(period, length - at)].copy()
        shift = at - start
        part["seq"] += shift
        part["time"] += shift * 40
        part["other"][part["kind"] == Kind.FREE] += shift
        out[at : at + len(part)] = part
    return out
