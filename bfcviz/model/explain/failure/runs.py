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
    in_use, regions = (np.ascontiguousarray(chunks[name]) for name in ("in_use", "region"))
    sizes = chunks["size"].astype(np.int64)
    sums = _Sums(_prefix(sizes), _prefix(np.where(in_use, sizes, 0)), _prefix(in_use.astype(np.int64)))
    if wanted > sums.size[-1]:  # it may also be too large for the columns
        return []
    begins = _region_begins(regions)
    starts = np.searchsorted(sums.size, sums.size[1:] - wanted, "right") - 1
    stops = np.flatnonzero(starts >= begins[:-1]) + 1
    starts = starts[stops - 1]
    used, count = sums.used[stops] - sums.used[starts], sums.count[stops] - sums.count[starts]
    found: list[Run] = []
    while len(stops):
        equal = np.flatnonzero(used == used.min())
        best = equal[int(np.argmin(count[equal]))]
        first, stop = _with_free_sides(in_use, begins, int(starts[best]), int(stops[best]))
        found.append(_run(chunks, sums, first, stop))
        if len(found) == most:
            break
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


def _prefix(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])


def _region_begins(regions: NDArray[np.uint16]) -> NDArray[np.intp]:
    """For each chunk the index of the first chunk of its region; one more entry: the number of chunks."""
    places = np.arange(len(regions))
    is_first = np.concatenate([[True], regions[1:] != regions[:-1]])
    return np.append(np.maximum.accumulate(np.where(is_first, places, 0)), len(regions))


def _with_free_sides(
    in_use: NDArray[np.bool_], begins: NDArray[np.intp], first: int, stop: int
) -> tuple[int, int]:
    """The range [first, stop) of one region, and the free chunks of the region on both sides of it."""
    begin = int(begins[first])
    end = int(np.searchsorted(begins, begin, "right"))
    before, after = np.flatnonzero(in_use[begin:first]), in_use[stop:end]
    low = begin + int(before[-1]) + 1 if len(before) else begin
    return low, stop + int(np.argmax(after)) if after.any() else end
