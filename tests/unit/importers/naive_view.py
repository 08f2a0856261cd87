"""The state after events, implemented as simply as possible; every event must fit the state before it."""

from dataclasses import dataclass, field

import numpy as np

from bfcviz.events.schema import Events, Flag, Kind, bin_of


@dataclass
class Piece:
    size: int
    handle: int
    region: int
    allocated_by: int | None = None  # seq of its ALLOCATE


@dataclass
class NaiveView:
    """One pool's chunks by address."""

    chunks: dict[int, Piece] = field(default_factory=dict)
    regions: dict[int, int] = field(default_factory=dict)  # start -> size

    def take(self, handle: int) -> int:
        (address,) = (a for a, c in self.chunks.items() if c.handle == handle)
        assert self.chunks[address].allocated_by is None
        return address

    def apply(self, event: np.void) -> None:
        address, size = int(event["address"]), int(event["size"])
        chunk, other, region = int(event["chunk"]), int(event["other"]), int(event["region"])
        match Kind(int(event["kind"])):
            case Kind.EXTEND:
                assert not any(s < address + size and address < s + n for s, n in self.regions.items())
                self.regions[address] = size
                self.chunks[address] = Piece(size, chunk, region)
                assert event["bin"] == bin_of(size)
            case Kind.SPLIT:
                parent = self.chunks[self.take(chunk)]
                assert address == self.take(chunk) + parent.size - size
                parent.size -= size
                assert parent.size > 0
                assert other not in {c.handle for c in self.chunks.values()}
                self.chunks[address] = Piece(size, other, parent.region)
                assert event["bin"] == bin_of(size)
            case Kind.ALLOCATE:
                piece = self.chunks[address]
                assert (piece.handle, piece.size, piece.allocated_by, piece.region) == (
                    chunk,
                    size,
                    None,
                    region,
                )
                piece.allocated_by = int(event["seq"])
            case Kind.FREE:
                piece = self.chunks[address]
                assert (piece.handle, piece.size, piece.allocated_by) == (chunk, size, int(other))
                piece.allocated_by = None
            case Kind.MERGE:
                survivor = self.take(chunk)
                absorbed = self.take(other)
                assert (absorbed, self.chunks[absorbed].size) == (address, size)
                assert survivor + self.chunks[survivor].size == absorbed
                assert self.chunks[survivor].region == self.chunks[absorbed].region
                self.chunks[survivor].size += self.chunks.pop(absorbed).size
                assert event["bin"] == bin_of(self.chunks[survivor].size)
            case Kind.MARK:
                pass
            case kind:
                raise AssertionError(f"an import has no {kind}")

    @property
    def bytes_in_use(self) -> int:
        return sum(c.size for c in self.chunks.values() if c.allocated_by is not None)

    @property
    def in_use(self) -> dict[int, int]:
        return {a: c.size for a, c in self.chunks.items() if c.allocated_by is not None}


def view_of(events: Events, pool: int = 0) -> NaiveView:
    """The state after all events of a pool."""
    assert np.array_equal(events["seq"], np.arange(len(events)))
    assert np.all(np.diff(events["time"]) >= 0)
    assert not np.any(events["flags"] & ~np.uint8(Flag.PADDING))
    view = NaiveView()
    for event in events[events["pool"] == pool]:
        view.apply(event)
    return view
