"""Tiles: what another allocator does with its memory, one operation after the other, as a heap would have done it.

::

    seen          ..aaaa..bbbbbbcc......dd....      . never in use, nor granted
    regions         |--0-| |--1---|     |2|

Where nobody says what the allocator was granted, a region is a run of addresses that were in use at some time; it
grows at its end, and a wholly free one that another grows up to is joined to it (RELEASE, EXTEND). Nothing unknown
is ever drawn as free. Where two runs with chunks in use have met, memory that lies across both is two chunks.
"""

from bfcviz.events.log import EventLog
from bfcviz.live.books import Books
from bfcviz.live.doubts import Doubts


class Tiles:
    """Keeps books by what was seen, as far as that can be. For one thread at a time."""

    def __init__(self, log: EventLog) -> None:
        self.books = Books(log)
        self.doubts = Doubts()

    def allocate(self, address: int, size: int, requested: int, label: int, stream: int) -> None:
        """Memory came into use."""
        books, stop = self.books, address + size
        if books.is_free(address, stop):  # nearly always
            books.hand_out(address, stop, requested, label, stream, ())
            return
        parts = list(books.parts(address, stop))
        if not all(region is None or books.is_free(low, high) for low, high, region in parts):
            self.doubts.overlaps += 1
            return
        if sum(region is None for *_, region in parts) > books.slots_left:
            self.doubts.no_slot += 1
            return
        self._cover(address, stop)
        parts = list(books.parts(address, stop))
        self.doubts.in_pieces += len(parts) > 1
        for number, (low, high, _) in enumerate(parts):
            rest = None if number else tuple(start for start, *_ in parts[1:])
            here = min(requested, high - low)
            requested -= here
            books.hand_out(low, high, here, label, stream, rest)

    def free(self, address: int) -> None:
        """It came back."""
        chunk = self.books.used.get(address)
        if chunk is None or chunk.rest is None:
            self.doubts.unknown_frees += 1
            return
        for start in (address, *chunk.rest):
            self.books.take_back(start)

    def grant(self, address: int, size: int, *, join: bool) -> None:
        """The allocator got a region; what was there before it must have gone."""
        books = self.books
        there = [books.region_at(low) for low, _, region in books.parts(address, address + size) if region]
        if not all(books.is_wholly_free(start) for start in there):
            self.doubts.overlapping_grants += 1
            return
        for start in there:
            self.doubts.unseen_releases += books.regions[start].granted
            books.remove(start)
        before = books.region_ending_at(address) if join else None
        if before is not None and books.regions[before].granted:
            books.grow(before, size)
        elif books.slots_left:
            books.extend(address, size, granted=True)
        else:
            self.doubts.no_slot += 1

    def release(self, address: int) -> None:
        """A grant went back."""
        region = self.books.regions.get(address)
        if region is None or not region.granted or not self.books.is_wholly_free(address):
            self.doubts.unknown_releases += 1
        else:
            self.books.remove(address)

    def _cover(self, start: int, stop: int) -> None:
        """Let regions cover [start, stop), where nothing is in use."""
        books = self.books
        current = books.region_ending_at(start)
        for low, high, region in list(books.parts(start, stop)):
            begin = low if region is None else books.region_at(low)
            joins = current is not None and not books.regions[current].granted and books.end(current) == begin
            if region is not None:
                joins = joins and not region.granted and books.is_wholly_free(begin)
            if current is None or not joins:
                current = begin if region is not None else books.extend(low, high - low, granted=False)
                continue
            if region is not None:
                books.remove(begin)
            books.grow(current, high - low if region is None else region.size)
