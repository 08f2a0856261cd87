r"""Runs: neighbouring chunks of one region that would hold a request once the chunks in use among them are freed.

::

    region    [ free 4 | a 1 | free 3 | b 9 | free 6 ]       a request of 8
    runs       \_______________/                             frees 1: the best
                        \______________________/            frees 9

A run is best where it has the fewest bytes in use. For each last chunk the shortest window that is long enough has the
fewest of them, so a search in prefix sums finds all candidates: O(n log n), without a Python loop over chunks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Run:
    """Neighbouring chunks of one region, with the free chunks on both sides.

    Attributes:
        first, stop: the half-open range of its chunks, as indices of the chunks by address.
        region: slot of its region.
        address, size: its start address; bytes of the free chunk that it becomes.
        bytes_in_use: bytes to free.
        chunks_in_use: number of chunks to free.
    """

    first: int
    stop: int
    region: int
    address: int
    size: int
    bytes_in_use: int
    chunks_in_use: int


@dataclass(frozen=True)
class _Sums:
    """Prefix sums over all chunks, each one longer than the chunks."""

    size: NDArray[np.int64]
    used: NDArray[np.int64]
    count: NDArray[np.int64]


def best_runs(chunks: NDArray[np.void], wanted: int, most: int) -> list[Run]:
    """The runs of at least `wanted` bytes with the fewest bytes in use, at most `most`; they do not overlap.

    Of equal ones the run with fewer chunks in use comes first, then the lower address.

    Args:
        chunks: every chunk by ascending address, of CHUNK; they tile every region.
        wanted: bytes, at least 1.
        most: how many runs.
    """
    if not len(chunks) or most <= 0:
        return []
    in_use = chunks["in_use"]
    sizes = chunks["size"].astype(np.int64)
    sums = _Sums(_prefix(sizes), _prefix(np.where(in_use, sizes, 0)), _prefix(in_use))
    begins = _region_begins(chunks["region"])
    starts = np.searchsorted(sums.size, sums.size[1:] - wanted, "right") - 1
    stops = np.flatnonzero(starts >= begins[:-1]) + 1
    starts = starts[stops - 1]
    used, count = sums.used[stops] - sums.used[starts], sums.count[stops] - sums.count[starts]
    edges = _free_edges(in_use, begins)
    found: list[Run] = []
    while len(stops) and len(found) < most:
        equal = np.flatnonzero(used == used.min())
        best = equal[int(np.argmin(count[equal]))]
        first, stop = int(edges[0][starts[best]]), int(edges[1][stops[best]])
        found.append(_run(chunks, sums, first, stop))
        left = (stops <= first) | (starts >= stop)
        starts, stops, used, count = starts[left], stops[left], used[left], count[left]
    return found


def _run(chunks: NDArray[np.void], sums: _Sums, first: int, stop: int) -> Run:
    return Run(
        first=first,
        stop=stop,
        region=int(chunks["region"][first]),
        address=int(chunks["address"][first]),
        size=int(sums.size[stop] - sums.size[first]),
        bytes_in_use=int(sums.used[stop] - sums.used[first]),
        chunks_in_use=int(sums.count[stop] - sums.count[first]),
    )


def _prefix(values: NDArray[np.generic]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])


def _region_begins(regions: NDArray[np.uint16]) -> NDArray[np.intp]:
    """For each chunk the index of the first chunk of its region; one more entry: the number of chunks."""
    places = np.arange(len(regions))
    is_first = np.concatenate([[True], regions[1:] != regions[:-1]])
    return np.append(np.maximum.accumulate(np.where(is_first, places, 0)), len(regions))


def _free_edges(
    in_use: NDArray[np.bool_], begins: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where a range ends after it took in the free chunks beside it: by its first index, and by its stop."""
    count = len(in_use)
    places = np.arange(count + 1)
    is_begin = np.append(begins[:-1] == places[:-1], True)
    walls = np.append(in_use, True)
    # Lowest index from which all chunks before `i` are free; a wall is a chunk in use or the edge of a region.
    after_wall = np.concatenate([[0], np.where(walls[:-1], places[1:], 0)])
    lows = np.maximum.accumulate(np.maximum(after_wall, np.where(is_begin, places, 0)))
    before_wall = np.where(walls | is_begin, places, count)
    highs = np.minimum.accumulate(before_wall[::-1])[::-1]
    return lows, highs
