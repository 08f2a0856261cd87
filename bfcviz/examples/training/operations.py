"""Operations of networks, each with its gradients. Kernels write only into the arrays they get."""

from math import prod
from typing import Any

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.autodiff import Graph, Value


def matmul(graph: Graph, left: Value, right: Value, name: str = "MatMul") -> Value:
    """Matrix product of [a, b] and [b, c]."""
    run, a, b = graph.runner.run, left.tensor, right.tensor
    made = run(name, (a.shape[0], b.shape[1]), _matmul, a, b)

    def to_left(upstream: Tensor, b: Tensor = b, shape: Any = a.shape) -> Tensor:
        return run("by_left", shape, lambda xp, out, g, b: xp.matmul(g, b.T, out=out), upstream, b)

    def to_right(upstream: Tensor, a: Tensor = a, shape: Any = b.shape) -> Tensor:
        return run("by_right", shape, lambda xp, out, g, a: xp.matmul(a.T, g, out=out), upstream, a)

    return graph.result(name, made, [(left, to_left), (right, to_right)])


def _matmul(xp: Any, out: Any, a: Any, b: Any) -> None:
    xp.matmul(a, b, out=out)


def add(graph: Graph, left: Value, right: Value, name: str = "Add") -> Value:
    """Sum of two values of one shape; both inputs get the same gradient tensor."""
    made = graph.runner.run(name, left.shape, _add, left.tensor, right.tensor)
    return graph.result(name, made, [(left, _pass), (right, _pass)])


def _add(xp: Any, out: Any, a: Any, b: Any) -> None:
    xp.add(a, b, out=out)


def _pass(upstream: Tensor) -> Tensor:
    return upstream


def bias_add(graph: Graph, value: Value, bias: Value, name: str = "BiasAdd") -> Value:
    """Add a bias [c] to each row of [..., c]."""
    run, width = graph.runner.run, bias.shape
    made = run(name, value.shape, _add, value.tensor, bias.tensor)

    def to_bias(upstream: Tensor) -> Tensor:
        return run("by_bias", width, _sum_rows, upstream)

    return graph.result(name, made, [(value, _pass), (bias, to_bias)])


def _sum_rows(xp: Any, out: Any, g: Any) -> None:
    xp.sum(g.reshape(-1, g.shape[-1]), axis=0, out=out)


def relu(graph: Graph, value: Value, name: str = "Relu") -> Value:
    """Maximum of value and 0. Its gradient needs the result, not the input."""
    run = graph.runner.run
    made = run(name, value.shape, lambda xp, out, x: xp.maximum(x, 0, out=out), value.tensor)

    def to_value(upstream: Tensor, made: Tensor = made) -> Tensor:
        return run("by_input", made.shape, _relu_gradient, upstream, made)

    return graph.result(name, made, [(value, to_value)])


def _relu_gradient(xp: Any, out: Any, g: Any, y: Any) -> None:
    xp.greater(y, 0, out=out)
    xp.multiply(out, g, out=out)


def reshape(graph: Graph, value: Value, *shape: int) -> Value:
    """Reshape a value; the result is a view and allocates nothing."""
    before = value.shape
    made = value.tensor.reshape(*shape)
    return graph.result("Reshape", made, [(value, lambda upstream: upstream.reshape(before))])


def softmax(graph: Graph, value: Value, name: str = "Softmax") -> Value:
    """Softmax along the last dimension."""
    run, rows = graph.runner.run, (*value.shape[:-1], 1)
    made = run(name, value.shape, _softmax, value.tensor, scratch=[rows])

    def to_value(upstream: Tensor, made: Tensor = made) -> Tensor:
        return run("by_input", made.shape, _softmax_gradient, upstream, made, scratch=[rows])

    return graph.result(name, made, [(value, to_value)])


def _softmax(xp: Any, out: Any, x: Any, row: Any) -> None:
    xp.max(x, axis=-1, keepdims=True, out=row)
    xp.subtract(x, row, out=out)
    xp.exp(out, out=out)
    xp.sum(out, axis=-1, keepdims=True, out=row)
    xp.divide(out, row, out=out)


def _softmax_gradient(xp: Any, out: Any, g: Any, y: Any, row: Any) -> None:
    xp.multiply(g, y, out=out)
    xp.sum(out, axis=-1, keepdims=True, out=row)
    xp.subtract(g, row, out=out)
    xp.multiply(out, y, out=out)


def cross_entropy(graph: Graph, logits: Value, targets: Value, name: str = "CrossEntropy") -> Value:
    """Cross entropy of softmax(logits) [n, c] and targets [n, c]: a single number, the mean over the rows."""
    runner, shape = graph.runner, logits.shape
    with runner.scope(name):
        probabilities = runner.run("Softmax", shape, _softmax, logits.tensor, scratch=[(shape[0], 1)])
        made = runner.run("Loss", (), _loss, probabilities, targets.tensor, scratch=[shape])

    def to_logits(
        upstream: Tensor, probabilities: Tensor = probabilities, expected: Tensor = targets.tensor
    ) -> Tensor:
        return runner.run("by_logits", shape, _loss_gradient, upstream, probabilities, expected)

    return graph.result(name, made, [(logits, to_logits)])


def _loss(xp: Any, out: Any, probabilities: Any, expected: Any, log: Any) -> None:
    xp.maximum(probabilities, 1e-30, out=log)
    xp.log(log, out=log)
    xp.multiply(log, expected, out=log)
    xp.sum(log, out=out)
    xp.divide(out, -len(probabilities), out=out)


def _loss_gradient(xp: Any, out: Any, g: Any, probabilities: Any, expected: Any) -> None:
    xp.subtract(probabilities, expected, out=out)
    xp.multiply(out, g, out=out)
    xp.divide(out, len(probabilities), out=out)


def mean(graph: Graph, value: Value, groups: int, name: str = "Mean") -> Value:
    """Mean of [a, groups, c] over the middle, as [a, c]; the value may have any shape with as many elements."""
    run, width = graph.runner.run, value.shape[-1]
    rows = prod(value.shape) // groups // width
    before, parts = value.shape, (rows, groups, width)

    def kernel(xp: Any, out: Any, x: Any) -> None:
        xp.mean(x.reshape(parts), axis=1, out=out)

    def spread(xp: Any, out: Any, g: Any) -> None:
        xp.divide(g[:, None], groups, out=out.reshape(parts))

    made = run(name, (rows, width), kernel, value.tensor)
    return graph.result(name, made, [(value, lambda upstream: run("by_input", before, spread, upstream))])
