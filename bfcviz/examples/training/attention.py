"""Attention, and a small transformer: one matrix [tokens, tokens] per head and example."""

from dataclasses import dataclass
from typing import Any

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.autodiff import Graph, Value
from bfcviz.examples.training.networks import Network, dense
from bfcviz.examples.training.operations import add, matmul, mean, relu, softmax
from bfcviz.examples.training.tensors_and_kernels import Shape


@dataclass(frozen=True)
class Heads:
    """Splits the rows [batch * tokens, width] of a sequence into attention heads."""

    batch: int
    tokens: int
    heads: int

    def split(self, x: Any) -> Any:
        """An array as [batch, heads, tokens, width / heads]."""
        return x.reshape(self.batch, self.tokens, self.heads, -1).transpose(0, 2, 1, 3)

    @property
    def square(self) -> Shape:
        """Shape of the scores."""
        return (self.batch, self.heads, self.tokens, self.tokens)


def scores(graph: Graph, query: Value, key: Value, heads: Heads) -> Value:
    """Attention scores: query times key, divided by the square root of a head's width."""
    run, q, k = graph.runner.run, query.tensor, key.tensor
    scale = (q.shape[-1] // heads.heads) ** -0.5

    def kernel(xp: Any, out: Any, q: Any, k: Any) -> None:
        xp.matmul(heads.split(q), heads.split(k).swapaxes(2, 3), out=out)
        xp.multiply(out, scale, out=out)

    def by_query(xp: Any, out: Any, g: Any, k: Any) -> None:
        xp.matmul(g, heads.split(k), out=heads.split(out))
        xp.multiply(out, scale, out=out)

    def by_key(xp: Any, out: Any, g: Any, q: Any) -> None:
        xp.matmul(g.swapaxes(2, 3), heads.split(q), out=heads.split(out))
        xp.multiply(out, scale, out=out)

    def to_query(upstream: Tensor, k: Tensor = k) -> Tensor:
        return run("by_query", k.shape, by_query, upstream, k)

    def to_key(upstream: Tensor, q: Tensor = q) -> Tensor:
        return run("by_key", q.shape, by_key, upstream, q)

    made = run("Scores", heads.square, kernel, q, k)
    return graph.result("Scores", made, [(query, to_query), (key, to_key)])


def weighted_values(graph: Graph, probabilities: Value, value: Value, heads: Heads) -> Value:
    """The values of all tokens, weighted by the probabilities."""
    run, p, v = graph.runner.run, probabilities.tensor, value.tensor

    def kernel(xp: Any, out: Any, p: Any, v: Any) -> None:
        xp.matmul(p, heads.split(v), out=heads.split(out))

    def by_probabilities(xp: Any, out: Any, g: Any, v: Any) -> None:
        xp.matmul(heads.split(g), heads.split(v).swapaxes(2, 3), out=out)

    def by_value(xp: Any, out: Any, g: Any, p: Any) -> None:
        xp.matmul(p.swapaxes(2, 3), heads.split(g), out=heads.split(out))

    def to_probabilities(upstream: Tensor, v: Tensor = v) -> Tensor:
        return run("by_probabilities", heads.square, by_probabilities, upstream, v)

    def to_value(upstream: Tensor, p: Tensor = p, shape: Shape = v.shape) -> Tensor:
        return run("by_value", shape, by_value, upstream, p)

    made = run("Mixed", v.shape, kernel, p, v)
    return graph.result("Mixed", made, [(probabilities, to_probabilities), (value, to_value)])


@dataclass(frozen=True)
class Attention(Network):
    """Layers of attention and two dense layers, each with a residual; then the mean over the tokens.

    Attributes:
        tokens: tokens per example.
        width: numbers per token; a multiple of `heads`.
        heads: heads per layer.
        layers: number of layers.
    """

    tokens: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(min(self.tokens, self.width, self.heads, self.layers) > 0, "give 1 or more for each size")
        self.expect(self.width % self.heads == 0, "give a width that the number of heads divides")

    @property
    def name(self) -> str:
        """The network's name."""
        return "attention"

    @property
    def input_shape(self) -> Shape:
        """Shape of a batch."""
        return (self.batch * self.tokens, self.width)

    def parameters(self) -> dict[str, Shape]:
        """Four attention matrices and two dense layers per layer, and the last dense layer."""
        shapes: dict[str, Shape] = {}
        for number in range(1, self.layers + 1):
            shapes |= {
                f"layer_{number}/{part}": (self.width, self.width)
                for part in ("query", "key", "value", "out")
            }
            for name, pair in (("up", (self.width, 4 * self.width)), ("down", (4 * self.width, self.width))):
                shapes[f"layer_{number}/{name}/kernel"] = pair
                shapes[f"layer_{number}/{name}/bias"] = pair[1:]
        return {**shapes, "dense/kernel": (self.width, self.classes), "dense/bias": (self.classes,)}

    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass."""
        for number in range(1, self.layers + 1):
            start = f"layer_{number}/"
            own = {
                name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)
            }
            with graph.runner.scope(f"layer_{number}"):
                x = add(graph, x, self._attend(graph, own, x))
                up = relu(graph, dense(graph, x, own, "up"))
                x = add(graph, x, dense(graph, up, own, "down"))
        return dense(graph, mean(graph, x, self.tokens), weights, "dense")

    def _attend(self, graph: Graph, own: dict[str, Value], x: Value) -> Value:
        heads = Heads(self.batch, self.tokens, self.heads)
        query, key, value = (matmul(graph, x, own[part], part) for part in ("query", "key", "value"))
        probabilities = softmax(graph, scores(graph, query, key, heads))
        return matmul(graph, weighted_values(graph, probabilities, value, heads), own["out"], "out")
