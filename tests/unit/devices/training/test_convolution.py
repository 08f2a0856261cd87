"""Convolutions agree with their definition."""

import numpy as np
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training import Eager, Graph, KernelRunner, conv2d


def runner():
    return KernelRunner(new_heap(4 * MIB, HostSubAllocator()), Eager(), "float64")


def test_a_convolution_is_what_it_says():
    runs, chance = runner(), np.random.default_rng(0)
    image, filters = chance.normal(size=(2, 5, 4, 3)), chance.normal(size=(3, 3, 3, 2))
    graph = Graph(runs)
    made = conv2d(graph, *(graph.value(Tensor.of(runs.allocator, array)) for array in (image, filters)))
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((2, 5, 4, 2))
    for row in range(5):
        for column in range(4):
            around = padded[:, row : row + 3, column : column + 3]
            expected[:, row, column] = np.einsum("nijc,ijcd->nd", around, filters)
    np.testing.assert_allclose(made.tensor.numpy(), expected)
