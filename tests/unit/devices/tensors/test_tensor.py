"""Tensors: memory from creation to the last reference, shared by views and arrays, written in place."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from heaps import MIB, new_heap, snapshot

from bfcviz.allocator.interface import AllocationAttributes
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import AllocatorError, InvalidRequest, OutOfMemory


@pytest.fixture
def heap():
    made = new_heap(4 * MIB, HostSubAllocator())
    yield made
    made.close()


def in_use(heap):
    return heap.stats().chunks_in_use


def test_it_takes_its_memory_when_it_is_made_and_gives_it_back_with_the_last_reference(heap):
    tensor = Tensor(heap, "float32", (64, 256))
    assert in_use(heap) == 1
    assert heap.requested_size(tensor.address) == tensor.nbytes == 64 * 256 * 4
    assert (tensor.shape, tensor.size, tensor.ndim, len(tensor)) == ((64, 256), 64 * 256, 2, 64)
    assert tensor.allocation_id == heap.allocation_id(tensor.address) == 1
    again = tensor
    del tensor
    assert in_use(heap) == 1
    del again
    assert in_use(heap) == 0


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor[1:],
        lambda tensor: tensor[0][1],
        lambda tensor: tensor.reshape(-1),
        lambda tensor: tensor.view("u1"),
        lambda tensor: tensor.numpy(),
        lambda tensor: np.asarray(tensor)[1:, ::2].T,
        np.from_dlpack,
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.buffer,
    ],
    ids=[
        "slice",
        "element",
        "reshape",
        "bitcast",
        "numpy",
        "view of an array",
        "dlpack",
        "memoryview",
        "buffer",
    ],
)
def test_whatever_shares_its_memory_keeps_it(heap, keep):
    tensor = Tensor(heap, "float64", (3, 4))
    tensor.write(np.arange(12.0).reshape(3, 4))
    kept, address = keep(tensor), tensor.address
    del tensor
    gc.collect()
    assert heap.requested_size(address) == 96  # a view outlives the tensor
    other = Tensor(heap, "float64", (3, 4))
    assert other.address != address
    del kept
    assert in_use(heap) == 1


def test_an_array_can_be_read_after_the_tensor_is_gone(heap):
    array = Tensor.of(heap, np.arange(1000)).numpy()
    assert array.sum() == 499_500
    del array
    assert in_use(heap) == 0


def test_references_are_counted(heap):
    tensor = Tensor(heap, "int32", (4, 4))
    assert tensor.has_single_reference
    row, array = tensor[1], tensor.numpy()
    assert tensor.buffer.references == 3
    assert not tensor.has_single_reference
    del row, array
    assert tensor.has_single_reference


def test_parts_and_shapes_are_views(heap):
    tensor = Tensor.of(heap, np.arange(24).reshape(4, 6))
    assert tensor[1:3].shape == (2, 6)
    assert tensor[-1].tolist() == [18, 19, 20, 21, 22, 23]
    assert tensor[5:2].shape == (0, 6)
    assert tensor[1:][0][2].tolist() == [8]
    assert tensor.reshape(2, -1).shape == (2, 12)
    assert tensor.reshape((3, 8))[2].tolist() == list(range(16, 24))
    assert tensor.view("u1").shape == (4, 48)
    assert in_use(heap) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda t: t[4], IndexError),
        (lambda t: t[-5], IndexError),
        (lambda t: t[::2], InvalidRequest),
        (lambda t: t[1.5], TypeError),
        (lambda t: t[0][0][0], IndexError),
        (lambda t: len(t[0][0]), TypeError),
        (lambda t: t.reshape(5, 5), InvalidRequest),
        (lambda t: t.reshape(-1, -1), InvalidRequest),
        (lambda t: t.reshape(-1, 5), InvalidRequest),
        (lambda t: t.view("c16"), None),
        (lambda t: t[0][0].view("c16"), InvalidRequest),
        (lambda t: t.view("string"), InvalidRequest),
        (lambda t: t.get(24), IndexError),
        (copy.deepcopy, TypeError),
        (pickle.dumps, TypeError),
        (lambda t: t.buffer.operations, InvalidRequest),
    ],
)
def test_wrong_uses_are_told(heap, wrong, error):
    tensor = Tensor(heap, "int64", (4, 6))
    before = snapshot(heap)
    if error is None:
        assert wrong(tensor).shape == (4, 3)
    else:
        with pytest.raises(error):
            wrong(tensor)
    assert snapshot(heap) == before


def test_empty_tensors_have_no_memory(heap):
    before = snapshot(heap)
    tensor = Tensor(heap, "float32", (0, 5))
    assert (tensor.address, tensor.nbytes, tensor.allocation_id) == (0, 0, 0)
    assert np.asarray(tensor).shape == (0, 5)
    assert tensor[0:0].shape == (0, 5)
    assert tensor.reshape(5, -1).shape == (5, 0)
    assert "without memory" in repr(tensor)
    del tensor
    assert snapshot(heap) == before


class Opaque:
    """An allocator that returns an address for empty requests, as some of TensorFlow's do."""

    def __init__(self, heap):
        self.heap = heap

    def __getattr__(self, name):
        return getattr(self.heap, name)

    def should_allocate_empty(self):
        return True

    def allocate(self, num_bytes, *others, **more):
        return self.heap.allocate(num_bytes or 1, *others, **more)


def test_empty_tensors_have_memory_where_the_allocator_says_so(heap):
    tensor = Tensor(Opaque(heap), "float32", (0,))
    assert heap.requested_size(tensor.address) == 1
    assert np.asarray(tensor).shape == (0,)
    del tensor
    assert in_use(heap) == 0


def test_a_tensor_that_does_not_fit_changes_nothing(heap):
    keep = Tensor(heap, "u1", (3 * MIB,))
    chunks = heap.memory_map().tolist()
    with pytest.raises(OutOfMemory):
        Tensor(heap, "u1", (2 * MIB,))
    assert heap.memory_map().tolist() == chunks
    assert keep.has_single_reference


def test_a_closed_heap_is_told_of_not_read(heap):
    tensor, names = Tensor(heap, "float32", (8,)), Tensor.of(heap, ["a", "b" * 40])
    heap.close()
    for ask in (Tensor.numpy, Tensor.tolist, lambda gone: gone.allocation_id):
        with pytest.raises(AllocatorError, match="closed"):
            ask(tensor)
    with pytest.raises(AllocatorError, match="closed"):
        names.get(1)
    del tensor, names  # no destructor runs in freed memory


def test_the_request_goes_as_its_attributes_say():
    heap = new_heap(4 * MIB, timestamps=True)
    first = Tensor(heap, "u1", (MIB,))
    address = first.address
    del first
    later = Tensor(heap, "u1", (MIB,), attributes=AllocationAttributes(freed_by=lambda: 1))
    assert later.address == address


def test_a_cycle_is_collected_with_its_memory(heap):
    ring = [Tensor(heap, "f4", (100,))]
    ring.append(ring)
    del ring
    gc.collect()
    assert in_use(heap) == 0


def test_threads_share_tensors(heap):
    tensor = Tensor.of(heap, np.arange(1000))
    failed = []

    def work():
        try:
            for _ in range(200):
                part = tensor[100:200].reshape(10, 10)
                own = Tensor.of(heap, part.numpy() * 2)
                assert own.get(0) == 200
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert tensor.has_single_reference
    assert in_use(heap) == 1
    heap.check_invariants()
