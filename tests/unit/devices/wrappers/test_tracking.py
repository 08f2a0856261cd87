"""TrackingAllocator: sizes, the high-water mark, and leaks by label."""

import pytest
from heaps import KIB, MIB, new_heap
from unit.devices.wrappers.plain_allocator import PlainAllocator

from bfcviz.devices.wrappers import TrackingAllocator
from bfcviz.errors import BrokenInvariant, ForeignPointer, InteriorPointer


def test_it_counts_what_goes_through_it():
    tracker = TrackingAllocator(new_heap())
    first, second = tracker.allocate(1000), tracker.allocate(300)
    assert (tracker.total_bytes, tracker.high_water, tracker.live_bytes) == (1536, 1536, 1536)
    tracker.free(first)
    tracker.allocate(1)
    assert (tracker.total_bytes, tracker.high_water, tracker.live_bytes) == (1792, 1536, 768)
    tracker.free(second)
    assert tracker.count == 3
    assert [chunk.requested_size for chunk in tracker.in_use()] == [1]


def test_leaks_are_told_by_label_most_bytes_first():
    tracker = TrackingAllocator(new_heap())
    number = tracker.base.labels.intern("bias")
    weights = [tracker.allocate(10 * KIB, label="weights") for _ in range(3)]
    tracker.allocate(100, label=number)
    tracker.allocate(100, label="bias")
    tracker.allocate(50)
    tracker.free(weights.pop(0))
    leaks = tracker.leaks()
    assert [(leak.label, leak.chunks, leak.num_bytes) for leak in leaks] == [
        ("weights", 2, 20 * KIB), ("bias", 2, 512), ("", 1, 256),
    ]  # fmt: skip
    assert leaks[0].oldest.address == weights[0]
    assert tracker.report().splitlines() == [
        f"weights: 20.0 KiB in 2 chunks, the oldest of 10240 bytes at {weights[0]:#x} (request 2)",
        f"bias: 512 B in 2 chunks, the oldest of 100 bytes at {leaks[1].oldest.address:#x} (request 4)",
        f"without a label: 256 B in 1 chunk, the oldest of 50 bytes at {leaks[2].oldest.address:#x} (request 6)",
    ]


def test_leaks_of_one_step_are_told_from_what_was_there_before():
    tracker = TrackingAllocator(new_heap())
    tracker.allocate(1000, label="weights")
    before = tracker.count
    kept = [tracker.allocate(1000, label=f"step {n}") for n in range(3)]
    tracker.free(kept[0])
    tracker.free(kept[2])
    assert [leak.label for leak in tracker.leaks(since=before)] == ["step 1"]
    tracker.free(kept[1])
    assert tracker.leaks(since=before) == []
    assert tracker.report(since=before) == f"nothing requested after the first {before} is in use"


def test_a_free_that_fails_leaves_the_chunk_in_the_books():
    tracker = TrackingAllocator(new_heap())
    address = tracker.allocate(1000)
    with pytest.raises(InteriorPointer):
        tracker.free(address + 8)
    assert tracker.live_bytes == 1024

    def refuse(_):
        raise RuntimeError

    tracker.wrapped = TrackingAllocator(tracker.wrapped)
    tracker.wrapped.free = refuse
    with pytest.raises(RuntimeError):
        tracker.free(address)
    assert tracker.live_bytes == 1024
    assert [chunk.address for chunk in tracker.in_use()] == [address]


def test_it_tells_sizes_where_the_allocator_inside_does_not():
    tracker = TrackingAllocator(PlainAllocator())
    addresses = [tracker.allocate(1000), tracker.allocate(7, alignment=1)]
    assert tracker.tracks_allocation_sizes()
    assert [tracker.requested_size(a) for a in addresses] == [1000, 7]
    assert [tracker.allocated_size(a) for a in addresses] == [1000, 7]
    assert [tracker.allocation_id(a) for a in addresses] == [1, 2]
    tracker.check_invariants()
    tracker.free(addresses[0])
    for ask in (tracker.requested_size, tracker.allocated_size, tracker.allocation_id):
        with pytest.raises(ForeignPointer) as caught:
            ask(addresses[0])
        assert caught.value.address == addresses[0]


def test_what_was_in_use_at_the_end_can_be_told_after_it():
    tracker = TrackingAllocator(new_heap(MIB))
    tracker.allocate(1000, label="forgotten")
    tracker.close()
    assert [leak.label for leak in tracker.leaks()] == ["forgotten"]


def test_books_that_do_not_balance_are_noticed():
    tracker = TrackingAllocator(new_heap())
    address = tracker.allocate(1000)
    tracker.live_bytes += 1
    with pytest.raises(BrokenInvariant, match="1025 bytes are counted"):
        tracker.check_invariants()
    tracker.live_bytes -= 1
    tracker.wrapped.free(address)  # bypasses the wrapper
    tracker.wrapped.allocate(1)
    with pytest.raises(BrokenInvariant, match="changed its size"):
        tracker.check_invariants()
