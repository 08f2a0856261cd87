"""The contract of every allocator (`bfcviz.Allocator`), in any combination of wrappers."""

import random

import numpy as np
import pytest
from contracts.allocators import ALLOCATORS, LIMIT, heap_of, overhead
from heaps import KIB, MIB
from threads import in_threads

import bfcviz
from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.errors import DoubleFree, ForeignPointer, InteriorPointer, InvalidRequest, OutOfMemory


@pytest.fixture(params=ALLOCATORS)
def allocator(request):
    made = ALLOCATORS[request.param]()
    yield made
    made.close()


def test_it_is_an_allocator(allocator):
    assert isinstance(allocator, bfcviz.Allocator)
    assert allocator.name


def test_what_it_hands_out_is_apart_and_large_enough(allocator):
    sizes = [1, 255, 256, 257, 4000, 100 * KIB, MIB]
    blocks = sorted((allocator.allocate(size), size) for size in sizes)
    for (address, size), (following, _) in zip(blocks, [*blocks[1:], (1 << 64, 0)], strict=True):
        assert allocator.allocated_size(address) >= size
        assert address + allocator.allocated_size(address) <= following
    stats = allocator.stats()
    assert stats.bytes_in_use == sum(allocator.allocated_size(address) for address, _ in blocks)
    assert stats.requested_bytes_in_use == sum(sizes)
    assert stats.num_allocs == len(sizes)
    allocator.check_invariants()
    for address, _ in blocks:
        allocator.free(address)
    assert allocator.stats().bytes_in_use == 0
    assert allocator.stats().requested_bytes_in_use == 0


def test_sizes_and_ids_are_tracked(allocator):
    assert allocator.tracks_allocation_sizes()
    addresses = [allocator.allocate(1000), allocator.allocate(2000)]
    assert [allocator.requested_size(a) for a in addresses] == [1000, 2000]
    assert [allocator.allocation_id(a) for a in addresses] == [1, 2]
    allocator.free(addresses[0])
    assert allocator.allocation_id(allocator.allocate(1000)) == 3  # never used twice
    for ask in (allocator.requested_size, allocator.allocated_size, allocator.allocation_id):
        with pytest.raises(ForeignPointer):
            ask(1 << 20)


def test_elements_are_counted_in_bytes(allocator):
    assert allocator.requested_size(allocator.allocate_elements(np.float32, 100)) == 400
    assert allocator.requested_size(allocator.allocate_elements("complex128", 3)) == 48
    assert allocator.allocate_elements("f8", 0) == 0
    for dtype, count in ((object, 1), ("no type", 1), ("f4", -1), ("f4", 1 << 62)):
        with pytest.raises(InvalidRequest):
            allocator.allocate_elements(dtype, count)


def test_nothing_is_nothing(allocator):
    assert not allocator.should_allocate_empty()
    before = allocator.stats()
    assert allocator.allocate(0) == 0
    assert allocator.try_allocate(0) == 0
    allocator.free(0)
    assert allocator.stats() == before


def test_what_cannot_be_asked_for_is_refused_and_changes_nothing(allocator):
    kept = allocator.allocate(1000)
    before = allocator.stats()
    for size in (-1, -256, (1 << 62) + 1, 1 << 63, (1 << 64) - 256, 1 << 64):
        for ask in (allocator.allocate, allocator.try_allocate):
            with pytest.raises(InvalidRequest):
                ask(size)
    for alignment in (0, -1, 3, 384, 1 << 64):
        with pytest.raises(InvalidRequest):
            allocator.allocate(100, alignment)
    for size in (1.5, None):
        with pytest.raises(TypeError):
            allocator.allocate(size)
    for size in (1.5, "256", None):
        with pytest.raises(TypeError):
            allocator.free(size)
    with pytest.raises(InvalidRequest):
        allocator.allocate(100, label=77)  # no number of a label
    assert allocator.stats() == before
    assert allocator.requested_size(kept) == 1000
    allocator.check_invariants()


def test_alignment_is_kept(allocator):
    honoured = heap_of(allocator).options.honour_alignment
    for alignment in (1, 8, 256, 4096):
        kept = alignment if honoured else min(alignment, 256)  # TensorFlow 2.21 keeps those up to 256 only
        for size in (1, 300, 5000):
            assert allocator.allocate(size, alignment) % kept == 0
        allocator.check_invariants()


def test_labels_and_attributes_reach_the_heap(allocator):
    heap = heap_of(allocator)
    number = heap.labels.intern("bias")
    attributes = AllocationAttributes(no_retry_on_failure=True)
    for label in ("weights", number):
        assert allocator.allocate(100, label=label, attributes=attributes)
        assert allocator.try_allocate(100, label=label, attributes=attributes)
        assert allocator.allocate_elements("f4", 25, label=label, attributes=attributes)
    chunks = heap.memory_map()
    names = [heap.labels.name(int(label)) for label in chunks["label"][chunks["in_use"]]]
    assert sorted(names) == ["bias"] * 3 + ["weights"] * 3


def test_out_of_memory_says_how_it_stands(allocator):
    kept = allocator.allocate(LIMIT // 8)
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(LIMIT + 1)
    error, stats = caught.value, allocator.stats()
    assert isinstance(error, MemoryError)
    assert error.requested == LIMIT + 1
    assert error.rounded == -(-(LIMIT + 1 + overhead(allocator)) // 256) * 256
    assert (error.free_bytes, error.largest_free_chunk) == (stats.free_bytes, stats.largest_free_chunk)
    assert (error.pool_bytes, error.bytes_limit) == (stats.pool_bytes, LIMIT)
    assert allocator.try_allocate(LIMIT + 1) is None
    assert allocator.requested_size(kept) == LIMIT // 8
    allocator.check_invariants()


def test_wrong_frees_change_nothing(allocator):
    address = allocator.allocate(4000)
    for wrong, error in (
        (address + 8, InteriorPointer),
        (address + 256, InteriorPointer),
        (1 << 20, ForeignPointer),
    ):
        with pytest.raises(error) as caught:
            allocator.free(wrong)
        assert caught.value.address == wrong
    assert allocator.requested_size(address) == 4000
    allocator.free(address)
    with pytest.raises(DoubleFree):
        allocator.free(address)
    allocator.check_invariants()


def test_after_close_nothing_is_handed_out_and_a_free_does_nothing(allocator):
    address = allocator.allocate(4000)
    allocator.close()
    with pytest.raises(bfcviz.BfcvizError):
        allocator.allocate(4000)
    allocator.free(address)
    assert allocator.stats().pool_bytes == 0


def test_a_thousand_steps_leak_nothing(allocator):
    chance = random.Random(5)
    live = []
    for _ in range(1000):
        if live and chance.random() < 0.5:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            address = allocator.try_allocate(chance.choice([1, 300, 5000, 70_000, LIMIT // 32]))
            live += [] if address is None else [address]
    allocator.check_invariants()
    for address in live:
        allocator.free(address)
    assert allocator.stats().bytes_in_use == 0
    assert allocator.stats().chunks_in_use == 0
    allocator.check_invariants()


def test_threads_share_it(allocator):
    failures = []

    def work(seed):
        chance = random.Random(seed)
        try:
            for _ in range(40):
                addresses = [allocator.try_allocate(chance.choice([1, 300, 5000])) for _ in range(4)]
                for address in filter(None, addresses):
                    allocator.free(address)
        except Exception as error:  # noqa: BLE001  told by the assertion
            failures.append(error)

    in_threads(work, 3)
    assert failures == []
    assert allocator.stats().chunks_in_use == 0
    allocator.check_invariants()
