"""Every operation on wrapped heaps, in any order: tables stay consistent, memory keeps its content."""

import pytest
from contracts.allocators import HEAPS, WRAPPERS, wrapped
from heaps import KIB
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bfcviz.devices.allocator_wrappers import (
    FREED,
    FRESH,
    GuardAllocator,
    LimitAllocator,
    NaNFillAllocator,
    TrackingAllocator,
    access_to,
)
from bfcviz.errors import GuardOverrun, InvalidFree, InvalidRequest, OutOfMemory

LIMIT = 64 * KIB

# Host memory and simulated memory; heaps that extend and release regions.
BASES = ["bfc", "bfc, growing and collecting", "bfc, timestamps", "bfc, coalescing", "bfc, host memory"]
compositions = st.lists(st.sampled_from(list(WRAPPERS)), min_size=1, max_size=6)
places = st.integers(0, 1 << 16)


class WrapperMachine(RuleBasedStateMachine):
    @initialize(names=compositions, base=st.sampled_from(BASES))
    def begin(self, names, base):
        self.allocator = wrapped(HEAPS[base](LIMIT), names)
        self.layers = self.allocator.layers
        self.access = access_to(self.allocator)
        self.live = {}  # what each owner wrote, by address
        self.labels = {}
        self.count = 0

    def of(self, kind):
        return [layer for layer in self.layers if isinstance(layer, kind)]

    # -- rules -----------------------------------------------------------------------------------------------

    @rule(
        size=st.one_of(st.integers(1, 600), st.integers(1, 12 * KIB)),
        alignment=st.sampled_from([256, 256, 1, 64, 1024]),
        label=st.sampled_from(["weights", "bias", None]),
        byte=st.integers(0, 255),
    )
    def allocate(self, size, alignment, label, byte):
        address = self.allocator.try_allocate(size, alignment, label)
        if address is None:
            return
        self.count += 1
        assert address % alignment == 0
        assert all(address >= at + len(data) or address + size <= at for at, data in self.live.items())
        if self.of(NaNFillAllocator):
            # Guard words of a layer inside the filling one are outside the requested bytes.
            assert self.access.read(address, size) == (FRESH * size)[:size]
        data = bytes([byte]) * size
        self.access.write(address, data)
        self.live[address] = data
        self.labels[address] = label or ""

    def pick(self, place):
        addresses = sorted(self.live)
        return addresses[place % len(addresses)]

    @precondition(lambda self: self.live)
    @rule(place=places)
    def free(self, place):
        address = self.pick(place)
        self.allocator.free(address)
        data = self.live.pop(address)
        if self.of(NaNFillAllocator) and self.allocator.base.stats().pool_bytes:
            assert self.access.read(address, len(data)) == (FREED * len(data))[: len(data)]

    @precondition(lambda self: self.live)
    @rule(place=places, offset=st.integers(1, 700))
    def free_what_is_no_chunk(self, place, offset):
        wrong = self.pick(place) + offset
        if wrong not in self.live:
            with pytest.raises(InvalidFree):
                self.allocator.free(wrong)

    @rule(size=st.sampled_from([-1, (1 << 62) + 1]))
    def ask_for_what_cannot_be(self, size):
        with pytest.raises(InvalidRequest):
            self.allocator.allocate(size)

    @rule()
    def ask_for_too_much(self):
        with pytest.raises(OutOfMemory):
            self.allocator.allocate(LIMIT + 1)

    @precondition(lambda self: self.live and self.of(GuardAllocator))
    @rule(place=places, after=st.booleans())
    def overrun(self, place, after):
        """The outermost guard words see a byte next to what the owner has, and free nothing."""
        guard = self.of(GuardAllocator)[0]
        address = self.pick(place)
        at = address + len(self.live[address]) if after else address - 1
        self.access.write(at, b"\x5a")
        with pytest.raises(GuardOverrun) as caught:
            guard.check()
        (damage,) = caught.value.damages
        assert (damage.chunk.address, damage.chunk.label) == (address, self.labels[address])
        assert (damage.address, damage.side) == (at, "after" if after else "before")
        others = [other for other in self.live if (other > address) == after and other != address]
        nearest = (min if after else max)(others, default=None)
        assert (damage.neighbour.address if damage.neighbour else None) == nearest
        if guard is self.layers[0]:
            with pytest.raises(GuardOverrun):
                self.allocator.free(address)
        guard.mend(address)

    @rule()
    def clear_stats(self):
        self.allocator.clear_stats()

    # -- what must hold after every step ---------------------------------------------------------------------

    @invariant()
    def books_balance(self):
        if not hasattr(self, "allocator"):
            return
        self.allocator.check_invariants()
        stats = self.allocator.stats()
        assert stats.requested_bytes_in_use == sum(map(len, self.live.values()))
        assert stats.bytes_in_use == sum(map(self.allocator.allocated_size, self.live))
        assert stats.chunks_in_use == len(self.live)
        for address, data in self.live.items():
            assert self.allocator.requested_size(address) == len(data)
        for tracker in self.of(TrackingAllocator):
            assert sum(leak.chunks for leak in tracker.leaks()) == len(self.live)
            assert tracker.live_bytes == stats.bytes_in_use <= tracker.high_water
            assert tracker.count == self.count
        for limited in self.of(LimitAllocator):
            assert limited.used >= stats.requested_bytes_in_use

    @invariant()
    def memory_is_its_owners(self):
        if not hasattr(self, "allocator"):
            return
        for address, data in self.live.items():
            assert self.access.read(address, len(data)) == data
        for guard in self.of(GuardAllocator):
            guard.check()

    def teardown(self):
        if not hasattr(self, "allocator"):
            return
        for address in self.live:
            self.allocator.free(address)
        self.allocator.check_invariants()
        assert self.allocator.stats().chunks_in_use == 0
        self.allocator.close()
