"""PyTorch's expandable segments, written as plainly as the rules are: a list of blocks a segment, no index of any kind.

Slow, and only for comparisons. Rules: c10/cuda/CUDACachingAllocator.cpp of PyTorch at commit 001074d25084.
"""

from dataclasses import dataclass, field

MiB = 1 << 20
SMALL = MiB


@dataclass(eq=False)
class Block:
    """A part of a segment; `state`: used, free, or unmapped."""

    start: int
    size: int
    state: str


@dataclass
class Pool:
    """The segments of one stream and kind, each a list of blocks in the order of addresses."""

    granule: int
    segments: list[list[Block]] = field(default_factory=list)


class NaiveExpandable:
    """The allocator on a device; `allowed`: what a fraction allows, None: there is no fraction."""

    def __init__(self, device, allowed=None):
        self.device, self.allowed, self.reserved, self.in_use = device, allowed, 0, 0
        self.pools, self.blocks, self.top = {}, {}, 1 << 40

    def allocate(self, name, size, stream):
        size = -(-size // 512) * 512
        pool = self.pools.setdefault((stream, size <= SMALL), Pool(2 * MiB if size <= SMALL else 20 * MiB))
        found = self._cached(pool, size) or self._grown(pool, size)
        if found is None:
            for each in self.pools.values():
                self._unmap(each)
            found = self._grown(pool, size)
        if found is None:
            return False
        segment, block = found
        if block.size - size >= 512:
            segment.insert(segment.index(block) + 1, Block(block.start + size, block.size - size, "free"))
            block.size = size
        block.state = "used"
        self.in_use += block.size
        self.blocks[name] = (segment, block)
        return True

    def free(self, name):
        segment, block = self.blocks.pop(name)
        self.in_use -= block.size
        block.state = "free"
        self._merge(segment)

    def _cached(self, pool, size):
        free = sorted(
            ((b.size, b.start, s, b) for s in pool.segments for b in s if b.state == "free"),
            key=lambda each: each[:2],
        )
        fitting = [(segment, block) for room, _, segment, block in free if room >= size]
        chosen = 0
        while chosen + 1 < len(fitting) and self._could_become(fitting[chosen + 1]) < self._could_become(
            fitting[chosen]
        ):
            chosen += 1
        return fitting[chosen] if fitting else None

    def _could_become(self, found):
        segment, block = found
        after = segment[segment.index(block) + 1 :][:1]
        return block.size + sum(each.size for each in after if each.state == "unmapped")

    def _grown(self, pool, size):
        whole = 2 * MiB if size <= SMALL else 20 * MiB if size < 10 * MiB else -(-size // (2 * MiB)) * 2 * MiB
        if self.allowed is not None and self.reserved + whole > self.allowed:
            return None
        segment, at = self._place(pool, size)
        while segment[at].state == "unmapped" or segment[at].size < size:
            block = segment[at]
            there = block.size if block.state == "free" else 0
            target = block if there == 0 else segment[at + 1]
            num_bytes = -(-min(target.size, size - there) // pool.granule) * pool.granule
            if self.reserved + num_bytes > self.device:
                return None
            self.reserved += num_bytes
            rest = Block(target.start + num_bytes, target.size - num_bytes, "unmapped")
            target.state, target.size = "free", num_bytes
            if rest.size:
                segment.insert(segment.index(target) + 1, rest)
            self._merge(segment)
        return segment, segment[at]

    def _place(self, pool, size):
        for segment in pool.segments:
            for at, block in enumerate(segment):
                if block.state == "unmapped":
                    begin = at - 1 if at and segment[at - 1].state == "free" else at
                    room = 0
                    for each in segment[begin:]:
                        if each.state == "used":
                            break
                        room += each.size
                    if room >= size:
                        return segment, begin
        addresses = -(-(self.device + self.device // 8) // pool.granule) * pool.granule
        pool.segments.append([Block(self.top, addresses, "unmapped")])
        self.top += addresses + MiB
        return pool.segments[-1], 0

    def _unmap(self, pool):
        for segment in pool.segments:
            base = segment[0].start
            for block in [each for each in segment if each.state == "free"]:
                low = base + -(-(block.start - base) // pool.granule) * pool.granule
                high = base + (block.start + block.size - base) // pool.granule * pool.granule
                if low >= high:
                    continue
                self.reserved -= high - low
                parts = [
                    Block(block.start, low - block.start, "free"),
                    Block(low, high - low, "unmapped"),
                    Block(high, block.start + block.size - high, "free"),
                ]
                at = segment.index(block)
                segment[at : at + 1] = [each for each in parts if each.size]
            self._merge(segment)
        pool.segments = [
            segment for segment in pool.segments if len(segment) > 1 or segment[0].state != "unmapped"
        ]

    @staticmethod
    def _merge(segment):
        at = 0
        while at + 1 < len(segment):
            if segment[at].state == segment[at + 1].state != "used":
                taken = segment.pop(at + 1)
                segment[at].size += taken.size
            else:
                at += 1
