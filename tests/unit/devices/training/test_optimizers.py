"""Optimizers keep to their formulas."""

import math

import numpy as np
from heaps import MIB, new_heap

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.training import MLP, Adam, Attention, ConvNet, Momentum, Training

SMALL = {
    "MLP": MLP(batch=8, classes=3, sizes=(6, 12)),
    "convnet": ConvNet(batch=4, classes=3, image=8, channels=(2, 4, 4)),
    "attention": Attention(batch=4, classes=3, tokens=5, width=8, heads=2, layers=2),
}


def host_heap(limit=16 * MIB, **options):
    return new_heap(limit, HostSubAllocator(), **options)


def test_optimizers_keep_to_their_formulas():
    heap = host_heap()
    for optimizer in (Momentum(0.1, 0.8), Adam(0.1, (0.7, 0.9), 1e-3)):
        training = Training(SMALL["MLP"], heap, optimizer=optimizer, dtype="float64")
        runner, weight = training.runner, training.weights["dense_1/bias"]
        expected, first, second = weight.numpy().copy(), 0, 0
        for step in range(1, 4):
            gradient = np.arange(12.0) - 3 * step
            given = runner.filled((12,), "gradient", lambda gradient=gradient: gradient)
            optimizer.update(runner, "dense_1/bias", weight, given)
            if isinstance(optimizer, Momentum):
                first = 0.8 * first + gradient
                expected -= 0.1 * first
            else:
                first, second = 0.7 * first + 0.3 * gradient, 0.9 * second + 0.1 * gradient**2
                rate = 0.1 * math.sqrt(1 - 0.9**step) / (1 - 0.7**step)
                expected -= rate * first / (np.sqrt(second) + 1e-3)
            np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-12)
