"""Sizes and alignments of requests: rounded, padded, or refused."""

import numpy as np
import pytest
from heaps import BASE, KIB, MIB, assert_model_agrees, new_heap, snapshot

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Flag, Kind


@pytest.mark.parametrize(
    ("asked", "got"),
    [(1, 256), (255, 256), (256, 256), (257, 512), (True, 256), (np.uint8(200), 256), (np.int64(300), 512)],
)
def test_sizes_round_up_to_256(asked, got):
    heap = new_heap()
    address = heap.allocate(asked)
    assert address == BASE
    assert (heap.requested_size(address), heap.allocated_size(address)) == (int(asked), got)


@pytest.mark.parametrize(
    "size", [-1, -256, (1 << 62) + 1, 1 << 63, (1 << 64) - 256, (1 << 64) - 1, 1 << 64, -(1 << 70), 1 << 70]
)
def test_sizes_no_heap_can_serve_are_refused(size):
    heap = new_heap()
    heap.allocate(1000)
    before = snapshot(heap)
    for call in (heap.allocate, heap.try_allocate):
        with pytest.raises(InvalidRequest, match="0 to 2\\^62") as caught:
            call(size)
        assert isinstance(caught.value, ValueError)
    assert snapshot(heap) == before


@pytest.mark.parametrize("size", [1.5, 256.0, None, np.float32(3), [1]])
def test_sizes_are_integers(size):
    heap = new_heap()
    before = snapshot(heap)
    with pytest.raises(TypeError):
        heap.allocate(size)
    with pytest.raises(TypeError):
        heap.free(size)
    assert snapshot(heap) == before
    assert heap.allocate(1) == BASE


def test_nothing_costs_nothing():
    heap = new_heap()
    assert heap.allocate(0) == 0
    assert heap.try_allocate(0, label="nothing") == 0
    heap.free(0)
    assert heap.log.head == 0
    assert heap.stats().num_allocs == 0
    assert heap.should_allocate_empty() is False


@pytest.mark.parametrize("alignment", [0, -1, -256, 3, 100, 384, 1 << 64, (1 << 63) + 1])
def test_alignments_are_powers_of_two(alignment):
    heap = new_heap()
    before = snapshot(heap)
    with pytest.raises(InvalidRequest, match="power of two"):
        heap.allocate(100, alignment)
    assert snapshot(heap) == before


@pytest.mark.parametrize("alignment", [512, 4096, 64 * KIB, MIB])
def test_large_alignment_is_kept_by_padding(alignment):
    heap = new_heap(16 * MIB)
    heap.allocate(1)
    address = heap.allocate(1000, alignment)
    assert address % alignment == 0
    events = Reader(heap.log).read()
    padded = events[(events["flags"] & Flag.PADDING) > 0]
    assert padded["kind"].tolist() == [Kind.SPLIT]
    assert padded["address"][0] == address
    heap.check_invariants()
    assert_model_agrees(heap)
    heap.free(address)
    assert len(heap.memory_map()) == 2  # the padding merged with the rest


def test_alignment_can_be_left_to_the_sub_allocator():
    heap = new_heap(16 * MIB, SimulatedSubAllocator(base=BASE + 256, journal=True), honour_alignment=False)
    first = heap.allocate(1, 4096)
    assert first % 4096 == 0
    assert heap.allocate(1000, 4096) == first + 256
    assert heap.sub_allocator.calls[0].alignment == 4096


def test_alignment_beyond_memory_is_out_of_memory():
    with pytest.raises(OutOfMemory):
        new_heap().allocate(1, 1 << 63)
