"""MadeUpAddresses: places for arrays whose real addresses are unknown.

::

    FIRST                                  top
    | array | array | free | array | array |      a place is taken from the smallest free gap that holds it

So the gaps are few, but they say nothing of the device's memory: its allocator places arrays in its own way.
"""

from bisect import bisect_left, insort
from typing import Final

FIRST: Final = 1 << 32


class MadeUpAddresses:
    """Gives out ranges of addresses that do not overlap, from `FIRST` up. Takes O(log n) comparisons for n gaps."""

    def __init__(self) -> None:
        self._top = FIRST
        self._gaps: list[tuple[int, int]] = []  # sorted: size, start
        self._sizes: dict[int, int] = {}  # of each gap, by its start
        self._starts: dict[int, int] = {}  # of each gap, by its end

    def take(self, size: int) -> int:
        """The start of a range of `size` bytes, 1 or more."""
        at = bisect_left(self._gaps, (size, 0))
        if at == len(self._gaps):
            start = self._top
            self._top += size
            return start
        found, start = self._gaps[at]
        self._remove(start)
        if found > size:
            self._add(start + size, found - size)
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free a range that `take` returned for this size."""
        stop = start + size
        if stop in self._sizes:
            stop += self._remove(stop)
        if start in self._starts:
            start = self._starts[start]
            self._remove(start)
        if stop == self._top:
            self._top = start
        else:
            self._add(start, stop - start)

    def _add(self, start: int, size: int) -> None:
        insort(self._gaps, (size, start))
        self._sizes[start] = size
        self._starts[start + size] = start

    def _remove(self, start: int) -> int:
        """Remove a gap; returns its size."""
        size = self._sizes.pop(start)
        del self._starts[start + size]
        del self._gaps[bisect_left(self._gaps, (size, start))]
        return size
