"""Tensors in GPU memory over a fake driver: addresses, array interfaces, lifetimes."""

import sys

import numpy as np
import pytest
from fake_cuda import FakeCuda
from heaps import MIB, new_heap

from bfcviz.allocator.cuda import KINDS, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training import MLP, Training
from bfcviz.errors import AllocatorError, InvalidRequest, MissingExtra


def gpu_heap(memory="device"):
    return new_heap(16 * MIB, cuda_sub_allocator(memory, driver=Driver(FakeCuda())))


@pytest.mark.parametrize("memory", KINDS)
def test_it_says_where_it_is(memory):
    heap = gpu_heap(memory)
    tensor = Tensor(heap, "float32", (4, 8))
    assert (tensor.place.kind, tensor.place.device, str(tensor.place)) == ("cuda", 0, "memory of GPU 0")
    interface = tensor[1].__cuda_array_interface__
    assert interface["data"] == (tensor.address + 32, False)
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((8,), "<f4", 3)
    with pytest.raises(InvalidRequest, match="NumPy"):
        tensor.numpy()
    with pytest.raises(InvalidRequest, match="host memory"):
        Tensor(heap, "string", (2,))
    heap.close()
    with pytest.raises(AllocatorError, match="closed"):
        _ = tensor.__cuda_array_interface__


def test_without_cupy_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    heap = gpu_heap()
    with pytest.raises(MissingExtra, match="pip install"):
        Tensor(heap, "float32", (4,)).array()
    with pytest.raises(MissingExtra):
        Training(MLP(), heap)
    Training(MLP(), heap, compute=False).run(1)
    assert heap.stats().chunks_in_use == 0


def test_cupys_arrays_lie_in_it_and_keep_it():
    cupy = pytest.importorskip("cupy")
    heap = gpu_heap()
    tensor = Tensor(heap, "float32", (4, 8))
    array = tensor.array()
    assert isinstance(array, cupy.ndarray)
    assert array.data.ptr == tensor.address
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((4, 8), np.float32, True)
    part = array[2:, 3:]
    del tensor, array
    assert heap.stats().chunks_in_use == 1
    del part
    assert heap.stats().chunks_in_use == 0
