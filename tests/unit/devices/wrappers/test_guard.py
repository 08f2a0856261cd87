"""GuardAllocator: which bytes it guards and checks, when it frees, and what it says of the allocator inside."""

import ctypes
import threading

import pytest
from heaps import KIB, MIB, new_heap
from hypothesis import given
from hypothesis import strategies as st
from unit.devices.wrappers.guarded import poke, three
from unit.devices.wrappers.plain_allocator import PlainAllocator

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.memory_access import SimulatedAccess
from bfcviz.devices.wrappers import GuardAllocator, NaNFillAllocator, TrackingAllocator
from bfcviz.errors import (
    BfcvizError,
    DoubleFree,
    ForeignPointer,
    GuardOverrun,
    InteriorPointer,
    InvalidRequest,
    OutOfMemory,
)


def test_a_chunk_is_the_owners_to_write_to_the_last_byte(guard):
    addresses = three(guard)
    for address in addresses:
        ctypes.memset(address, 0x11, 100)
    guard.check()
    for address in addresses:
        guard.free(address)
    assert guard.in_use() == []
    assert guard.stats().bytes_in_use == 0


def test_a_check_on_demand_finds_all_damage_and_frees_nothing(guard):
    weights, bias, last = three(guard)
    guard.check()
    poke(bias - 1)
    poke(last + 100)
    with pytest.raises(GuardOverrun) as caught:
        guard.check()
    assert [(d.chunk.label, d.side) for d in caught.value.damages] == [("bias", "before"), ("input", "after")]
    assert [chunk.address for chunk in guard.in_use()] == [weights, bias, last]


def test_a_damaged_chunk_is_kept_until_it_is_mended(guard):
    weights, _, _ = three(guard)
    poke(weights + 100)
    for _ in range(2):
        with pytest.raises(GuardOverrun):
            guard.free(weights)
    assert guard.requested_size(weights) == 100
    guard.mend(weights)
    guard.check()
    guard.free(weights)
    with pytest.raises(DoubleFree):
        guard.free(weights)
    with pytest.raises(DoubleFree):
        guard.mend(weights)


@given(
    size=st.integers(1, 2000),
    guard_bytes=st.integers(1, 300),
    alignment=st.sampled_from([1, 2, 64, 256, 4096]),
    data=st.data(),
)
def test_every_guarded_byte_is_looked_at(size, guard_bytes, alignment, data):
    guard = GuardAllocator(new_heap(), guard_bytes)
    address = guard.allocate(size, alignment)
    assert address % alignment == 0
    offset = data.draw(st.one_of(st.integers(-guard_bytes, -1), st.integers(size, size + guard_bytes - 1)))
    old = guard.access.read(address + offset, 1)
    new = data.draw(st.binary(min_size=1, max_size=1).filter(lambda byte: byte != old))
    guard.access.write(address + offset, new)
    (damage,) = guard.damages()
    assert (damage.address, damage.found) == (address + offset, new)
    assert damage.side == ("before" if offset < 0 else "after")
    guard.access.write(address + offset, old)
    guard.free(address)


def test_guard_words_inside_guard_words_are_looked_at_both():
    inner = GuardAllocator(new_heap())
    outer = GuardAllocator(inner)
    address = outer.allocate(100, label="twice")
    assert outer.requested_size(address) == 100
    outer.access.write(address + 100, b"\0")
    assert [d.chunk.label for d in outer.damages()] == ["twice"]
    assert inner.damages() == []
    inner.access.write(address + 100 + 64, b"\0")
    assert len(inner.damages()) == 1
    outer.mend(address)
    with pytest.raises(GuardOverrun):
        outer.free(address)
    assert [chunk.address for chunk in outer.in_use()] == [address]  # the one inside refused
    inner.mend(inner.in_use()[0].address)
    outer.free(address)


def test_the_address_of_the_inner_chunk_cannot_be_freed():
    guard = GuardAllocator(new_heap())
    address = guard.allocate(100)
    start = guard.in_use()[0].start
    assert start < address
    with pytest.raises(InteriorPointer, match="guard words"):
        guard.free(start)
    past = guard.wrapped.allocate(100)
    with pytest.raises(ForeignPointer, match="not allocated by this"):
        guard.free(past)
    guard.wrapped.free(past)
    guard.free(address)


def test_out_of_memory_speaks_of_what_the_caller_asked_for():
    guard = GuardAllocator(new_heap(4 * KIB))
    with pytest.raises(OutOfMemory) as caught:
        guard.allocate(4 * KIB)
    assert (caught.value.requested, caught.value.rounded) == (4096, 4096 + 512)


def test_memory_that_cannot_be_written_is_given_back_at_once():
    class Broken(SimulatedAccess):
        def write(self, address, data):
            raise RuntimeError("no such memory")

    guard = GuardAllocator(new_heap(), access=Broken())
    with pytest.raises(RuntimeError):
        guard.allocate(100)
    assert guard.stats().bytes_in_use == 0
    assert guard.in_use() == []


def test_once_the_heap_is_closed_its_memory_is_not_read():
    heap = new_heap(MIB, HostSubAllocator())
    guard = GuardAllocator(heap)
    addresses = three(guard)
    heap.close()
    guard.check()
    guard.free(addresses[0])
    with pytest.raises(ForeignPointer, match="closed"):
        guard.requested_size(addresses[1])


def test_an_allocator_that_tracks_nothing_can_be_guarded():
    plain = PlainAllocator()
    guard = GuardAllocator(plain, access=SimulatedAccess())
    addresses = [guard.allocate(100), guard.allocate(7)]
    assert [guard.requested_size(a) for a in addresses] == [100, 7]
    assert [guard.allocated_size(a) for a in addresses] == [100 + 320, 7 + 320]
    assert [guard.allocation_id(a) for a in addresses] == [1, 2]
    with pytest.raises(ForeignPointer):
        guard.free(5)
    guard.access.write(addresses[0] - 1, b"\0")
    assert len(guard.damages()) == 1
    guard.free(addresses[1])
    assert len(plain.live) == 1


def test_empty_chunks_with_addresses_of_their_own_are_guarded_too():
    guard = GuardAllocator(PlainAllocator(empties=True), access=SimulatedAccess())
    address = guard.allocate(0)
    assert address
    guard.access.write(address, b"\0")
    assert len(guard.damages()) == 1


def test_memory_of_an_unknown_kind_is_not_accessed():
    with pytest.raises(InvalidRequest, match="give access="):
        GuardAllocator(PlainAllocator())
    with pytest.raises(InvalidRequest, match="1 or more"):
        GuardAllocator(new_heap(), 0)


def test_a_check_beside_threads_that_allocate_and_free_is_safe():
    heap = new_heap(MIB, HostSubAllocator(), allow_growth=True, garbage_collection=True)
    guard = GuardAllocator(TrackingAllocator(NaNFillAllocator(heap)))
    done = threading.Event()
    failures = []

    def work():
        try:
            for size in range(1, 400):
                address = guard.try_allocate(size * 97)
                heap.trim()
                guard.free(address or 0)
        except BfcvizError as error:
            failures.append(error)
        done.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        guard.check()
    for thread in threads:
        thread.join()
    assert failures == []
    guard.check_invariants()
    guard.close()
