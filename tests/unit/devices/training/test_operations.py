"""Operations agree with their definitions; test_autodiff.py checks their gradients."""

import numpy as np
import pytest
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices import training as op
from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training import Eager, Graph, KernelRunner


def runner():
    return KernelRunner(new_heap(4 * MIB, HostSubAllocator()), Eager(), "float64")


def test_the_loss_is_the_cross_entropy():
    runs = runner()
    logits, targets = np.array([[1.0, 2, 3], [0, 0, 900]]), np.array([[0.0, 1, 0], [0, 0, 1]])
    graph = Graph(runs)
    pair = [graph.value(Tensor.of(runs.allocator, array)) for array in (logits, targets)]
    made = float(op.cross_entropy(graph, *pair).tensor.numpy())
    assert made == pytest.approx(-np.log(np.exp(2) / np.exp([1, 2, 3]).sum()) / 2)
