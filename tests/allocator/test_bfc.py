"""Valid and invalid arguments: sizes, alignments, labels, streams, dtypes, limits."""

import numpy as np
import pytest
from heaps import BASE, KIB, MIB, assert_model_agrees, new_heap, snapshot

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.log_reader import Reader
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


def test_labels_are_texts_or_their_numbers():
    heap = new_heap()
    number = heap.labels.intern("weights", shape="3,4")
    addresses = [
        heap.allocate(1, label=label)
        for label in (None, "weights", number, 0, "", "naïve ☃", np.uint32(number))
    ]
    rows = {int(row["address"]): int(row["label"]) for row in heap.memory_map()}
    names = [heap.labels.name(rows[address]) for address in addresses]
    assert names == ["", "weights", "weights", "", "", "naïve ☃", "weights"]
    assert heap.labels[rows[addresses[2]]].details == {"shape": "3,4"}


@pytest.mark.parametrize("label", [-1, 1, 7, 1 << 32, (1 << 32) - 1])
def test_a_number_that_is_no_label_is_refused(label):
    heap = new_heap()
    for call in (lambda: heap.allocate(1, label=label), lambda: heap.mark(label)):
        with pytest.raises(InvalidRequest, match="label id"):
            call()
    assert heap.log.head == 0


@pytest.mark.parametrize("label", [1.5, b"bytes", ["list"]])
def test_other_labels_are_no_labels(label):
    with pytest.raises(TypeError):
        new_heap().allocate(1, label=label)


def test_streams_are_16_bits():
    heap = new_heap()
    address = heap.allocate(1, stream=65_535)
    assert heap.memory_map()["stream"][0] == 65_535
    heap.free(address)
    assert Reader(heap.log).read()["stream"].tolist()[-2:] == [65_535, 0]
    for stream in (-1, 65_536):
        with pytest.raises(InvalidRequest, match="stream"):
            heap.allocate(1, stream=stream)
    with pytest.raises(TypeError):
        heap.allocate(1, stream=1.5)


def test_marks_hold_64_bits():
    heap = new_heap()
    heap.mark("step", 3)
    heap.mark("step", (1 << 64) - 1)
    events = Reader(heap.log).read()
    assert events["kind"].tolist() == [Kind.MARK] * 2
    assert events["size"].tolist() == [3, (1 << 64) - 1]
    assert {heap.labels.name(n) for n in events["label"].tolist()} == {"step"}
    for value in (-1, 1 << 64):
        with pytest.raises(InvalidRequest):
            heap.mark("step", value)


@pytest.mark.parametrize("count", [-1, 1 << 64])
def test_frontiers_hold_64_bits(count):
    with pytest.raises(InvalidRequest):
        new_heap(timestamps=True).set_safe_frontier(count)


@pytest.mark.parametrize(
    ("dtype", "count", "size"),
    [
        ("float32", 3, 12),
        (np.int8, 5, 5),
        ("<c16", 2, 32),
        (np.dtype([("a", "u1"), ("b", "f8")]), 2, 18),
        ("f8", 0, 0),
    ],
)
def test_elements_of_a_dtype(dtype, count, size):
    heap = new_heap()
    address = heap.allocate_elements(dtype, count)
    assert (heap.requested_size(address) if size else address) == size


@pytest.mark.parametrize("dtype", ["no such type", object, None, "O"])
def test_dtypes_without_bytes_are_refused(dtype):
    with pytest.raises(InvalidRequest):
        new_heap().allocate_elements(dtype, 1)


def test_counts_of_elements_are_whole():
    heap = new_heap()
    with pytest.raises(TypeError):
        heap.allocate_elements("f4", 2.5)
    for count in (-1, 1 << 62):
        with pytest.raises(InvalidRequest):
            heap.allocate_elements("f4", count)
    assert heap.allocate_elements("f4", np.int16(2)) == BASE


@pytest.mark.parametrize("limit", [0, -1, (1 << 62) + 1, 1 << 64])
def test_limits_no_heap_can_have(limit):
    with pytest.raises(InvalidRequest, match="limit"):
        new_heap(limit)


@pytest.mark.parametrize("limit", [1e6, None])
def test_limits_are_integers(limit):
    with pytest.raises(TypeError):
        new_heap(limit)


@pytest.mark.parametrize("source", [None, 5, object(), SimulatedSubAllocator])
def test_a_sub_allocator_is_one(source):
    with pytest.raises(TypeError, match="PythonSubAllocator"):
        BFCAllocator(source, MIB)


@pytest.mark.parametrize(
    "options",
    [
        {"fragmentation_fraction": -0.1},
        {"fragmentation_fraction": 1.1},
        {"fragmentation_fraction": float("nan")},
        {"retry_s": -1},
        {"retry_s": float("inf")},
        {"retry_s": float("nan")},
    ],
)
def test_options_that_cannot_be(options):
    with pytest.raises(InvalidRequest):
        AllocatorOptions(**options)


def test_a_limit_below_one_chunk_serves_nothing():
    heap = new_heap(255)
    with pytest.raises(OutOfMemory):
        heap.allocate(1)
    assert heap.stats().pool_bytes == 0
