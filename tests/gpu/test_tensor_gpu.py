"""Tensors and training in a real GPU's memory."""

import numpy as np
import pytest
from gpu.cuda_machine import cupy, needs_gpu
from heaps import MIB, assert_model_agrees, new_heap

from bfcviz.allocator.cuda import KINDS, cuda_sub_allocator
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.kernel_runner import Deferred, cuda_fence
from bfcviz.devices.networks import MLP, Attention, ConvNet
from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training import Training

pytestmark = needs_gpu

MODELS = [
    MLP(batch=8, classes=3, sizes=(6, 12)),
    ConvNet(batch=4, classes=3, image=8, channels=(2, 4, 4)),
    Attention(batch=4, classes=3, tokens=5, width=8, heads=2),
]


def gpu_heap(memory="device", limit=64 * MIB):
    return new_heap(limit, cuda_sub_allocator(memory))


@pytest.mark.parametrize("memory", KINDS)
def test_cupy_computes_in_it(memory):
    heap = gpu_heap(memory)
    tensor = Tensor.of(heap, np.arange(12, dtype=np.float32).reshape(3, 4))
    tensor[1].array()[:] *= 10
    assert tensor.tolist() == [0, 1, 2, 3, 40, 50, 60, 70, 8, 9, 10, 11]
    for array in (cupy.asarray(tensor), cupy.from_dlpack(tensor), tensor.array()):
        assert array.data.ptr == tensor.address
        cupy.add(array, 1, out=array)
    assert tensor.tolist()[:2] == [3, 4]
    kept = cupy.from_dlpack(tensor)
    del tensor, array
    assert heap.stats().chunks_in_use == 1
    assert float(kept[0, 0]) == 3
    del kept
    assert heap.stats().chunks_in_use == 0


@pytest.mark.parametrize("release", ["eager", "end of step", "deferred", "fence"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_training_learns_as_on_the_host(model, release):
    heap = gpu_heap()
    wish = Deferred(fence=cuda_fence) if release == "fence" else release
    training = Training(model, heap, release=wish, dtype="float64")
    expected = Training(model, new_heap(64 * MIB, HostSubAllocator()), dtype="float64").run(5)
    np.testing.assert_allclose(training.run(5), expected, rtol=1e-9)
    training.finish()
    assert heap.stats().chunks_in_use == 2 * len(training.weights)
    del training
    assert heap.stats().chunks_in_use == 0
    assert_model_agrees(heap)
