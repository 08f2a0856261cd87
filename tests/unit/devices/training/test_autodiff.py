"""Gradients checked against finite differences of the loss; operations against NumPy."""

import numpy as np
import pytest
from heaps import MIB, new_heap
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices import training as op
from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training import (
    MLP,
    Attention,
    ConvNet,
    Eager,
    Graph,
    Heads,
    KernelRunner,
    Training,
    conv2d,
    mean_pool,
    scores,
    weighted_values,
)

MODELS = [
    MLP(batch=5, classes=3, sizes=(4, 6, 5)),
    ConvNet(batch=2, classes=3, image=4, channels=(2, 3, 2)),
    ConvNet(batch=1, classes=2, image=6, channels=(1, 2), size=5),
    Attention(batch=2, classes=3, tokens=3, width=4, heads=2, layers=2),
]


def runner():
    return KernelRunner(new_heap(4 * MIB, HostSubAllocator()), Eager(), "float64")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name} {model.input_shape}")
def test_gradients_of_models_are_those_of_the_loss(model):
    training = Training(model, new_heap(4 * MIB, HostSubAllocator()), dtype="float64", seed=3)
    graph = Graph(training.runner)
    values, loss = training.forward(graph)
    gradients = graph.gradients(loss)
    del loss
    chance = np.random.default_rng(1)
    for name, value in values.items():
        gradient = gradients[value.key].numpy()
        weight = training.weights[name].numpy()
        for place in chance.integers(0, weight.size, 2):
            there = np.unravel_index(place, weight.shape)
            assert gradient[there] == pytest.approx(slope(training, weight, there), rel=1e-4, abs=1e-8), name


def slope(training, weight, there, by=1e-6):
    """The finite difference of the loss along one number of a weight."""
    kept, losses = weight[there], []
    for sign in (1, -1):
        weight[there] = kept + sign * by
        losses.append(float(training.forward(Graph(training.runner))[1].tensor.numpy()))
    weight[there] = kept
    return (losses[0] - losses[1]) / (2 * by)


def weigh(graph, result, factors):
    """A single number that depends on every element of the result differently."""
    run, shape = graph.runner.run, result.shape
    made = run("weigh", (), lambda xp, out, x: xp.sum(x * factors, out=out), result.tensor)
    return graph.result(
        "weigh",
        made,
        [(result, lambda g: run("by", shape, lambda xp, out, g: xp.multiply(factors, g, out=out), g))],
    )


HEADS = Heads(batch=2, tokens=3, heads=2)
CASES = {
    "matmul": ([(3, 4), (4, 2)], op.matmul),
    "add": ([(3, 4), (3, 4)], op.add),
    "add to itself": ([(3, 4)], lambda graph, x: op.add(graph, x, x)),
    "bias": ([(2, 3, 4), (4,)], op.bias_add),
    "relu": ([(5, 4)], op.relu),
    "softmax": ([(2, 3, 4)], op.softmax),
    "reshape": ([(4, 6)], lambda graph, x: op.reshape(graph, x, 2, -1)),
    "mean": ([(2, 6, 3)], lambda graph, x: op.mean(graph, x, 3)),
    "conv2d": ([(2, 4, 5, 3), (3, 3, 3, 2)], conv2d),
    "wide conv2d": ([(1, 2, 3, 1), (5, 5, 1, 2)], conv2d),
    "pool": ([(2, 4, 6, 3)], mean_pool),
    "scores": ([(6, 4), (6, 4)], lambda graph, q, k: scores(graph, q, k, HEADS)),
    "weighted_values": ([(2, 2, 3, 3), (6, 4)], lambda graph, p, v: weighted_values(graph, p, v, HEADS)),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_gradients_of_operations_are_those_of_their_results(case, seed):
    shapes, operation = CASES[case]
    chance, runs = np.random.default_rng(seed), runner()
    inputs = [Tensor.of(runs.allocator, chance.normal(size=shape)) for shape in shapes]
    factors = None

    def total():
        nonlocal factors
        graph = Graph(runs)
        values = [graph.value(tensor, needs_gradient=True) for tensor in inputs]
        result = operation(graph, *values)
        factors = chance.normal(size=result.shape) if factors is None else factors
        return graph, values, weigh(graph, result, factors)

    graph, values, loss = total()
    gradients = graph.gradients(loss)
    del loss
    for tensor, value in zip(inputs, values, strict=True):
        numbers, gradient = tensor.numpy(), gradients[value.key].numpy()
        assert gradient.shape == numbers.shape
        for place in chance.integers(0, numbers.size, 3):
            there, by = np.unravel_index(place, numbers.shape), 1e-6
            kept, found = numbers[there], []
            for sign in (1, -1):
                numbers[there] = kept + sign * by
                found.append(float(total()[2].tensor.numpy()))
            numbers[there] = kept
            assert gradient[there] == pytest.approx((found[0] - found[1]) / (2 * by), rel=1e-5, abs=1e-7)


def test_the_backward_pass_lets_go_of_what_it_has_used():
    runs = runner()
    graph = Graph(runs)
    x = graph.value(Tensor.of(runs.allocator, np.ones((4, 4))), needs_gradient=True)
    value = x
    for _ in range(6):
        value = op.softmax(graph, value)
    loss = weigh(graph, value, np.ones((4, 4)))
    del value
    assert runs.allocator.stats().chunks_in_use == 8
    runs.allocator.clear_stats()
    gradients = graph.gradients(loss)
    assert runs.allocator.stats().peak_bytes_in_use <= 12 * 256  # not six more
    assert list(gradients) == [x.key]
    del loss, graph, gradients
    assert runs.allocator.stats().chunks_in_use == 1
