"""The largest of many numbers that change often: a tree of maxima with eight children a node."""

from typing import Any

from bfcviz.model.state import array_access, row_storage


class MaxTree:
    """One number a place, all 0 at first. Node 0 is the largest; node i is the largest of nodes 8i+1 .. 8i+8.

    A change climbs only while it changes the maximum: for most places not even one level, at most
    log8(places) levels.

    Attributes:
        below: sum of the numbers less than the limit of `watch`; 0 before its first call.
    """

    def __init__(self) -> None:
        self._places = 0
        self._first = 0  # node of place 0
        self._store: Any = row_storage.grown(
            None, row_storage.NUMBER, 1, compiled=bool(array_access.COMPILED)
        )
        self._nodes = array_access.numbers(self._store)
        self._limit = 0
        self.below = 0

    def largest(self) -> int:
        """The largest number, 0 where no number was set."""
        largest: int = self._nodes[0]
        return largest

    def watch(self, limit: int) -> None:
        """Maintain the sum of the numbers less than `limit`."""
        self._limit = limit
        self.below = 0
        for place in range(self._places):
            number = self._nodes[self._first + place]
            if number < limit:
                self.below += number

    def reserve(self, places: int) -> None:
        """Provide at least this many places."""
        while self._places < places:
            self._grow()

    def set(self, place: int, number: int) -> None:
        """Change the number of one place."""
        node = self._first + place
        old = self._nodes[node]
        self._nodes[node] = number
        if old < self._limit:
            self.below -= old
        if number < self._limit:
            self.below += number
        if number >= old:
            while node > 0:
                node = (node - 1) >> 3
                if self._nodes[node] >= number:
                    return
                self._nodes[node] = number
        else:
            while node > 0:
                node = (node - 1) >> 3
                if self._nodes[node] != old:
                    return
                number = self._largest_below(node)
                if number == old:
                    return
                self._nodes[node] = number

    def _largest_below(self, node: int) -> int:
        first = 8 * node + 1
        best: int = self._nodes[first]
        for i in range(first + 1, first + 8):
            best = max(best, self._nodes[i])
        return best

    def _grow(self) -> None:
        before, first, old = self._places, self._first, self._store
        self._places = max(64, 8 * before)
        self._first = (self._places - 1) // 7
        nodes = self._first + self._places
        self._store = row_storage.grown(None, row_storage.NUMBER, nodes, compiled=bool(array_access.COMPILED))
        self._nodes = array_access.numbers(self._store)
        self.below = 0
        if before > 0:
            from_nodes = array_access.numbers(old)
            for place in range(before):
                if from_nodes[first + place] > 0:
                    self.set(place, from_nodes[first + place])
