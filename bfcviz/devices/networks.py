"""Networks: a graph of one step's operations with their gradients; an MLP, attention, and convolutions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple

from bfcviz.devices.kernel_runner import GRADIENTS, Gradient, KernelRunner, Shape
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import InvalidRequest

# ------------------------------------------------------------------------------
# Automatic differentiation: a graph of one step's operations; the backward pass frees what it has used.


class Value(NamedTuple):
    """A tensor in the graph of a network; `needs_gradient`: whether the backward pass computes its gradient."""

    tensor: Tensor
    key: int
    needs_gradient: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a tensor in the graph of a network."""
        return self.tensor.shape


class _Node(NamedTuple):
    """An operation in the graph of a network: its result's key, and key and gradient of each input that needs one."""

    key: int
    scope: str
    sources: list[tuple[int, Gradient]]


class Graph:
    """The operations of a step of a network, in order."""

    def __init__(self, runner: KernelRunner) -> None:
        self.runner = runner
        self._nodes: list[_Node] = []
        self._count = 0

    def value(self, tensor: Tensor, *, needs_gradient: bool = False) -> Value:
        """Add a tensor from outside the graph of a network, such as a weight."""
        self._count += 1
        return Value(tensor, self._count, needs_gradient)

    def result(self, name: str, tensor: Tensor, sources: Sequence[tuple[Value, Gradient]]) -> Value:
        """Add the result of an operation to the graph of a network, with its inputs and their gradients."""
        inputs = [(value.key, gradient) for value, gradient in sources if value.needs_gradient]
        made = self.value(tensor, needs_gradient=bool(inputs))
        if inputs:
            self._nodes.append(_Node(made.key, self.runner.named(name), inputs))
        return made

    def gradients(self, loss: Value) -> dict[int, Tensor]:
        """Backward pass of a network from one element: gradients by key of the outside values. It empties the graph."""
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
        """Pass a gradient of a network from a result to its inputs; free what each gradient used before the next."""
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


# ------------------------------------------------------------------------------
# Operations of networks, each with its gradients. Kernels write only into the arrays they get.


def matmul(graph: Graph, left: Value, right: Value, name: str = "MatMul") -> Value:
    """Matrix product of [a, b] and [b, c]."""
    runner, a, b = graph.runner, left.tensor, right.tensor
    made = runner.run(name, (a.shape[0], b.shape[1]), lambda xp, out, a, b: xp.matmul(a, b, out=out), a, b)
    to_left = runner.gradient("by_left", a.shape, lambda xp, out, g, b: xp.matmul(g, b.T, out=out), b)
    to_right = runner.gradient("by_right", b.shape, lambda xp, out, g, a: xp.matmul(a.T, g, out=out), a)
    return graph.result(name, made, [(left, to_left), (right, to_right)])


def add(graph: Graph, left: Value, right: Value, name: str = "Add") -> Value:
    """Sum of two values of one shape; both inputs get the same gradient tensor."""
    made = graph.runner.run(name, left.shape, _add_kernel, left.tensor, right.tensor)
    return graph.result(name, made, [(left, _pass_gradient), (right, _pass_gradient)])


def _add_kernel(xp: Any, out: Any, a: Any, b: Any) -> None:
    xp.add(a, b, out=out)


def _pass_gradient(upstream: Tensor) -> Tensor:
    return upstream


def bias_add(graph: Graph, value: Value, bias: Value, name: str = "BiasAdd") -> Value:
    """Add a bias [c] to each row of [..., c]."""
    made = graph.runner.run(name, value.shape, _add_kernel, value.tensor, bias.tensor)
    to_bias = graph.runner.gradient("by_bias", bias.shape, _bias_gradient)
    return graph.result(name, made, [(value, _pass_gradient), (bias, to_bias)])


def _bias_gradient(xp: Any, out: Any, g: Any) -> None:
    xp.sum(g.reshape(-1, g.shape[-1]), axis=0, out=out)


def relu(graph: Graph, value: Value, name: str = "Relu") -> Value:
    """Maximum of value and 0. Its gradient needs the result, not the input."""
    runner = graph.runner
    made = runner.run(name, value.shape, lambda xp, out, x: xp.maximum(x, 0, out=out), value.tensor)
    return graph.result(name, made, [(value, runner.gradient("by_input", made.shape, _relu_gradient, made))])


def _relu_gradient(xp: Any, out: Any, g: Any, y: Any) -> None:
    xp.greater(y, 0, out=out)
    xp.multiply(out, g, out=out)


def reshape(graph: Graph, value: Value, *shape: int) -> Value:
    """Reshape a value in a network; the result is a view and allocates nothing."""
    before = value.shape
    made = value.tensor.reshape(*shape)
    return graph.result("Reshape", made, [(value, lambda upstream: upstream.reshape(before))])


def softmax(graph: Graph, value: Value, name: str = "Softmax") -> Value:
    """Softmax along the last dimension."""
    runner, rows = graph.runner, [(*value.shape[:-1], 1)]
    made = runner.run(name, value.shape, _softmax_kernel, value.tensor, scratch=rows)
    to_value = runner.gradient("by_input", made.shape, _softmax_gradient, made, scratch=rows)
    return graph.result(name, made, [(value, to_value)])


def _softmax_kernel(xp: Any, out: Any, x: Any, row: Any) -> None:
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
        probabilities = runner.run("Softmax", shape, _softmax_kernel, logits.tensor, scratch=[(shape[0], 1)])
        made = runner.run("Loss", (), _cross_entropy_kernel, probabilities, targets.tensor, scratch=[shape])
    to_logits = runner.gradient("by_logits", shape, _cross_entropy_gradient, probabilities, targets.tensor)
    return graph.result(name, made, [(logits, to_logits)])


def _cross_entropy_kernel(xp: Any, out: Any, probabilities: Any, expected: Any, log: Any) -> None:
    xp.maximum(probabilities, 1e-30, out=log)
    xp.log(log, out=log)
    xp.multiply(log, expected, out=log)
    xp.sum(log, out=out)
    xp.divide(out, -len(probabilities), out=out)


def _cross_entropy_gradient(xp: Any, out: Any, g: Any, probabilities: Any, expected: Any) -> None:
    xp.subtract(probabilities, expected, out=out)
    xp.multiply(out, g, out=out)
    xp.divide(out, len(probabilities), out=out)


def mean(graph: Graph, value: Value, groups: int, name: str = "Mean") -> Value:
    """Mean of [a, groups, c] over the middle, as [a, c]; the value may have any shape with as many elements."""
    width = value.shape[-1]
    rows = prod(value.shape) // groups // width
    parts = rows, groups, width

    def kernel(xp: Any, out: Any, x: Any) -> None:
        xp.mean(x.reshape(parts), axis=1, out=out)

    def spread(xp: Any, out: Any, g: Any) -> None:
        xp.divide(g[:, None], groups, out=out.reshape(parts))

    made = graph.runner.run(name, (rows, width), kernel, value.tensor)
    return graph.result(name, made, [(value, graph.runner.gradient("by_input", value.shape, spread))])


# ------------------------------------------------------------------------------
# Network: the base of all networks (sizes, weights, forward pass), and MLP, the simplest one.


@dataclass(frozen=True)
class Network(ABC):
    """A network for classification.

    Raises:
        InvalidRequest: impossible sizes.
    """

    name: ClassVar[str]  # of the network
    batch: int = 32  # examples per step
    classes: int = 10  # number of classes

    def __post_init__(self) -> None:
        self.expect(self.batch > 0 and self.classes > 0, "give a batch and classes of 1 or more")

    def expect(self, condition: bool, advice: str) -> None:  # noqa: FBT001  reads as a condition
        """Raise InvalidRequest with advice unless the condition of a network is true."""
        if not condition:
            raise InvalidRequest(f"{self} is not possible: {advice}")

    @property
    @abstractmethod
    def input_shape(self) -> Shape:
        """Shape of a batch for the network."""

    @abstractmethod
    def parameters(self) -> dict[str, Shape]:
        """Shapes of the weights of a network by name."""

    @abstractmethod
    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass of a network: from a batch to logits [batch, classes]."""


def dense(graph: Graph, x: Value, weights: dict[str, Value], name: str) -> Value:
    """A dense layer of a network: [n, a] to [n, b]."""
    with graph.runner.scope(name):
        return bias_add(graph, matmul(graph, x, weights[f"{name}/kernel"]), weights[f"{name}/bias"])


@dataclass(frozen=True)
class MLP(Network):
    """A network of dense layers with ReLU between them."""

    name = "MLP"
    sizes: tuple[int, ...] = (64, 256, 128)  # size of the input and of each hidden layer

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(
            bool(self.sizes) and min(self.sizes) > 0,
            "give at least the size of the input, each size 1 or more",
        )

    @property
    def input_shape(self) -> Shape:
        """Shape of a batch for this network."""
        return (self.batch, self.sizes[0])

    def parameters(self) -> dict[str, Shape]:
        """Shapes of the weights of this network: a kernel and a bias per layer."""
        sizes = (*self.sizes, self.classes)
        shapes: dict[str, Shape] = {}
        for number, pair in enumerate(pairwise(sizes), 1):
            shapes[f"dense_{number}/kernel"] = pair
            shapes[f"dense_{number}/bias"] = pair[1:]
        return shapes

    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward pass of this network."""
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
    """Attention scores of a network: query times key, divided by the square root of a head's width."""
    runner, q, k = graph.runner, query.tensor, key.tensor
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

    made = runner.run("Scores", heads.square, kernel, q, k)
    to_query = runner.gradient("by_query", k.shape, by_query, k)
    to_key = runner.gradient("by_key", q.shape, by_key, q)
    return graph.result("Scores", made, [(query, to_query), (key, to_key)])


def weighted_values(graph: Graph, probabilities: Value, value: Value, heads: Heads) -> Value:
    """The values of all tokens, weighted by the probabilities."""
    runner, p, v = graph.runner, probabilities.tensor, value.tensor

    def kernel(xp: Any, out: Any, p: Any, v: Any) -> None:
        xp.matmul(p, heads.split(v), out=heads.split(out))

    def by_probabilities(xp: Any, out: Any, g: Any, v: Any) -> None:
        xp.matmul(heads.split(g), heads.split(v).swapaxes(2, 3), out=out)

    def by_value(xp: Any, out: Any, g: Any, p: Any) -> None:
        xp.matmul(p.swapaxes(2, 3), heads.split(g), out=heads.split(out))

    made = runner.run("Mixed", v.shape, kernel, p, v)
    to_probabilities = runner.gradient("by_probabilities", heads.square, by_probabilities, v)
    to_value = runner.gradient("by_value", v.shape, by_value, p)
    return graph.result("Mixed", made, [(probabilities, to_probabilities), (value, to_value)])


@dataclass(frozen=True)
class Attention(Network):
    """A network of layers of attention and two dense layers, each with a residual; then the mean over the tokens."""

    name = "attention"
    tokens: int = 16  # tokens per example
    width: int = 32  # numbers per token; a multiple of `heads`
    heads: int = 4  # heads per layer
    layers: int = 1  # number of layers

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(min(self.tokens, self.width, self.heads, self.layers) > 0, "give 1 or more for each size")
        self.expect(self.width % self.heads == 0, "give a width that the number of heads divides")

    @property
    def input_shape(self) -> Shape:
        """Shape of a batch for this network."""
        return (self.batch * self.tokens, self.width)

    def parameters(self) -> dict[str, Shape]:
        """Shapes of its weights: four attention matrices and two dense layers per layer, and the last dense layer."""
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
        """Forward pass of this network."""
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
    runner, x, f = graph.runner, image.tensor, filters.tensor
    patches = [(*x.shape[:3], *f.shape[:3])]
    made = runner.run(name, (*x.shape[:3], f.shape[3]), _convolution_kernel, x, f, scratch=patches)
    to_image = runner.gradient("by_input", x.shape, _image_gradient, f, scratch=patches)
    to_filters = runner.gradient("by_filter", f.shape, _filter_gradient, x, scratch=patches)
    return graph.result(name, made, [(image, to_image), (filters, to_filters)])


def _filter_shifts(
    size: int, height: int, width: int
) -> Iterator[tuple[int, int, tuple[Any, ...], tuple[Any, ...]]]:
    """For each position in a filter: the pixels that have a neighbour there, and those neighbours."""
    for row in range(size):
        for column in range(size):
            rows = _filter_shift_slices(row - size // 2, height)
            columns = _filter_shift_slices(column - size // 2, width)
            yield row, column, (slice(None), rows[0], columns[0]), (slice(None), rows[1], columns[1])


def _filter_shift_slices(by: int, length: int) -> tuple[slice, slice]:
    """For a convolution of the training: the pixels that have a neighbour at a distance, and those neighbours."""
    first, last = max(0, -by), max(0, length - max(0, by))
    return slice(first, last), slice(first + by, last + by)


def _gather_patches(patches: Any, x: Any) -> Any:
    """Fill patches [n, h, w, k, k, c] and view them as a matrix."""
    patches[...] = 0
    for row, column, pixels, neighbours in _filter_shifts(patches.shape[3], *x.shape[1:3]):
        patches[(*pixels, row, column)] = x[neighbours]
    return _patches_as_matrix(patches)


def _patches_as_matrix(patches: Any) -> Any:
    n, h, w, k, l, c = patches.shape  # noqa: E741
    return patches.reshape(n * h * w, k * l * c)


def _channels_as_rows(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1])


def _convolution_kernel(xp: Any, out: Any, x: Any, f: Any, patches: Any) -> None:
    xp.matmul(_gather_patches(patches, x), _channels_as_rows(f), out=_channels_as_rows(out))


def _filter_gradient(xp: Any, out: Any, g: Any, x: Any, patches: Any) -> None:
    xp.matmul(_gather_patches(patches, x).T, _channels_as_rows(g), out=_channels_as_rows(out))


def _image_gradient(xp: Any, out: Any, g: Any, f: Any, patches: Any) -> None:
    xp.matmul(_channels_as_rows(g), _channels_as_rows(f).T, out=_patches_as_matrix(patches))
    out[...] = 0
    for row, column, pixels, neighbours in _filter_shifts(patches.shape[3], *out.shape[1:3]):
        out[neighbours] += patches[(*pixels, row, column)]


def mean_pool(graph: Graph, image: Value, name: str = "AvgPool") -> Value:
    """Images [n, h, w, c] to [n, h/2, w/2, c]; h and w are even."""
    n, h, w, c = image.shape
    split = (n, h // 2, 2, w // 2, 2, c)

    def pool(xp: Any, out: Any, x: Any) -> None:
        xp.mean(x.reshape(split), axis=(2, 4), out=out)

    def spread(xp: Any, out: Any, g: Any) -> None:
        xp.divide(g[:, :, None, :, None], 4, out=out.reshape(split))

    made = graph.runner.run(name, (n, h // 2, w // 2, c), pool, image.tensor)
    return graph.result(name, made, [(image, graph.runner.gradient("by_input", image.shape, spread))])


@dataclass(frozen=True)
class ConvNet(Network):
    """A network of convolutions with ReLU, each followed by a pool that halves the image; then one dense layer."""

    name = "convnet"
    image: int = 16  # pixels along each side; can be halved once per convolution
    channels: tuple[int, ...] = (3, 16, 32)  # channels of the image, and of each convolution's result
    size: int = 3  # side of the filters, odd

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
    def input_shape(self) -> Shape:
        """Shape of a batch for this network."""
        return (self.batch, self.image, self.image, self.channels[0])

    def parameters(self) -> dict[str, Shape]:
        """Shapes of the weights of this network: filters and biases of the convolutions, then the dense layer."""
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
        """Forward pass of this network."""
        for number in range(1, len(self.channels)):
            with graph.runner.scope(f"conv_{number}"):
                x = conv2d(graph, x, weights[f"conv_{number}/filter"])
                x = bias_add(graph, x, weights[f"conv_{number}/bias"])
                x = mean_pool(graph, relu(graph, x))
        return dense(graph, reshape(graph, x, self.batch, -1), weights, "dense")
