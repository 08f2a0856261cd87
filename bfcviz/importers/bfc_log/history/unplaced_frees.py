"""Find the chunk of each free that a VLOG stream of level 3 records only with its size.

A free of N bytes freed one of the allocations of N bytes in use. Where there are several, later allocations tell which:
memory that is allocated again was freed before. What remains open is decided in favour of the oldest.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from bfcviz.events.ledger.sorted_addresses import SortedAddresses
from bfcviz.importers.bfc_log.history.vlog_stream import Act, VlogOperation


class PlacedFrees(NamedTuple):
    """`guessed`: frees that could be of several chunks; `unknown`: of a size that is not in use."""

    guessed: int
    unknown: int


def place_frees(operations: Sequence[VlogOperation]) -> PlacedFrees:
    """Set the address of every FREE that has none.

    Args:
        operations: of one heap, in order.
    """
    if all(operation.address or operation.act is not Act.FREE for operation in operations):
        return PlacedFrees(0, 0)
    finder = _Finder()
    for number, operation in enumerate(operations):
        if operation.act is Act.ALLOCATE:
            finder.allocate(number, operation)
        elif operation.act is Act.FREE:
            finder.free(number, operation)
    return finder.finish()


class _Finder:
    def __init__(self) -> None:
        self._live: dict[int, tuple[int, VlogOperation]] = {}  # by address: number and allocation
        self._starts = SortedAddresses()
        self._waiting: defaultdict[int, list[tuple[int, VlogOperation]]] = defaultdict(list)  # frees, by size
        self._guessed = 0
        self._unknown = 0

    def allocate(self, number: int, operation: VlogOperation) -> None:
        """Chunks in use where this allocation lies were freed before."""
        start, stop = operation.address, operation.address + operation.requested
        before = self._starts.at_or_before(start)
        there = []
        if before >= 0 and before + self._live[before][1].requested > start:
            there.append(before)
        for address in self._starts.at_or_after(start):
            if address >= stop:
                break
            if address != before or not there:
                there.append(address)
        for address in there:
            self._resolve(address)
        self._add(number, operation)

    def free(self, number: int, operation: VlogOperation) -> None:
        if operation.address:
            self._remove(operation.address)
        else:
            insort(self._waiting[operation.requested], (number, operation), key=lambda each: each[0])

    def finish(self) -> PlacedFrees:
        """Place the frees that no later allocation explains."""
        live: defaultdict[int, deque[tuple[int, VlogOperation]]] = defaultdict(deque)
        for number, allocation in sorted(self._live.values(), key=lambda each: each[0]):
            live[allocation.requested].append((number, allocation))
        for size, frees in self._waiting.items():
            candidates = live[size]
            for number, free in frees:
                if candidates and candidates[0][0] < number:
                    self._guessed += len(candidates) > 1
                    free.address = candidates.popleft()[1].address
                else:
                    self._unknown += 1
        return PlacedFrees(self._guessed, self._unknown)

    def _add(self, number: int, operation: VlogOperation) -> None:
        if operation.address in self._live:  # no free explains it
            self._remove(operation.address)
        self._live[operation.address] = number, operation
        self._starts.add(operation.address)

    def _remove(self, address: int) -> None:
        if address in self._live:
            del self._live[address]
            self._starts.remove(address)

    def _resolve(self, address: int) -> None:
        """Give the chunk at `address` the first waiting free of its size that came after it."""
        number, allocation = self._live[address]
        frees = self._waiting[allocation.requested]
        at = bisect_left(frees, number, key=lambda each: each[0])
        if at < len(frees):
            self._guessed += len(frees) - at > 1  # which of the frees
            frees.pop(at)[1].address = address
        self._remove(address)
