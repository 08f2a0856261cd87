"""A state machine that reports anything to a ledger; after every step, plain cells and the model must agree with it."""

import copy
from dataclasses import asdict
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bfcviz.events.ledger import Ledger
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind
from bfcviz.model.model import model_chunks, model_regions
from bfcviz.model.pool_state import PoolState

UNIT = 256
cells = st.integers(0, 40)
counts = st.integers(1, 12)


class LedgerMachine(RuleBasedStateMachine):
    @initialize(base=st.sampled_from([0, 0x7000_0000, (1 << 63) - 100 * UNIT]))
    def begin(self, base):
        self.base = base
        self.log = EventLog(1 << 14)
        self.ledger = Ledger(self.log)
        self.reader = Reader(self.log)
        self.table = PoolState(0, 1)
        self.events = []
        self.owner = {}  # cell in use -> first cell, label and thread of its allocation
        self.spans = {}  # first cell -> cells and bytes asked for
        self.known = set()  # cells that were granted, covered or in use
        self.ooms = 0

    def report(self, thread=1):
        """Begin a report by a thread; returns what was counted before it."""
        self.ledger.thread = thread
        return copy.copy(self.ledger.inconsistencies)

    def changed(self, before):
        """What was counted since, by name."""
        after = asdict(self.ledger.inconsistencies)
        return {name: after[name] - count for name, count in asdict(before).items() if after[name] != count}

    def at(self, cell):
        return self.base + cell * UNIT

    def granted(self):
        """The regions that only grants and releases may change."""
        return {at: region for at, region in self.ledger.regions.items() if region.granted}

    # -- rules -----------------------------------------------------------------------------------------------

    @rule(
        first=cells,
        count=counts,
        less=st.integers(0, UNIT - 1),
        label=st.integers(0, 3),
        thread=st.integers(1, 3),
    )
    def allocate(self, first, count, less, label, thread):
        before, head = self.report(thread), self.log.head
        asked, granted = count * UNIT - less, self.granted()
        self.ledger.allocate(self.at(first), count * UNIT, asked, label, stream=thread)
        assert self.granted() == granted
        span = range(first, first + count)
        if any(cell in self.owner for cell in span):
            assert self.changed(before) == {"overlaps": 1}
            assert self.log.head == head
            return
        assert self.changed(before) in ({}, {"in_pieces": 1})
        self.owner.update((cell, (first, label, thread)) for cell in span)
        self.spans[first] = span, asked
        self.known.update(span)

    @precondition(lambda self: self.spans)
    @rule(place=st.integers(0, 1 << 16), thread=st.integers(1, 3))
    def free_one_in_use(self, place, thread):
        self.free(sorted(self.spans)[place % len(self.spans)], thread)

    @rule(first=cells, thread=st.integers(1, 3))
    def free(self, first, thread):
        before, head = self.report(thread), self.log.head
        self.ledger.free(self.at(first))
        if first not in self.spans:
            assert (self.changed(before), self.log.head) == ({"unknown_frees": 1}, head)
            return
        assert self.changed(before) == {}
        span, _ = self.spans.pop(first)
        for cell in span:
            del self.owner[cell]

    @rule(first=cells, count=st.integers(1, 24), join=st.booleans())
    def grant(self, first, count, join):
        before, head = self.report(), self.log.head
        regions = dict(self.ledger.regions)
        self.ledger.grant(self.at(first), count * UNIT, join=join)
        start, stop = self.at(first), self.at(first + count)
        there = [at for at, region in regions.items() if at < stop and start < at + region.size]
        cells_there = {cell for at in there for cell in self.cells_of(at, regions[at].size)}
        if cells_there & self.owner.keys():
            assert (self.changed(before), self.log.head) == ({"overlapping_grants": 1}, head)
            return
        granted = sum(regions[at].granted for at in there)
        assert self.changed(before) == ({"unseen_releases": granted} if granted else {})
        self.known -= cells_there
        self.known.update(range(first, first + count))

    @rule(first=cells)
    def release(self, first):
        before, head = self.report(), self.log.head
        region = self.ledger.regions.get(self.at(first))
        self.ledger.release(self.at(first))
        span = set(self.cells_of(self.at(first), region.size)) if region is not None else set()
        if region is None or not region.granted or span & self.owner.keys():
            assert (self.changed(before), self.log.head) == ({"unknown_releases": 1}, head)
        else:
            assert self.changed(before) == {}
            self.known -= span

    @rule(first=cells, count=counts)
    def cover(self, first, count):
        before, granted = self.report(), self.granted()
        self.ledger.cover(self.at(first), count * UNIT)
        assert (self.changed(before), self.granted()) == ({}, granted)
        self.known.update(range(first, first + count))

    @rule(requested=st.integers(1, 1 << 62))
    def fail(self, requested):
        self.report()
        self.ledger.oom(requested)
        self.ooms += 1

    def cells_of(self, start, size):
        return range((start - self.base) // UNIT, (start - self.base + size) // UNIT)

    # -- invariants ------------------------------------------------------------------------------------------

    @invariant()
    def chunks_tile_the_regions(self):
        if not hasattr(self, "ledger"):
            return
        ledger = self.ledger
        chunks = sorted([*ledger.free_chunks.items(), *ledger.in_use.items()])
        assert len({chunk.handle for _, chunk in chunks}) == len(chunks)
        assert len({region.slot for region in ledger.regions.values()}) == len(ledger.regions)
        for start, region in ledger.regions.items():
            inside = [(at, chunk) for at, chunk in chunks if chunk.slot == region.slot]
            ends = [at + chunk.size for at, chunk in inside]
            assert [at for at, _ in inside] == [start, *ends[:-1]]
            assert ends[-1] == start + region.size
            free = [at in ledger.free_chunks for at, _ in inside]
            assert not any(both == (True, True) for both in pairwise(free))
        assert sum(region.size for region in ledger.regions.values()) == ledger.pool_bytes
        assert {chunk.slot for _, chunk in chunks} == {region.slot for region in ledger.regions.values()}

    @invariant()
    def memory_is_what_was_reported(self):
        if not hasattr(self, "ledger"):
            return
        ledger = self.ledger
        seen = {}
        for address, chunk in ledger.in_use.items():
            seen |= dict.fromkeys(self.cells_of(address, chunk.size), (chunk.label, chunk.thread))
        assert seen == {cell: (label, thread) for cell, (_, label, thread) in self.owner.items()}
        assert ledger.bytes_in_use == len(self.owner) * UNIT
        assert ledger.requested_bytes_in_use == sum(asked for _, asked in self.spans.values())
        drawn = {cell for at, region in ledger.regions.items() for cell in self.cells_of(at, region.size)}
        assert drawn == self.known

    @invariant()
    def events_lead_there_and_back(self):
        if not hasattr(self, "ledger"):
            return
        new = self.reader.read()
        self.events.append(new)
        before = state_of(self.table)
        self.table.apply(new)
        after = state_of(self.table)
        assert [row[:2] for row in after["chunks"]] == sorted(
            (at, chunk.size)
            for table in (self.ledger.free_chunks, self.ledger.in_use)
            for at, chunk in table.items()
        )
        assert after["totals"] == totals_of(self.ledger)
        assert self.table.ooms == self.ooms
        self.table.undo(new)
        assert state_of(self.table)["chunks"] == before["chunks"]
        assert state_of(self.table)["regions"] == before["regions"]
        self.table.apply(new)
        assert state_of(self.table) == after

    def teardown(self):
        if not hasattr(self, "ledger"):
            return
        events = np.concatenate([*self.events, self.reader.read()])
        assert len(events) == self.log.head
        assert np.count_nonzero(events["kind"] == Kind.ALLOCATE) == self.ledger.num_allocs
        self.table.undo(events)
        assert self.table.step == self.table.pool_bytes == self.table.bytes_in_use == 0
        assert not len(self.table.chunk_rows())


def state_of(table):
    return {
        "chunks": model_chunks(table, np.empty(0, np.intp)).tolist(),
        "regions": model_regions(table).tolist(),
        "totals": totals_of(table),
    }


def totals_of(table):
    names = (
        "num_allocs", "bytes_in_use", "requested_bytes_in_use", "peak_bytes_in_use", "largest_alloc_size",
        "pool_bytes", "peak_pool_bytes", "free_bytes", "largest_free_chunk",
    )  # fmt: skip
    return {name: getattr(table, name) for name in names}
