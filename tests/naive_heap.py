"""A heap so plain that it is right by inspection: it emits events and knows its state after each of them.

Everything is a list that is searched from the front. `NaiveTrace` is the least a model needs of a trace.
"""

from dataclasses import dataclass, field

import numpy as np

from bfcviz.events import origin
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import EVENT, Flag, Kind, bin_of


@dataclass
class Piece:
    address: int
    size: int
    handle: int
    owner: dict | None = None  # requested, born, label, thread, stream of a chunk in use


@dataclass
class Pool:
    regions: dict[int, list[Piece]] = field(default_factory=dict)
    unused_handles: list[int] = field(default_factory=list)
    next_handle: int = 0
    allocs: int = 0
    ooms: int = 0
    peak_in_use: int = 0
    peak_pool: int = 0
    largest: int = 0

    def handle(self) -> int:
        if self.unused_handles:
            return self.unused_handles.pop()
        self.next_handle += 1
        return self.next_handle - 1

    def pieces(self) -> list[Piece]:
        return [piece for region in self.regions.values() for piece in region]

    def free(self) -> list[Piece]:
        return [piece for piece in self.pieces() if piece.owner is None]

    def in_use(self) -> list[Piece]:
        return [piece for piece in self.pieces() if piece.owner is not None]

    def slot_of(self, piece: Piece) -> int:
        return next(slot for slot, region in self.regions.items() if any(p is piece for p in region))

    def state(self) -> dict:
        """Everything the model must say about this pool, by plain sums."""
        used, free = self.in_use(), self.free()
        chunks = [
            (
                p.address,
                p.size,
                *((p.owner or {}).get(k, 0) for k in ("requested", "born")),
                p.handle,
                *((p.owner or {}).get(k, 0) for k in ("label", "thread", "stream")),
                slot,
                p.owner is not None,
            )
            for slot, region in self.regions.items()
            for p in region
        ]
        regions = [(r[0].address, sum(p.size for p in r), slot) for slot, r in self.regions.items()]
        in_use = sum(p.size for p in used)
        pool_bytes = sum(p.size for p in self.pieces())
        self.peak_in_use = max(self.peak_in_use, in_use)
        self.peak_pool = max(self.peak_pool, pool_bytes)
        return {
            "chunks": sorted(chunks),
            "regions": sorted(regions),
            "num_allocs": self.allocs,
            "bytes_in_use": in_use,
            "requested_bytes_in_use": sum(p.owner["requested"] for p in used),
            "peak_bytes_in_use": self.peak_in_use,
            "pool_bytes": pool_bytes,
            "peak_pool_bytes": self.peak_pool,
            "largest_alloc_size": self.largest,
            "free_bytes": pool_bytes - in_use,
            "largest_free_chunk": max((p.size for p in free), default=0),
            "chunks_in_use": len(used),
            "chunks_free": len(free),
            "ooms": self.ooms,
        }


class NaiveHeap:
    def __init__(self, pools: int = 1, *, keep_states: bool = True) -> None:
        self.pools = [Pool() for _ in range(pools)]
        self.records: list[dict] = []
        self.keep_states = keep_states
        self.states = [[pool.state() for pool in self.pools]]  # states[step][pool]
        self.clock = 0

    def emit(self, kind: Kind, pool: int, **fields) -> None:
        self.clock += 7
        self.records.append(
            {"seq": len(self.records), "time": self.clock, "kind": kind, "pool": pool, "by": 3, **fields}
        )
        if self.keep_states:
            old = self.states[-1]
            self.states.append([p.state() if i == pool else old[i] for i, p in enumerate(self.pools)])

    def extend(self, pool: int, address: int, size: int, slot: int) -> Piece:
        heap = self.pools[pool]
        piece = Piece(address, size, heap.handle())
        heap.regions[slot] = [piece]
        self.emit(
            Kind.EXTEND, pool, address=address, size=size, chunk=piece.handle, region=slot, bin=bin_of(size)
        )
        return piece

    def grow(self, pool: int, slot: int, size: int) -> None:
        heap = self.pools[pool]
        last = heap.regions[slot][-1]
        piece = Piece(last.address + last.size, size, heap.handle())
        heap.regions[slot].append(piece)
        fields = {"address": piece.address, "size": size, "chunk": piece.handle, "region": slot}
        self.emit(Kind.EXTEND, pool, flags=Flag.GREW, bin=bin_of(size), **fields)
        if last.owner is None:
            self.merge(pool, slot, last, piece)

    def split(self, pool: int, piece: Piece, front: int, flags: int = 0) -> Piece:
        heap = self.pools[pool]
        slot = heap.slot_of(piece)
        rest = Piece(piece.address + front, piece.size - front, heap.handle())
        region = heap.regions[slot]
        region.insert([p is piece for p in region].index(True) + 1, rest)
        piece.size = front
        fields = {"address": rest.address, "size": rest.size, "chunk": piece.handle, "other": rest.handle}
        self.emit(Kind.SPLIT, pool, region=slot, bin=bin_of(rest.size), flags=flags, **fields)
        return rest

    def allocate(self, pool: int, requested: int, padding: int = 0, **owner) -> Piece | None:
        """Best fit; None and an OOM event where nothing fits."""
        heap = self.pools[pool]
        need = max(256, -(-requested // 256) * 256) + padding
        fits = [piece for piece in heap.free() if piece.size >= need]
        if not fits:
            heap.ooms += 1
            free = [piece.size for piece in heap.free()]
            fields = {"address": sum(free), "size": max(free, default=0), "requested": requested}
            self.emit(Kind.OOM, pool, bin=bin_of(need), **fields, **owner)
            return None
        piece = min(fits, key=lambda p: (p.size, p.address))
        if padding:
            piece = self.split(pool, piece, padding, Flag.PADDING)
        if piece.size > need - padding:
            self.split(pool, piece, need - padding)
        filled = {"label": 0, "thread": 0, "stream": 0} | owner
        piece.owner = {"requested": requested, "born": len(self.records), **filled}
        heap.allocs += 1
        heap.largest = max(heap.largest, piece.size)
        fields = {"address": piece.address, "size": piece.size, "requested": requested, "chunk": piece.handle}
        slot = heap.slot_of(piece)
        self.emit(
            Kind.ALLOCATE, pool, other=heap.allocs, region=slot, bin=bin_of(piece.size), **fields, **filled
        )
        return piece

    def free(self, pool: int, piece: Piece, *, held: bool = False) -> None:
        heap = self.pools[pool]
        slot = heap.slot_of(piece)
        owner, piece.owner = dict(piece.owner), None
        fields = {"address": piece.address, "size": piece.size, "chunk": piece.handle, "region": slot}
        fields["other"] = owner.pop("born") & 0xFFFFFFFF
        self.emit(Kind.FREE, pool, bin=bin_of(piece.size), flags=Flag.HELD if held else 0, **fields, **owner)
        if not held:
            self.coalesce(pool, slot, piece)

    def coalesce(self, pool: int, slot: int, piece: Piece) -> Piece:
        region = self.pools[pool].regions[slot]
        at = [p is piece for p in region].index(True)
        if at + 1 < len(region) and region[at + 1].owner is None:
            self.merge(pool, slot, piece, region[at + 1])
        if at > 0 and region[at - 1].owner is None:
            piece = region[at - 1]
            self.merge(pool, slot, piece, region[at])
        return piece

    def merge(self, pool: int, slot: int, left: Piece, right: Piece) -> None:
        heap = self.pools[pool]
        heap.regions[slot] = [p for p in heap.regions[slot] if p is not right]
        heap.unused_handles.append(right.handle)
        left.size += right.size
        fields = {"address": right.address, "size": right.size, "chunk": left.handle, "other": right.handle}
        self.emit(Kind.MERGE, pool, region=slot, bin=bin_of(left.size), **fields)

    def release(self, pool: int, slot: int) -> None:
        """Give a region back that is all free, merging what is still apart."""
        heap = self.pools[pool]
        while len(heap.regions[slot]) > 1:
            first, second = heap.regions[slot][:2]
            self.merge(pool, slot, first, second)
        piece = heap.regions.pop(slot)[0]
        heap.unused_handles.append(piece.handle)
        fields = {"address": piece.address, "size": piece.size, "chunk": piece.handle, "region": slot}
        self.emit(Kind.RELEASE, pool, bin=bin_of(piece.size), **fields)

    def mark(self, pool: int = 0, label: int = 0, value: int = 0) -> None:
        self.emit(Kind.MARK, pool, size=value, label=label, bin=-1)

    def events(self) -> np.ndarray:
        array = np.zeros(len(self.records), EVENT)
        for name in EVENT.names:
            array[name] = [record.get(name, 0) for record in self.records]
        return array

    def trace(self, names: list[str] | None = None, limits: list[int | None] | None = None) -> "NaiveTrace":
        limits = limits or [None] * len(self.pools)
        return NaiveTrace(self.events(), names or [""], limits)


class NaiveTrace:
    """Events in memory, with the names of labels and the limits of pools."""

    first = 0
    following = False

    def __init__(self, events: np.ndarray, names: list[str], limits: list[int | None]) -> None:
        self.events = events
        self.labels = Labels()
        for name in names[1:]:
            self.labels.intern(name)
        self.origin = Origin(pools=tuple(origin.Pool(f"pool{i}", n) for i, n in enumerate(limits)))
        self.keyframes: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.events)

    def index_entries(self) -> None:
        return None

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= len(self)
        return self.events[start:stop]

    def blocks(self, start: int | None = None, stop: int | None = None):
        start = self.first if start is None else start
        stop = len(self) if stop is None else stop
        for at in range(start, stop, 10):
            yield self.read(at, min(at + 10, stop))

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        before = [at for at in self.keyframes if at <= step]
        return (max(before), self.keyframes[max(before)]) if before else None
