"""Valid and invalid arguments: labels, streams, marks, dtypes, limits, sub-allocators."""

import numpy as np
import pytest
from heaps import BASE, MIB, new_heap

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest, OutOfMemory
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind


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


def test_a_limit_below_one_chunk_serves_nothing():
    heap = new_heap(255)
    with pytest.raises(OutOfMemory):
        heap.allocate(1)
    assert heap.stats().pool_bytes == 0
