"""A state machine that applies every operation to a heap, and checks the oracle and the model after every step.

`make_machine(steps_a_run)` gives the class; the tests run it compiled, and as plain Python in another process.
"""

import ctypes

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from properties.heap_oracle import Oracle, Source

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import DoubleFree, ForeignPointer, InteriorPointer, InvalidRequest, OutOfMemory
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.model import model_chunks, model_regions, stats_of
from bfcviz.model.pool_state import PoolState

KIB, MIB = 1 << 10, 1 << 20

limits = st.one_of(
    st.integers(1, 5_000),
    st.integers(20_000, 3 * MIB),
    st.integers(8 * MIB, 100 * MIB),
    st.integers(100 * MIB, 4_000 * MIB),
    st.sampled_from(
        [256, 257, 511, 2 * MIB - 1, 2 * MIB + 1, 1 << 32, (1 << 48) + 1, (1 << 62) - 1, 1 << 62]
    ),
)
options = st.fixed_dictionaries(
    {
        "allow_growth": st.sampled_from([True, True, False]),
        "garbage_collection": st.sampled_from([True, True, False]),
        "timestamps": st.sampled_from([False, False, True]),
        "honour_alignment": st.booleans(),
        "exact_growth": st.booleans(),
        "fragmentation_fraction": st.sampled_from([0.0, 0.0, 1e-9, 1e-4, 0.01, 0.3, 1.0]),
    }
)
sources = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["contiguous", "gapped", "descending"]),
        "coalescing": st.booleans(),
        "granule": st.sampled_from([1, 1, 1, 1000, 4096, 3 * MIB]),
        "gap": st.sampled_from([1, 256, 1 << 30]),
        "capacity": st.sampled_from([None, None, None, 5_000, 700_000, 20 * MIB, 300 * MIB]),
    }
)
alignments = st.sampled_from([256, 256, 256, 1, 16, 512, 4096, 64 * KIB])
places = st.integers(0, 1 << 16)


def sizes(limit):
    shares = [max(limit // share, 1) for share in (3, 10, 20, 40, 100)]
    usual = st.one_of(
        st.integers(1, 2_000),
        st.builds(lambda k, d: max(256 * k + d, 1), st.integers(1, 40), st.integers(-1, 1)),
        st.sampled_from(shares).flatmap(lambda share: st.integers(max(share - 300, 1), share + 300)),
    )
    extreme = st.sampled_from([limit, min(limit + 1, 1 << 62), 2 * MIB, 1 << 62])
    return st.one_of(usual, usual, usual, extreme)


class HeapMachine(RuleBasedStateMachine):
    @initialize(limit=limits, options=options, source=sources)
    def begin(self, limit, options, source):
        self.limit = limit
        keywords = {**source, "supports_coalescing": source["coalescing"]}
        del keywords["coalescing"]
        self.source = SimulatedSubAllocator(keywords.pop("mode"), journal=True, **keywords)
        capacity = (1 << 64) if source["capacity"] is None else source["capacity"]
        self.oracle = Oracle(Source(**{**source, "capacity": capacity}), limit, **options)
        self.allocator = BFCAllocator(
            self.source, limit, AllocatorOptions(**options), log=EventLog(1 << 14), name="machine"
        )
        self.reader = Reader(self.allocator.log)
        self.table = PoolState(0, 1)
        self.events = []
        self.marks = 0
        self.states = [self.model_state(self.table)]
        self.at = [0]
        self.c = [
            ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(pointer)
            for pointer, result, arguments in zip(
                self.allocator.c_functions()[1:],
                (ctypes.c_void_p, None),
                ((ctypes.c_size_t, ctypes.c_size_t), (ctypes.c_void_p,)),
                strict=True,
            )
        ]
        self.context = self.allocator.c_functions().context

    # -- rules -----------------------------------------------------------------------------------------------

    @rule(
        data=st.data(), alignment=alignments, label=st.sampled_from([None, "weights", "bias"]), stream=places
    )
    def allocate(self, data, alignment, label, stream):
        size = data.draw(sizes(self.limit))
        freed_before = data.draw(st.integers(0, self.oracle.frees)) if self.oracle.timestamps else 0
        self.expect(size, alignment, freed_before, label=label, stream=stream % 65_536)

    @rule(size=st.integers(1, 3_000), count=st.integers(2, 12))
    def allocate_many(self, size, count):
        for i in range(count):
            self.expect(size + i * 97, 256, 0)

    def expect(self, size, alignment, freed_before, **keywords):
        expected = self.oracle.allocate(size, alignment, freed_before)
        if expected is None:
            with pytest.raises(OutOfMemory) as caught:
                self.allocator.allocate(size, alignment, freed_before=freed_before, **keywords)
            free = [chunk.size for chunk in self.oracle.free_chunks()]
            error = caught.value
            assert (error.requested, error.rounded) == (size, -(-size // 256) * 256)
            assert (error.free_bytes, error.largest_free_chunk) == (sum(free), max(free, default=0))
            assert (error.pool_bytes, error.bytes_limit) == (self.oracle.pool_bytes(), self.limit)
        else:
            address = self.allocator.allocate(size, alignment, freed_before=freed_before, **keywords)
            assert address == expected
            if self.oracle.honour_alignment:
                assert address % alignment == 0 or address % 256 != 0

    @rule(more=st.integers(1, 100_000), alignment=alignments)
    def outgrow(self, more, alignment):
        """Ask for what no chunk has: only a new region, garbage collection or forced merging can help."""
        largest = max((chunk.size for chunk in self.oracle.free_chunks()), default=0)
        self.expect(min(largest + more, 1 << 62), alignment, 0)

    @precondition(lambda self: self.oracle.regions)
    @rule(place=places)
    def empty_a_region(self, place):
        region = self.oracle.regions[place % len(self.oracle.regions)]
        for address in [chunk.address for chunk in region.chunks if chunk.number]:
            self.oracle.free(address)
            self.allocator.free(address)

    def live(self, place):
        addresses = sorted(self.oracle.in_use())
        return addresses[place % len(addresses)]

    @precondition(lambda self: self.oracle.in_use())
    @rule(place=places)
    def free(self, place):
        address = self.live(place)
        chunk = self.oracle.in_use()[address]
        facts = (chunk.requested, chunk.size, chunk.number)
        a = self.allocator
        assert (a.requested_size(address), a.allocated_size(address), a.allocation_id(address)) == facts
        self.oracle.free(address)
        a.free(address)

    @precondition(lambda self: self.oracle.in_use())
    @rule(every=st.integers(1, 3))
    def free_many(self, every):
        for address in sorted(self.oracle.in_use())[::every]:
            self.oracle.free(address)
            self.allocator.free(address)

    @rule(data=st.data(), alignment=st.sampled_from([0, 1, 64, 256, 1024]))
    def allocate_from_c(self, data, alignment):
        size = data.draw(sizes(self.limit))
        expected = self.oracle.allocate(size, alignment or 1, 0)
        assert self.c[0](self.context, alignment, size) == expected

    @precondition(lambda self: self.oracle.in_use())
    @rule(place=places)
    def free_from_c(self, place):
        address = self.live(place)
        self.oracle.free(address)
        self.c[1](self.context, address)

    @rule(data=st.data(), count=st.integers(1, 12))
    def replay(self, data, count):
        ops = data.draw(
            st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=count, max_size=count)
        )
        kinds = [kind % 2 for kind, _ in ops]
        asked = [data.draw(sizes(self.limit)) if kind == 0 else 0 for kind in kinds]
        result = self.allocator.replay(Operations(kinds, [number for _, number in ops], asked))
        live = {}
        for i, (kind, (_, number), size) in enumerate(zip(kinds, ops, asked, strict=True)):
            if kind == 0:
                live[number] = address = self.oracle.allocate(size)
                chunk = self.oracle.in_use().get(address)
            else:
                address = live.pop(number, None)
                chunk = self.oracle.in_use().get(address)
                facts = (chunk.size, chunk.number) if chunk else (0, 0)
                if chunk:
                    self.oracle.free(address)
            if kind == 0:
                facts = (chunk.size, chunk.number) if chunk else (0, 0)
            assert result.address[i] == (address or 0)
            assert (result.allocated_size[i], result.allocation_id[i]) == facts
            assert result.bytes_in_use[i] == self.oracle.bytes_in_use()
            assert result.pool_bytes[i] == self.oracle.pool_bytes()
            free = [c.size for c in self.oracle.free_chunks()]
            assert result.largest_free_chunk[i] == max(free, default=0)

    @rule(place=places, offset=st.integers(1, 5_000))
    def free_what_is_no_chunk(self, place, offset):
        chunks = self.oracle.chunks()
        address = chunks[place % len(chunks)].address + offset if chunks else offset
        inside = [c for c in chunks if c.address <= address < c.address + c.size]
        if inside and inside[0].number and inside[0].address == address:
            return
        kind = ForeignPointer if not inside else InteriorPointer if inside[0].number else DoubleFree
        rejected = self.allocator.rejected_frees
        with pytest.raises(kind) as caught:
            self.allocator.free(address)
        assert caught.value.address == address
        self.c[1](self.context, address)
        assert self.allocator.rejected_frees == rejected + 1

    @rule(size=st.sampled_from([-1, (1 << 62) + 1, 1 << 63, (1 << 64) - 256, (1 << 64) - 1, 1 << 64]))
    def ask_for_what_cannot_be(self, size):
        with pytest.raises(InvalidRequest):
            self.allocator.allocate(size)

    @rule(alignment=st.sampled_from([0, -1, 3, 384, (1 << 64) + 256]))
    def align_to_what_cannot_be(self, alignment):
        with pytest.raises(InvalidRequest):
            self.allocator.allocate(1, alignment)

    @rule()
    def allocate_nothing(self):
        assert self.allocator.allocate(0) == 0
        self.allocator.free(0)
        assert self.c[0](self.context, 256, 0) is None

    @precondition(lambda self: self.oracle.timestamps)
    @rule(behind=st.integers(-2, 10))
    def move_frontier(self, behind):
        count = max(self.oracle.frees - behind, 0)
        self.oracle.set_safe_frontier(count)
        self.allocator.set_safe_frontier(count)

    @rule()
    def clear_stats(self):
        self.oracle.clear_stats()
        self.allocator.clear_stats()

    @rule(value=st.integers(0, (1 << 64) - 1))
    def mark(self, value):
        self.allocator.mark("step", value)
        self.marks += 1

    # -- what must hold after every step ---------------------------------------------------------------------

    @invariant()
    def agrees_with_the_oracle(self):
        if not hasattr(self, "allocator"):
            return
        self.allocator.check_invariants()
        chunks = self.allocator.memory_map()
        ours = [
            (c["address"], c["size"], c["in_use"], c["allocation_id"], c["handle"],
             c["requested_size"] if c["in_use"] else 0, 0 if c["in_use"] else c["freed_at_count"])
            for c in chunks.tolist() and [dict(zip(chunks.dtype.names, row, strict=True)) for row in chunks.tolist()]
        ]  # fmt: skip
        assert ours == [
            (c.address, c.size, bool(c.number), c.number, c.handle, c.requested if c.number else 0,
             0 if c.number else c.freed_at)
            for c in self.oracle.chunks()
        ]  # fmt: skip
        regions = self.allocator.regions()
        assert [(r.address, r.size) for r in self.oracle.regions] == regions[["address", "size"]].tolist()
        stats, o = self.allocator.stats(), self.oracle
        assert (stats.num_allocs, stats.largest_alloc_size) == (o.num_allocs, o.largest_alloc)
        assert (stats.peak_bytes_in_use, stats.peak_pool_bytes) == (o.peak_in_use, o.peak_pool)
        internals = self.allocator.internals()
        assert (internals.next_region_bytes, internals.chunk_handles) == (o.next_region, o.handles)
        assert (internals.held_chunks, internals.timing_count) == (len(o.held), o.frees)
        assert self.source.used == o.source.used
        calls = [(c.kind, c.received if c.kind == 2 else c.requested) for c in self.source.calls]
        assert calls == o.source.calls
        assert len(self.allocator.occupancy()) == (100 if o.regions else 30)

    @invariant()
    def agrees_with_the_model(self):
        if not hasattr(self, "allocator"):
            return
        new = self.reader.read()
        self.events.append(new)
        assert (np.diff(new["time"]) >= 0).all()
        self.table.apply(new)
        state = self.model_state(self.table)
        chunks, regions = self.allocator.memory_map(), self.allocator.regions()
        used = chunks["in_use"]
        for name in ("requested_size", "label", "thread", "stream", "born"):
            chunks[name][~used] = 0
        names = (
            "address",
            "size",
            "requested_size",
            "born",
            "handle",
            "label",
            "thread",
            "stream",
            "region",
            "in_use",
        )
        assert state["chunks"] == [tuple(row) for row in chunks[list(names)].tolist()]
        assert state["regions"] == regions[["address", "size", "slot"]].tolist()
        stats = self.allocator.stats()
        for name in ("bytes_in_use", "requested_bytes_in_use", "pool_bytes", "peak_pool_bytes", "free_bytes",
                     "largest_free_chunk", "chunks_in_use"):  # fmt: skip
            assert state["stats"][name] == getattr(stats, name), name
        assert state["stats"]["ooms"] == self.oracle.ooms
        assert state["stats"]["num_allocs"] == self.oracle.next_number - 1
        self.states.append(state)
        self.at.append(self.table.step)

    @staticmethod
    def model_state(table):
        return {
            "chunks": model_chunks(table, np.empty(0, np.intp)).tolist(),
            "regions": model_regions(table).tolist(),
            "stats": vars(stats_of(table, None)),
        }

    def teardown(self):
        if not hasattr(self, "allocator"):
            return
        events = np.concatenate(self.events) if self.events else np.zeros(0)
        if len(events):
            self.travel(events)
        self.allocator.close()
        assert self.source.used == 0

    def travel(self, events):
        """Through the trace from the end to the beginning: every state again, and at last the empty heap."""
        assert (events["seq"] == np.arange(len(events))).all()
        assert np.count_nonzero(events["kind"] == Kind.MARK) == self.marks
        origin = Origin("bfcviz", "", Status.COMPLETE, (), (Pool("machine", self.limit, {}),), {})
        model = Model(Trace.from_events(events, self.allocator.labels, origin))
        for step, state in zip(reversed(self.at), reversed(self.states), strict=True):
            model.seek(step)
            assert self.model_state(model.table)["chunks"] == state["chunks"]
            assert model.regions().tolist() == state["regions"]
            expected = {**state["stats"], "bytes_limit": self.limit}
            assert vars(model.stats()) == expected
        self.table.undo(events)
        assert self.table.step == self.table.pool_bytes == self.table.bytes_in_use == 0
        assert not len(self.table.chunk_rows())
