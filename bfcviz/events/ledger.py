"""Ledger: tracks chunks and regions of an observed heap, and writes an event for each change.

Another allocator made the decisions. Its allocations and frees are known, by address and size, and perhaps the regions
that it was granted. The ledger derives the regions, splits and merges of a heap that did the same.

::

    reported      ..aaaa..bbbbbbcc......dd....      . never in use, nor granted
    regions         |--0-| |--1---|     |2|

After every report:

- Chunks tile each region exactly, and no two free neighbours share a region.
- Every event fits the state after the events before it, and can be undone from its own fields.
- A report is written completely, or it is impossible: then it is ignored and counted in `inconsistencies`. Inferred
  events are counted there, too.
- A region holds only memory that was granted, covered or in use: unknown memory is never drawn as free.

Without reported grants, a region is a run of addresses that were in use at some time. It grows at its end, and absorbs
a wholly free region that it reaches (RELEASE, EXTEND). An allocation across several regions becomes one chunk in each.

A report takes O(log n) comparisons for n chunks; `oom` and `largest_free_chunk` look at all free chunks.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from bfcviz import native
from bfcviz.events import event_record
from bfcviz.events.log import EventLog

# ------------------------------------------------------------------------------
# Inconsistencies: counts of impossible reports about another allocator, of inferred events.


@dataclass
class Inconsistencies:
    """Counts of reports to a ledger that its events do not show as reported.

    Attributes:
        unknown_frees: frees of addresses where no known allocation begins; ignored.
        overlaps: allocations over memory in use; ignored.
        overlapping_grants: grants over memory in use; ignored.
        unknown_releases: releases of an address where no grant begins, or of a grant in use; ignored.
        too_many_regions: reports that need more regions than a trace can number; ignored.
        too_high: allocations and grants that do not end below 2^63; ignored.
        unseen_releases: releases that were not reported, but inferred from a grant over a wholly free older one.
        unseen_frees: frees that were not reported, but inferred: the memory went back to the sub-allocator.
        in_pieces: allocations written as several chunks, because they span several regions.
    """

    unknown_frees: int = 0
    overlaps: int = 0
    overlapping_grants: int = 0
    unknown_releases: int = 0
    too_many_regions: int = 0
    too_high: int = 0
    unseen_releases: int = 0
    unseen_frees: int = 0
    in_pieces: int = 0

    @property
    def left_out(self) -> int:
        """Number of reports that a ledger ignored."""
        return (
            self.unknown_frees
            + self.overlaps
            + self.overlapping_grants
            + self.unknown_releases
            + self.too_many_regions
            + self.too_high
        )

    def words(self) -> str:
        """A ledger's inconsistencies as text: all counts above 0; empty if all are 0."""
        counts = [(getattr(self, each.name), _WORDS[each.name]) for each in fields(self)]
        return "; ".join(f"{count:,} {words}" for count, words in counts if count)


_WORDS = {
    "unknown_frees": "frees of memory whose allocation was not seen (left out)",
    "overlaps": "allocations over memory whose free was not seen (left out)",
    "overlapping_grants": "grants over memory in use (left out)",
    "unknown_releases": "releases of memory that was not granted or is in use (left out)",
    "too_many_regions": "requests that need more regions than a trace can number (left out)",
    "too_high": "allocations and grants at impossible addresses (left out)",
    "unseen_releases": "releases concluded from later grants of the same memory",
    "unseen_frees": "frees concluded from the release of the memory",
    "in_pieces": "allocations drawn as several chunks, because they lie across regions",
}


# ------------------------------------------------------------------------------
# SortedAddresses: a sorted set of addresses, with search for the nearest address below or above.


class SortedAddresses:
    """A ledger's distinct addresses in short sorted lists: an insert into a long one would move its whole tail.

    Args:
        longest: maximum length of a list.
    """

    def __init__(self, longest: int = 1024) -> None:
        self._longest = longest
        self._lists: list[list[int]] = [[]]
        self._lowest = [0]  # lower bound of each list; all addresses of the list before are below it

    def add(self, address: int) -> None:
        """Add an address that is not in the ledger's sorted set."""
        at = self._list_of(address)
        addresses = self._lists[at]
        addresses.insert(_up_to(addresses, address), address)
        if len(addresses) > self._longest:
            half = len(addresses) // 2
            self._lists.insert(at + 1, addresses[half:])
            self._lowest.insert(at + 1, addresses[half])
            del addresses[half:]

    def remove(self, address: int) -> None:
        """Remove an address that is in the ledger's sorted set."""
        at = self._list_of(address)
        addresses = self._lists[at]
        del addresses[_up_to(addresses, address) - 1]
        if not addresses and at:
            del self._lists[at], self._lowest[at]

    def at_or_before(self, address: int) -> int:
        """The highest address in the ledger's set that is not above `address`; -1 if there is none."""
        if address < 0:
            return -1
        at = self._list_of(address)
        while at >= 0:
            addresses = self._lists[at]
            place = _up_to(addresses, address)
            if place:
                return addresses[place - 1]
            at -= 1
        return -1

    def at_or_after(self, address: int) -> Iterator[int]:
        """The ledger's addresses from `address` (0 or more) up, ascending; the set must not change meanwhile."""
        first = self._list_of(address)
        place = _up_to(self._lists[first], address - 1)
        for at in range(first, len(self._lists)):
            addresses = self._lists[at]
            for index in range(place, len(addresses)):
                yield addresses[index]
            place = 0

    def _list_of(self, address: int) -> int:
        return _up_to(self._lowest, address) - 1 if len(self._lowest) > 1 else 0


def _up_to(addresses: list[int], address: int) -> int:
    """How many of a ledger's sorted addresses are not above `address`: `bisect_right`, faster when compiled."""
    low, high = 0, len(addresses)
    while low < high:
        middle = (low + high) >> 1
        here = addresses[middle]
        if here <= address:
            low = middle + 1
        else:
            high = middle
    return low


# ------------------------------------------------------------------------------
# Ledger: chunks, regions and numbers of the observed heap.


if TYPE_CHECKING:
    from bfcviz.events import c_reports  # type: ignore[attr-defined]  # C: c_reports.pxd


class ObservedChunk:
    """A chunk in a ledger, free or in use; it changes from one to the other with the same object.

    Attributes:
        address: its start; -1: it was absorbed, or its region is gone.
        size: in bytes.
        slot: of its region.
        before: address of the chunk before it in its region; -1: it is the first.
        is_free: whether it is free.
        requested, label, thread, stream: of the allocation.
        born: the seq of its ALLOCATE.
        rest: addresses of the other chunks of the same allocation; None: this is one of those.
    """

    address: int
    size: int
    handle: int
    slot: int
    before: int
    is_free: bool
    requested: int
    label: int
    thread: int
    stream: int
    born: int
    rest: tuple[int, ...] | None


def _new_chunk(address: int, size: int, handle: int, slot: int, before: int) -> ObservedChunk:
    """A free chunk in a ledger. Compiled, a call of the class would pack the numbers into a tuple."""
    chunk = ObservedChunk.__new__(ObservedChunk)
    chunk.address = address
    chunk.size = size
    chunk.handle = handle
    chunk.slot = slot
    chunk.before = before
    chunk.is_free = True
    chunk.requested = chunk.label = chunk.thread = chunk.stream = chunk.born = 0
    chunk.rest = None
    return chunk


class ObservedRegion(NamedTuple):
    """A region in a ledger: `size` in bytes; `granted`: reported, not a run of covered or used addresses."""

    size: int
    slot: int
    granted: bool


class Ledger:
    """Takes reports and writes events; not thread-safe. The caller checks that addresses and sizes are below 2^63.

    ::

        ledger = Ledger(log)
        ledger.thread = log.begin_operation(time_ns)  # before each report
        ledger.grant(0x7000, 1 << 20)  # if known
        ledger.allocate(0x7000, 512, requested=400)
        ledger.free(0x7000)

    Args:
        log: receives the events.
        pool: the number of this heap among those that write to the log.

    Attributes:
        thread: number of the current thread.
        busy: number of the thread that writes a report, or reads: other reports must wait; 0: none does.
        waiting: the reports that wait, each with its time; an `ObservedHeap` writes them.
        inconsistencies: counts of ignored reports and of inferred events.
        chunks, regions: by address.
        num_allocs, bytes_in_use, ...: totals, as in `Stats`.
    """

    def __init__(self, log: EventLog, pool: int = 0) -> None:
        self.thread = 0
        self.busy = 0
        self.waiting: deque[tuple[int, Callable[[], object]]] = deque()
        self.inconsistencies = Inconsistencies()
        self.chunks: dict[int, ObservedChunk] = {}
        self.regions: dict[int, ObservedRegion] = {}
        self.num_allocs = self.largest_alloc_size = 0
        self.bytes_in_use = self.requested_bytes_in_use = self.peak_bytes_in_use = 0
        self.pool_bytes = self.peak_pool_bytes = 0
        self._log = log
        self._pool = pool
        self._recent: list[ObservedChunk] = [_new_chunk(-1, 0, 0, 0, -1)] * 256  # see `_chunk_at`
        self._free_starts: SortedAddresses | None = None  # of the free chunks; None: never needed so far
        self._region_starts = SortedAddresses()  # the keys of `regions`
        self._handles = SpareNumbers()
        self._slots = SpareNumbers()
        self._ends: list[ObservedChunk | None] = []  # by slot: the last chunk of the region

    @property
    def in_use(self) -> dict[int, ObservedChunk]:
        """The chunks of a ledger in use now, by address; this looks at all chunks."""
        return {at: chunk for at, chunk in self.chunks.items() if not chunk.is_free}

    @property
    def free_chunks(self) -> dict[int, ObservedChunk]:
        """The free chunks of a ledger now, by address; this looks at all chunks."""
        return {at: chunk for at, chunk in self.chunks.items() if chunk.is_free}

    def is_in_use(self, address: int) -> bool:
        """Whether a chunk in use begins at an address of a ledger."""
        chunk = self.chunks.get(address)
        return chunk is not None and not chunk.is_free

    def free_size(self, address: int) -> int:
        """Bytes of the free chunk of a ledger that begins at an address; 0: none does."""
        chunk = self.chunks.get(address)
        return chunk.size if chunk is not None and chunk.is_free else 0

    @property
    def free_bytes(self) -> int:
        """Bytes in free chunks of a ledger."""
        return self.pool_bytes - self.bytes_in_use

    @property
    def largest_free_chunk(self) -> int:
        """Bytes of the largest free chunk of a ledger, 0 if there is none."""
        return self._largest_free()

    # -- reports --------------------------------------------------------------------------------------------------

    def allocate(self, address: int, size: int, requested: int, label: int = 0, stream: int = 0) -> None:
        """Report to a ledger an allocation of [address, address + size)."""
        stop = address + size
        if stop >= native.HALF_SPACE:
            self.inconsistencies.too_high += 1
            return
        chunk = self._chunk_at(address)
        if chunk is not None and chunk.is_free and chunk.size >= size:  # the usual case
            self._occupy(chunk, address, stop, native.bin_of(chunk.size), requested, label, stream, ())
            return
        if self._free_chunk_around(address, stop) >= 0:
            self._occupy_within(address, stop, requested, label, stream, ())
            return
        for low, high, region in self._pieces(address, stop):  # stops at the first: there may be very many
            if region >= 0 and self._free_chunk_around(low, high) < 0:
                self.inconsistencies.overlaps += 1
                return
        if self._cover(address, stop, True):
            pieces = list(self._pieces(address, stop))
            self.inconsistencies.in_pieces += len(pieces) > 1
            rest = tuple([low for low, _, _ in pieces[1:]])
            for low, high, _ in pieces:
                here = min(requested, high - low)
                requested -= here
                self._occupy_within(low, high, here, label, stream, rest if low == address else None)

    def free(self, address: int) -> None:
        """Report to a ledger a free of the allocation that begins at `address`."""
        chunk = self._chunk_at(address)
        if chunk is None or chunk.is_free or chunk.rest is None:
            self.inconsistencies.unknown_frees += 1
            return
        rest = chunk.rest
        self._vacate(address, chunk)
        for start in rest:
            self._vacate(start, self.chunks[start])

    def grant(self, address: int, size: int, *, join: bool = False) -> None:
        """Report a new region to a ledger. With `join` it extends the grant that ends there: released together."""
        if address + size >= native.HALF_SPACE:
            self.inconsistencies.too_high += 1
            return
        there = [region for _, _, region in self._pieces(address, address + size) if region >= 0]
        for start in there:
            if not self._is_wholly_free(start):
                self.inconsistencies.overlapping_grants += 1
                return
        for start in there:
            self.inconsistencies.unseen_releases += self.regions[start].granted
            self._remove(start)
        before = self._region_ending_at(address) if join else -1
        if before >= 0 and self.regions[before].granted:
            self._grow(before, size, size)
        elif len(self.regions) < native.MAX_REGIONS:
            self._extend(address, size, size, True)
        else:
            self.inconsistencies.too_many_regions += 1

    def release(self, address: int) -> None:
        """Report to a ledger the release of the grant that begins at `address`."""
        region = self.regions.get(address)
        if region is None or not region.granted or not self._is_wholly_free(address):
            self.inconsistencies.unknown_releases += 1
        else:
            self._remove(address)

    def lose(self, address: int) -> None:
        """Report to a ledger that a grant is gone with all its chunks: their frees were not reported.

        Of an allocation that reaches into it, all pieces are free.
        """
        region = self.regions.get(address)
        if region is None or not region.granted:
            self.inconsistencies.unknown_releases += 1
            return
        heads: list[int] = []
        pieces: list[int] = []
        at, stop = address, address + region.size
        while at < stop:
            chunk = self.chunks[at]
            if not chunk.is_free:
                (pieces if chunk.rest is None else heads).append(at)
            at += chunk.size
        if pieces:  # of allocations that began before this grant
            heads += [
                start for start, chunk in self.chunks.items() if not set(pieces).isdisjoint(chunk.rest or ())
            ]
        self.inconsistencies.unseen_frees += len(heads)
        for head in heads:
            self.free(head)
        self.release(address)

    def reports(self) -> object:
        """A capsule of C functions for reports from another binary (reports.h), valid while this lives.

        None uncompiled.
        """
        return c_reports.pack(self) if native.is_compiled() else None

    def cover(self, address: int, size: int) -> None:
        """Add memory to a ledger's regions now, because a later report will use it."""
        if address + size < native.HALF_SPACE:
            self._cover(address, address + size, False)
        else:
            self.inconsistencies.too_high += 1

    def oom(self, requested: int, label: int = 0, stream: int = 0) -> None:
        """Report a failed request to a ledger."""
        self._log.put(
            event_record.OOM, 0, 0, self.pool_bytes - self.bytes_in_use, self._largest_free(), requested, 0, label,
            self.thread, stream, native.bin_of(requested), 0, self._pool, self.thread,
        )  # fmt: skip

    # -- regions --------------------------------------------------------------------------------------------------

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """[start, stop), cut at a ledger's region boundaries: low, high, region start; -1: in no region."""
        first = self._region_starts.at_or_before(start)
        for region in self._region_starts.at_or_after(max(first, 0)):
            if max(start, region) >= stop:
                break
            if start < region:
                yield start, region, -1
                start = region
            high = min(region + self.regions[region].size, stop)
            if start < high:
                yield start, high, region
                start = high
        if start < stop:
            yield start, stop, -1

    def _region_ending_at(self, address: int) -> int:
        start = self._region_starts.at_or_before(address - 1)
        return start if start >= 0 and start + self.regions[start].size == address else -1

    def _is_wholly_free(self, region: int) -> bool:
        chunk = self.chunks[region]
        return chunk.is_free and chunk.size == self.regions[region].size

    def _cover(self, start: int, stop: int, asked: bool) -> bool:
        """Add [start, stop) to regions; False if there are too many. `asked`: for a request, which EXTEND records."""
        pieces = list(self._pieces(start, stop))
        new = 0
        for _, _, region in pieces:
            new += region < 0
        if new > native.MAX_REGIONS - len(self.regions):
            self.inconsistencies.too_many_regions += 1
            return False
        last = self._region_ending_at(start)
        for low, high, region in pieces:
            begin, size = (low, high - low) if region < 0 else (region, self.regions[region].size)
            if self._joins(last, begin):
                if region >= 0:
                    self._remove(region)
                self._grow(last, size, size if asked else 0)
                continue
            if region < 0:
                self._extend(low, size, size if asked else 0, False)
            last = begin
        return True

    def _joins(self, last: int, begin: int) -> bool:
        """Whether the region at `last` may grow over `begin`, where no region begins, or a wholly free one."""
        region, there = self.regions.get(last), self.regions.get(begin)
        if region is None or region.granted or last + region.size != begin:
            return False
        return there is None or (not there.granted and self._is_wholly_free(begin))

    def _extend(self, address: int, size: int, requested: int, granted: bool) -> None:
        slot = self._slots.take()
        self.regions[address] = ObservedRegion(size, slot, granted)
        self._region_starts.add(address)
        self._add(address, size, slot, requested, 0)

    def _grow(self, start: int, size: int, requested: int) -> None:
        region = self.regions[start]
        self.regions[start] = region._replace(size=region.size + size)
        self._add(start + region.size, size, region.slot, requested, event_record.GREW)
        self._merge_with_previous(start + region.size, self.chunks[start + region.size])

    def _add(self, address: int, size: int, slot: int, requested: int, flags: int) -> None:
        while len(self._ends) <= slot:
            self._ends.append(None)
        end = self._ends[slot]
        chunk = _new_chunk(
            address, size, self._handles.take(), slot, -1 if end is None else address - end.size
        )
        self._ends[slot] = chunk
        self.chunks[address] = chunk
        self._note_free(address)
        self.pool_bytes += size
        self.peak_pool_bytes = max(self.peak_pool_bytes, self.pool_bytes)
        self._log.put(
            event_record.EXTEND, chunk.handle, slot, address, size, requested, 0, 0, self.thread, 0,
            native.bin_of(size), flags, self._pool, self.thread,
        )  # fmt: skip

    def _remove(self, start: int) -> None:
        """Remove a wholly free region from a ledger."""
        self._region_starts.remove(start)
        region, chunk = self.regions.pop(start), self.chunks.pop(start)
        chunk.address = -1
        self._note_used(start)
        self._log.put(
            event_record.RELEASE, chunk.handle, chunk.slot, start, chunk.size, 0, 0, 0, self.thread, 0,
            native.bin_of(chunk.size), 0, self._pool, self.thread,
        )  # fmt: skip
        self.pool_bytes -= chunk.size
        self._ends[region.slot] = None
        self._slots.give_back(region.slot)
        self._handles.give_back(chunk.handle)

    # -- chunks ---------------------------------------------------------------------------------------------------

    def _chunk_at(self, address: int) -> ObservedChunk | None:
        """The chunk of a ledger at an address; frameworks use the same ones again and again."""
        place = (address >> 9) & 255  # allocators of GPU memory round to 512 bytes
        recent = self._recent[place]
        if recent.address == address:
            return recent
        chunk = self.chunks.get(address)
        if chunk is not None:
            self._recent[place] = chunk
        return chunk

    def _largest_free(self) -> int:
        largest = 0
        for chunk in self.chunks.values():
            if chunk.is_free and chunk.size > largest:
                largest = chunk.size
        return largest

    def _free_chunk_around(self, low: int, high: int) -> int:
        """Start of the free chunk that holds [low, high); -1 if there is none."""
        chunk = self.chunks.get(low)
        start = low
        if chunk is None:
            start = self._free_start_before(low)
            if start < 0:
                return -1
            chunk = self.chunks[start]
        return start if chunk.is_free and start + chunk.size >= high else -1

    def _free_start_before(self, address: int) -> int:
        """The highest start of a free chunk below an address where no chunk starts; -1: it lies in no region.

        Most allocators cut chunks at their start, so the sorted starts are only kept from the first time on that they
        are needed.
        """
        region = self._region_starts.at_or_before(address)
        if region < 0 or region + self.regions[region].size <= address:
            return -1
        starts = self._free_starts
        if starts is None:
            self._free_starts = starts = SortedAddresses()
            for start in sorted(self.free_chunks):
                starts.add(start)
        return starts.at_or_before(address)

    def _occupy_within(
        self, low: int, high: int, requested: int, label: int, stream: int, rest: tuple[int, ...] | None
    ) -> None:
        """Allocate [low, high) from the ledger's free chunk that holds it."""
        start = self._free_chunk_around(low, high)
        bin = native.bin_of(self.chunks[start].size)
        if start < low:
            self._split(start, self.chunks[start], low, event_record.PADDING)
        self._occupy(self.chunks[low], low, high, bin, requested, label, stream, rest)

    def _occupy(
        self, chunk: ObservedChunk, low: int, high: int, bin: int, requested: int, label: int, stream: int,
        rest: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        """Allocate [low, high) from the ledger's free chunk at `low`; `bin`: of the chunk that was found."""
        chunk.is_free = False
        self._note_used(low)
        if high - low < chunk.size:
            self._split(low, chunk, high, 0)
        self.num_allocs += 1
        self.bytes_in_use += chunk.size
        self.requested_bytes_in_use += requested
        if self.bytes_in_use > self.peak_bytes_in_use:
            self.peak_bytes_in_use = self.bytes_in_use
        if chunk.size > self.largest_alloc_size:
            self.largest_alloc_size = chunk.size
        chunk.requested = requested
        chunk.label = label
        chunk.thread = self.thread
        chunk.stream = stream
        chunk.rest = rest
        chunk.born = self._log.put(
            event_record.ALLOCATE, chunk.handle, chunk.slot, low, chunk.size, requested,
            self.num_allocs & native.LOW_32, label, self.thread, stream, bin,
            event_record.PIECE if rest is None else 0, self._pool, self.thread,
        )  # fmt: skip

    def _vacate(self, address: int, chunk: ObservedChunk) -> None:
        """Free the ledger's chunk in use at `address` and merge it with its free neighbours."""
        self.bytes_in_use -= chunk.size
        self.requested_bytes_in_use -= chunk.requested
        self._log.put(
            event_record.FREE, chunk.handle, chunk.slot, address, chunk.size, chunk.requested,
            chunk.born & native.LOW_32, chunk.label, chunk.thread, chunk.stream, native.bin_of(chunk.size), 0,
            self._pool, self.thread,
        )  # fmt: skip
        chunk.is_free = True
        self._note_free(address)
        if self._ends[chunk.slot] is not chunk:
            after = self.chunks[address + chunk.size]
            if after.is_free:
                self._merge(chunk, address, after, address + chunk.size)
        self._merge_with_previous(address, chunk)

    def _split(self, start: int, parent: ObservedChunk, at: int, flags: int) -> None:
        """Cut the ledger's chunk at `start` in two; the remainder, from `at` on, is free."""
        size = start + parent.size - at
        parent.size = at - start
        rest = _new_chunk(at, size, self._handles.take(), parent.slot, start)
        self._link(parent, rest, at, at + size)
        self.chunks[at] = rest
        self._note_free(at)
        self._log.put(
            event_record.SPLIT, parent.handle, parent.slot, at, size, 0, rest.handle, 0, self.thread, 0,
            native.bin_of(size), flags, self._pool, self.thread,
        )  # fmt: skip

    def _merge_with_previous(self, address: int, chunk: ObservedChunk) -> None:
        if chunk.before < 0:
            return
        before = self.chunks[chunk.before]
        if before.is_free:
            self._merge(before, chunk.before, chunk, address)

    def _merge(self, kept: ObservedChunk, survivor: int, gone: ObservedChunk, absorbed: int) -> None:
        """Let the ledger's free chunk at `survivor` absorb the free one behind it."""
        del self.chunks[absorbed]
        gone.address = -1
        self._note_used(absorbed)
        kept.size += gone.size
        self._link(gone, kept, survivor, absorbed + gone.size)
        self._handles.give_back(gone.handle)
        self._log.put(
            event_record.MERGE, kept.handle, kept.slot, absorbed, gone.size, 0, gone.handle, 0, self.thread, 0,
            native.bin_of(kept.size), 0, self._pool, self.thread,
        )  # fmt: skip

    def _link(self, old: ObservedChunk, new: ObservedChunk, before: int, address: int) -> None:
        """`new`, at `before`, takes the place of `old`: in front of the chunk at `address`, or as its region's last."""
        if self._ends[new.slot] is old:
            self._ends[new.slot] = new
            return
        after = self.chunks[address]
        after.before = before

    def _note_free(self, start: int) -> None:
        if self._free_starts is not None:
            self._free_starts.add(start)

    def _note_used(self, start: int) -> None:
        """Note that no free chunk of the ledger starts there any more."""
        if self._free_starts is not None:
            self._free_starts.remove(start)


class SpareNumbers:
    """A ledger's numbers of chunks and regions: 0, 1, 2, ...; reuses returned numbers first, the latest first."""

    def __init__(self) -> None:
        self._next = 0
        self._latest = -1  # the last one returned; -1: it is in use again
        self._spare: list[int] = []

    def take(self) -> int:
        """A number of a ledger that is not in use."""
        number = self._latest
        if number >= 0:
            self._latest = -1
            return number
        if self._spare:
            return self._spare.pop()
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        """Return a number of a ledger."""
        if self._latest >= 0:
            self._spare.append(self._latest)
        self._latest = number
