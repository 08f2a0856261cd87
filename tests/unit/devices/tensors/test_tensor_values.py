"""The values of tensors: reads, writes, and NumPy arrays over the same memory."""

import ctypes

import numpy as np
import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import AllocatorError, InvalidRequest


@pytest.fixture
def heap():
    made = new_heap(4 * MIB, HostSubAllocator())
    yield made
    made.close()


def in_use(heap):
    return heap.stats().chunks_in_use


def test_an_array_of_it_writes_into_the_heap(heap):
    tensor = Tensor(heap, np.float32, (4,))
    tensor.numpy()[:] = [1, 2, 3, 4]
    assert list((ctypes.c_float * 4).from_address(tensor.address)) == [1, 2, 3, 4]
    np.asarray(tensor)[0] = 7
    assert np.from_dlpack(tensor).ctypes.data == tensor.address  # some versions of NumPy make it read-only
    tensor[2:].numpy()[:] = 9
    assert tensor.tolist() == [7, 2, 9, 9]


def test_values_come_and_go(heap):
    tensor = Tensor.of(heap, [[1, 2], [3, 4]], "float32")
    tensor.put(3, 9)
    assert tensor.get(3) == tensor.get(-1) == 9
    tensor.write(5)
    assert tensor.tolist() == [5.0] * 4
    assert np.add(tensor, 1).tolist() == [[6, 6], [6, 6]]
    scalar = Tensor(heap, "f8", ())
    scalar.write(2.5)
    assert scalar.tolist() == [2.5]
    assert float(np.asarray(scalar)) == 2.5


def test_numpy_copies_only_where_it_must(heap):
    tensor = Tensor.of(heap, np.arange(4, dtype=np.int32))
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert not np.shares_memory(np.array(tensor), tensor.numpy())
    assert np.asarray(tensor, "f8").dtype == np.float64
    with pytest.raises(ValueError):
        tensor.__array__("f8", copy=False)
    assert tensor.__dlpack_device__() == (1, 0)
    assert not hasattr(tensor, "__cuda_array_interface__")


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", ">f4", "f2", "c16", "S7", "U3", "M8[ns]", "i4,f8"])
def test_numpys_dtypes_all_lie_in_the_heap(heap, dtype):
    values = np.zeros(5, dtype)
    tensor = Tensor.of(heap, values, np.dtype(dtype))
    assert np.asarray(tensor).dtype == np.dtype(dtype)
    assert np.array_equal(np.asarray(tensor), values)
    assert heap.requested_size(tensor.address) == 5 * np.dtype(dtype).itemsize


def test_pretended_memory_has_addresses_but_no_arrays():
    heap = new_heap(MIB)
    tensor = Tensor(heap, "float32", (8,))
    assert heap.requested_size(tensor[2:].buffer.address) == 32
    for ask in (Tensor.numpy, Tensor.tolist, np.asarray):
        with pytest.raises(InvalidRequest, match="without memory"):
            ask(tensor)
    with pytest.raises(AllocatorError):
        tensor.__dlpack_device__()
    del tensor
    assert in_use(heap) == 0
