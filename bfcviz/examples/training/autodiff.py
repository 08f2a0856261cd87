"""Automatic differentiation: a graph of one step's operations; the backward pass frees what it has used."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.tensors_and_kernels import GRADIENTS, KernelRunner

Gradient = Callable[[Tensor], Tensor]
"""Maps the gradient of a result to the gradient of one input; it holds only the tensors it needs."""


class Value(NamedTuple):
    """A tensor in the graph; `needs_gradient`: whether the backward pass computes its gradient."""

    tensor: Tensor
    key: int
    needs_gradient: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.tensor.shape


class _Node(NamedTuple):
    """An operation: its result's key, and key and gradient of each input that needs one."""

    key: int
    scope: str
    sources: list[tuple[int, Gradient]]


class Graph:
    """The operations of a step, in order.

    Args:
        runner: runs their kernels.
    """

    def __init__(self, runner: KernelRunner) -> None:
        self.runner = runner
        self._nodes: list[_Node] = []
        self._count = 0

    def value(self, tensor: Tensor, *, needs_gradient: bool = False) -> Value:
        """Add a tensor from outside the graph, such as a weight."""
        self._count += 1
        return Value(tensor, self._count, needs_gradient)

    def result(self, name: str, tensor: Tensor, sources: Sequence[tuple[Value, Gradient]]) -> Value:
        """Add the result of an operation, with its inputs and their gradients."""
        inputs = [(value.key, gradient) for value, gradient in sources if value.needs_gradient]
        made = self.value(tensor, needs_gradient=bool(inputs))
        if inputs:
            self._nodes.append(_Node(made.key, self.runner.named(name), inputs))
        return made

    def gradients(self, loss: Value) -> dict[int, Tensor]:
        """Backward pass from a single element: gradients by key of the outside values; it empties the graph."""
        runner = self.runner
        with runner.scope(GRADIENTS):
            found = {loss.key: runner.filled(loss.shape, "one", lambda: 1)}
            while self._nodes:
                node = self._nodes.pop()
                upstream = found.pop(node.key, None)
                if upstream is None:
                    continue
                with runner.scope(node.scope):
                    self._spread(node, upstream, found)
        return found

    def _spread(self, node: _Node, upstream: Tensor, found: dict[int, Tensor]) -> None:
        """Pass a gradient from a result to its inputs; free what each input's gradient used before the next."""
        while node.sources:
            key, gradient = node.sources.pop()
            part = gradient(upstream)
            del gradient
            before = found.pop(key, None)
            if before is not None:
                part = self.runner.run(
                    "sum", part.shape, lambda xp, out, a, b: xp.add(a, b, out=out), before, part
                )
            found[key] = part
