"""The regions of a driver that takes back parts of what it granted.

A region of a trace is released as a whole. So memory that is granted at once and released at different times becomes
several regions::

    map [0, 100), release [40, 60), map [40, 60)     regions: [0, 40)  [40, 60)  [60, 100)  and [40, 60) again

So the regions of a moment depend on what is released later, and one free block of the pool can be two chunks of the
trace, also in a map. Measures of a moment come from the pool (`Outcome.largest_free`), never from these regions.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from bfcviz.whatif.simulation.driver_memory import DriverCall


class Piece(NamedTuple):
    """Memory [start, stop) that is released at once, by the call with index `end`."""

    start: int
    stop: int
    end: int


def pieces_of(calls: Sequence[DriverCall]) -> list[list[DriverCall]]:
    """What each call means for regions: one or more calls, such that each release is that of a whole region."""
    found: list[list[DriverCall]] = []
    regions: dict[int, Piece] = {}  # by their end
    starts: defaultdict[int, list[int]] = defaultdict(list)  # of the regions that a call releases
    for at, (call, pieces) in enumerate(zip(calls, _cut(calls), strict=True)):
        if call.size < 0:
            found.append([DriverCall(start, -1, False) for start in starts.pop(at, [])])
            continue
        granted = []
        for piece in pieces:
            before = regions.get(piece.start)
            join = call.join and before is not None and before.end == piece.end
            if not join:
                starts[piece.end].append(piece.start)
            regions[piece.stop] = piece
            granted.append(DriverCall(piece.start, piece.stop - piece.start, join))
        found.append(granted)
    return found


def _cut(calls: Sequence[DriverCall]) -> list[list[Piece]]:
    """The pieces of each grant: looking back from the last call, the end of each piece is known."""
    later: list[Piece] = []  # memory that is released, disjoint and ascending
    found: list[list[Piece]] = []
    for at in range(len(calls) - 1, -1, -1):
        address, size, _ = calls[at]
        if size < 0:
            insort(later, Piece(address, address - size, at))
            found.append([])
        else:
            found.append(_taken(later, address, address + size, len(calls)))
    return found[::-1]


def _taken(later: list[Piece], start: int, stop: int, never: int) -> list[Piece]:
    """Remove [start, stop) from the released memory; returns it in pieces, with those that are never released."""
    low = bisect_left(later, (start,))
    low -= low > 0 and later[low - 1].stop > start
    high = bisect_left(later, (stop,))
    found, at, rest = [], start, []
    for piece in later[low:high]:
        if at < piece.start:
            found.append(Piece(at, piece.start, never))
        found.append(Piece(max(piece.start, start), min(piece.stop, stop), piece.end))
        at = min(piece.stop, stop)
        if piece.start < start:
            rest.append(Piece(piece.start, start, piece.end))
        if piece.stop > stop:
            rest.append(Piece(stop, piece.stop, piece.end))
    if at < stop:
        found.append(Piece(at, stop, never))
    later[low:high] = rest
    return found
