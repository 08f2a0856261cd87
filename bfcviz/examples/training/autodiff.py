"""Graph: what one step did, and what of it the gradients need; walked backwards, it lets go of both."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.kernel_runner import GRADIENTS, Machine

Gradient = Callable[[Tensor], Tensor]
"""From the gradient of a result to that of one of its inputs; holds the tensors that takes, and no others."""


class Value(NamedTuple):
    """A tensor in the graph; `wanted`: whether its gradient is."""

    tensor: Tensor
    key: int
    wanted: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor."""
        return self.tensor.shape


class _Node(NamedTuple):
    """An operation: its result's key, and for each input that wants one, key and gradient."""

    key: int
    scope: str
    sources: list[tuple[int, Gradient]]


class Graph:
    """The operations of a step, in order.

    Args:
        machine: runs them.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._nodes: list[_Node] = []
        self._count = 0

    def value(self, tensor: Tensor, *, wanted: bool = False) -> Value:
        """A tensor that comes from outside, such as a weight."""
        self._count += 1
        return Value(tensor, self._count, wanted)

    def result(self, name: str, tensor: Tensor, sources: Sequence[tuple[Value, Gradient]]) -> Value:
        """What an operation made, of which inputs, and how their gradients follow."""
        wanted = [(value.key, gradient) for value, gradient in sources if value.wanted]
        made = self.value(tensor, wanted=bool(wanted))
        if wanted:
            self._nodes.append(_Node(made.key, self.machine.named(name), wanted))
        return made

    def gradients(self, loss: Value) -> dict[int, Tensor]:
        """Gradients of a single element, by the keys of the outside values that want one; the graph is empty then."""
        machine = self.machine
        with machine.scope(GRADIENTS):
            found = {loss.key: machine.filled(loss.shape, "one", lambda: 1)}
            while self._nodes:
                node = self._nodes.pop()
                arrived = found.pop(node.key, None)
                if arrived is None:
                    continue
                with machine.scope(node.scope):
                    self._spread(node, arrived, found)
        return found

    def _spread(self, node: _Node, arrived: Tensor, found: dict[int, Tensor]) -> None:
        """From a result to its inputs; what that took is let go of, one input after the other."""
        while node.sources:
            key, gradient = node.sources.pop()
            part = gradient(arrived)
            del gradient
            before = found.pop(key, None)
            if before is not None:
                part = self.machine.run(
                    "sum", part.shape, lambda xp, out, a, b: xp.add(a, b, out=out), before, part
                )
            found[key] = part
