"""Offsets of blocks with known lifetimes, one block after the other in a given order; and whether any two overlap."""

import numpy as np
from numpy.typing import NDArray

from bfcviz import native


class Skyline:
    """The highest offset that is used at each time; it only rises.

    A tree of maxima over times: `_best` has the highest value within each node's times, `_all` a value that all of its
    times have at least. A range is O(log n) nodes.

    Args:
        times: number of times.
    """

    def __init__(self, times: int) -> None:
        self._leaves = 1
        while self._leaves < times:
            self._leaves *= 2
        self._best = np.zeros(2 * self._leaves, np.int64)
        self._all = np.zeros(2 * self._leaves, np.int64)

    def top(self, start: int, stop: int) -> int:
        """The highest value in [start, stop), which is not empty."""
        low, high, found = start + self._leaves, stop + self._leaves, 0
        while low < high:
            if low % 2:
                found = max(found, self._best[low])
                low += 1
            if high % 2:
                high -= 1
                found = max(found, self._best[high])
            low //= 2
            high //= 2
        for end in (start, stop - 1):
            node = end + self._leaves
            while node > 1:
                node //= 2
                found = max(found, self._all[node])
        return found

    def lift(self, start: int, stop: int, value: int) -> None:
        """Let no value in [start, stop), which is not empty, be lower than `value`."""
        low, high = start + self._leaves, stop + self._leaves
        while low < high:
            if low % 2:
                self._lift_node(low, value)
                low += 1
            if high % 2:
                high -= 1
                self._lift_node(high, value)
            low //= 2
            high //= 2
        for end in (start, stop - 1):
            node = end + self._leaves
            while node > 1:
                node //= 2
                self._best[node] = max(self._best[node], value)

    def _lift_node(self, node: int, value: int) -> None:
        self._all[node] = max(self._all[node], value)
        self._best[node] = max(self._best[node], value)


def fill_gaps(
    start: NDArray[np.int64], stop: NDArray[np.int64], size: NDArray[np.int64], offset: NDArray[np.int64]
) -> None:
    """Place each block in the lowest gap between those before it that live at some time with it.

    The time grows with the square of their number.

    Args:
        start: int64[n], when each block begins to live.
        stop: int64[n], when it no longer lives; above `start`.
        size: int64[n], above 0.
        offset: int64[n]; receives the offsets.
    """
    count = len(size)
    placed = np.zeros((4, count), np.int64)  # start, stop, offset and end of those placed, by offset
    for block in range(count):
        low = 0
        at = 0
        while at < block:
            if placed[0, at] < stop[block] and placed[1, at] > start[block]:
                if placed[2, at] >= low + size[block]:
                    break
                low = max(low, placed[3, at])
            at += 1
        offset[block] = low
        at = block
        while at > 0 and placed[2, at - 1] > low:
            for row in range(4):
                placed[row, at] = placed[row, at - 1]
            at -= 1
        placed[0, at], placed[1, at] = start[block], stop[block]
        placed[2, at], placed[3, at] = low, low + size[block]
        if block % 1024 == 0:
            native.check_signals()


def stack(
    skyline: Skyline,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    size: NDArray[np.int64],
    offset: NDArray[np.int64],
) -> None:
    """Place each block above all of the skyline that live at some time with it, and add it; as `fill_gaps` else."""
    for block in range(len(size)):
        low = skyline.top(start[block], stop[block])
        skyline.lift(start[block], stop[block], low + size[block])
        offset[block] = low
        if block % 65536 == 0:
            native.check_signals()


def first_overlap(
    skyline: Skyline,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    offset: NDArray[np.int64],
    end: NDArray[np.int64],
) -> int:
    """The first block that shares bytes at some time with one before it; -1: none does.

    Args:
        skyline: a new one; receives the blocks.
        start: int64[n], when each block begins to live.
        stop: int64[n], when it no longer lives; above `start`.
        offset: int64[n], ascending.
        end: int64[n], above `offset`.
    """
    for block in range(len(start)):
        if skyline.top(start[block], stop[block]) > offset[block]:
            return block
        skyline.lift(start[block], stop[block], end[block])
    return -1
