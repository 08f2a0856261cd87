"""Network: the base of all networks (sizes, weights, forward pass), and MLP, the simplest one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bfcviz.devices.tensors import Tensor
from bfcviz.devices.training.operations import (
    Graph,
    Shape,
    Value,
    add,
    bias_add,
    matmul,
    mean,
    relu,
    reshape,
    softmax,
)
from bfcviz.errors import InvalidRequest

# ------------------------------------------------------------------------------
# Network: the base of all networks (sizes, weights, forward pass), and MLP, the simplest one.


@dataclass(frozen=True)
class Network(ABC):
    """A network for classification.

    Attributes:
        batch: examples per step.
        classes: number of classes.

    Raises:
        InvalidRequest: impossible sizes.
    """

    batch: int = 32
    classes: int = 10

    def __post_init__(self) -> None:
        self.expect(self.batch > 0 and self.classes > 0, "give a batch and classes of 1 or more")

    def expect(self, condition: bool, advice: str) -> None:  # noqa: FBT001  reads as a condition
        """Raise InvalidRequest with advice unless the condition is true."""
        if not condition:
            raise InvalidRequest(f"{self} is not possible: {advice}")

    @property
    @abstractmethod
    def name(self) -> str:
        """The network's name."""

    @property
    @abstractmethod
    def input_shape(self) -> Shape:
        """Shape of a batch."""

    @abstractmethod
    def parameters(self) -> dict[str, Shape]:
        """Shapes of the weights by name."""

    @abstractmethod
    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass: from a batch to logits [batch, classes]."""


def dense(graph: Graph, x: Value, weights: dict[str, Value], name: str) -> Value:
    """A dense layer: [n, a] to [n, b]."""
    with graph.runner.scope(name):
        return bias_add(graph, matmul(graph, x, weights[f"{name}/kernel"]), weights[f"{name}/bias"])


@dataclass(frozen=True)
class MLP(Network):
    """Dense layers with ReLU between them.

    Attributes:
        sizes: size of the input and of each hidden layer.
    """

    sizes: tuple[int, ...] = (64, 256, 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(
            bool(self.sizes) and min(self.sizes) > 0,
            "give at least the size of the input, each size 1 or more",
        )

    @property
    def name(self) -> str:
        """The network's name."""
        return "MLP"

    @property
    def input_shape(self) -> Shape:
        """Shape of a batch."""
        return (self.batch, self.sizes[0])

    def parameters(self) -> dict[str, Shape]:
        """A kernel and a bias per layer."""
        sizes = (*self.sizes, self.classes)
        shapes: dict[str, Shape] = {}
        for number, pair in enumerate(pairwise(sizes), 1):
            shapes[f"dense_{number}/kernel"] = pair
            shapes[f"dense_{number}/bias"] = pair[1:]
        return shapes

    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass."""
        for number in range(1, len(self.sizes)):
            x = relu(graph, dense(graph, x, weights, f"dense_{number}"))
        return dense(graph, x, weights, f"dense_{len(self.sizes)}")


# ------------------------------------------------------------------------------
# Attention, and a small transformer: one matrix [tokens, tokens] per head and example.


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


# ------------------------------------------------------------------------------
# Convolutions, and a small convolutional network: large, short-lived scratch memory.


def conv2d(graph: Graph, image: Value, filters: Value, name: str = "Conv2D") -> Value:
    """Images [n, h, w, c] with filters [k, k, c, d], k odd, to [n, h, w, d], padded with 0.

    Each kernel gathers the k x k patch of every pixel in scratch memory and does one matrix product.
    """
    run, x, f = graph.runner.run, image.tensor, filters.tensor
    patches = (*x.shape[:3], *f.shape[:3])
    made = run(name, (*x.shape[:3], f.shape[3]), _convolve, x, f, scratch=[patches])

    def to_image(upstream: Tensor, f: Tensor = f, shape: Shape = x.shape) -> Tensor:
        return run("by_input", shape, _by_image, upstream, f, scratch=[patches])

    def to_filters(upstream: Tensor, x: Tensor = x, shape: Shape = f.shape) -> Tensor:
        return run("by_filter", shape, _by_filters, upstream, x, scratch=[patches])

    return graph.result(name, made, [(image, to_image), (filters, to_filters)])


def _shifts(
    size: int, height: int, width: int
) -> Iterator[tuple[int, int, tuple[Any, ...], tuple[Any, ...]]]:
    """For each position in a filter: the pixels that have a neighbour there, and those neighbours."""
    for row in range(size):
        for column in range(size):
            rows, columns = _shift(row - size // 2, height), _shift(column - size // 2, width)
            yield row, column, (slice(None), rows[0], columns[0]), (slice(None), rows[1], columns[1])


def _shift(by: int, length: int) -> tuple[slice, slice]:
    first, last = max(0, -by), max(0, length - max(0, by))
    return slice(first, last), slice(first + by, last + by)


def _gather(patches: Any, x: Any) -> Any:
    """Fill patches [n, h, w, k, k, c] and view them as a matrix."""
    patches[...] = 0
    for row, column, pixels, neighbours in _shifts(patches.shape[3], *x.shape[1:3]):
        patches[(*pixels, row, column)] = x[neighbours]
    return _matrix(patches)


def _matrix(patches: Any) -> Any:
    n, h, w, k, l, c = patches.shape  # noqa: E741
    return patches.reshape(n * h * w, k * l * c)


def _rows(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1])


def _convolve(xp: Any, out: Any, x: Any, f: Any, patches: Any) -> None:
    xp.matmul(_gather(patches, x), _rows(f), out=_rows(out))


def _by_filters(xp: Any, out: Any, g: Any, x: Any, patches: Any) -> None:
    xp.matmul(_gather(patches, x).T, _rows(g), out=_rows(out))


def _by_image(xp: Any, out: Any, g: Any, f: Any, patches: Any) -> None:
    xp.matmul(_rows(g), _rows(f).T, out=_matrix(patches))
    out[...] = 0
    for row, column, pixels, neighbours in _shifts(patches.shape[3], *out.shape[1:3]):
        out[neighbours] += patches[(*pixels, row, column)]


def mean_pool(graph: Graph, image: Value, name: str = "AvgPool") -> Value:
    """Images [n, h, w, c] to [n, h/2, w/2, c]; h and w are even."""
    run = graph.runner.run
    n, h, w, c = image.shape
    split = (n, h // 2, 2, w // 2, 2, c)

    def pool(xp: Any, out: Any, x: Any) -> None:
        xp.mean(x.reshape(split), axis=(2, 4), out=out)

    def spread(xp: Any, out: Any, g: Any) -> None:
        xp.divide(g[:, :, None, :, None], 4, out=out.reshape(split))

    made = run(name, (n, h // 2, w // 2, c), pool, image.tensor)
    return graph.result(
        name, made, [(image, lambda upstream: run("by_input", (n, h, w, c), spread, upstream))]
    )


@dataclass(frozen=True)
class ConvNet(Network):
    """Convolutions with ReLU, each followed by a pool that halves the image; then one dense layer.

    Attributes:
        image: pixels along each side; can be halved once per convolution.
        channels: channels of the image, and of each convolution's result.
        size: side of the filters, odd.
    """

    image: int = 16
    channels: tuple[int, ...] = (3, 16, 32)
    size: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(
            bool(self.channels) and min(self.channels) > 0,
            "give at least the image's channels, each 1 or more",
        )
        parts = 1 << (len(self.channels) - 1)
        self.expect(
            self.image > 0 and self.image % parts == 0, f"give an image size that is a multiple of {parts}"
        )
        self.expect(self.size > 0 and self.size % 2 == 1, "give filters of an odd size")

    @property
    def name(self) -> str:
        """The network's name."""
        return "convnet"

    @property
    def input_shape(self) -> Shape:
        """Shape of a batch."""
        return (self.batch, self.image, self.image, self.channels[0])

    def parameters(self) -> dict[str, Shape]:
        """Filters and biases of the convolutions, then the dense layer."""
        shapes: dict[str, Shape] = {}
        for number, (c, d) in enumerate(pairwise(self.channels), 1):
            shapes[f"conv_{number}/filter"] = (self.size, self.size, c, d)
            shapes[f"conv_{number}/bias"] = (d,)
        side = self.image >> (len(self.channels) - 1)
        return {
            **shapes,
            "dense/kernel": (side * side * self.channels[-1], self.classes),
            "dense/bias": (self.classes,),
        }

    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass."""
        for number in range(1, len(self.channels)):
            with graph.runner.scope(f"conv_{number}"):
                x = conv2d(graph, x, weights[f"conv_{number}/filter"])
                x = bias_add(graph, x, weights[f"conv_{number}/bias"])
                x = mean_pool(graph, relu(graph, x))
        return dense(graph, reshape(graph, x, self.batch, -1), weights, "dense")
