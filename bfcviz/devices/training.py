"""Training steps with all tensors in an allocator's memory: forward, backward, optimizer.

::

    Training(MLP(...), allocator, release=Deferred()).run(100)
        networks ──> operations (gradients, kernels, when to free) ──> Tensor ──> allocator

In: an allocator, the sizes of a network, a release policy. Out: losses, and the heap's events with names, steps and
phases. NumPy or CuPy computes in the tensors themselves. If no memory backs the addresses nothing is computed, and the
same memory is allocated and freed.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.interface import Allocator
from bfcviz.devices import tensors
from bfcviz.devices.memory_access import load_cupy, place_of
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import InvalidRequest, OutOfMemory

# ------------------------------------------------------------------------------
# Release policies: when to free tensors that are no longer needed: at once, at the end of the step, or deferred.


class ReleasePolicy:
    """Gets the tensors of each kernel and decides how long to keep them; this one keeps none."""

    def used(self, tensors: Sequence[Tensor]) -> None:
        """A kernel that reads or writes these tensors was submitted to the device."""

    def make_room(self) -> bool:
        """Memory ran out: drop all tensors that may be freed; False if there are none."""
        return False

    def end_step(self) -> None:
        """The step has ended."""


class Eager(ReleasePolicy):
    """Frees at once, with the step's last reference.

    Correct if all work runs in one order: the next use of the memory comes after the last one.
    """


class EndOfStep(ReleasePolicy):
    """Frees all tensors at the end of the step; until then the heap holds everything the step allocated."""

    def __init__(self) -> None:
        self._held: list[Sequence[Tensor]] = []

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Keep them."""
        self._held.append(tensors)

    def end_step(self) -> None:
        """Drop all tensors."""
        self._held.clear()


class Deferred(ReleasePolicy):
    """Frees when the device has finished the kernel; the program runs ahead and allocates new memory before that.

    If work is synchronous, as with NumPy, this simulates a device that is `lag` kernels behind.

    Args:
        lag: kernels that the simulated device is behind.
        fence: creates a fence after each kernel; its `done` says whether the device has reached it, and
            `synchronize()` waits for it. `cuda_fence` creates CUDA's.
    """

    def __init__(self, lag: int = 8, *, fence: Callable[[], Any] | None = None) -> None:
        if lag < 0:
            raise InvalidRequest(f"lag is {lag} kernels; give 0 or more")
        self.lag = lag
        self._fence = fence
        self._queue: deque[tuple[Any, Sequence[Tensor]]] = deque()

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Keep them, and drop the tensors of kernels the device has finished."""
        self._queue.append((self._fence() if self._fence else None, tensors))
        while self._queue and self._is_done(self._queue[0][0]):
            self._queue.popleft()

    def make_room(self) -> bool:
        """Wait for the device, then drop all tensors."""
        held = bool(self._queue)
        while self._queue:
            fence, _ = self._queue.popleft()
            if fence is not None:
                fence.synchronize()
        return held

    def _is_done(self, fence: Any) -> bool:
        return len(self._queue) > self.lag if fence is None else bool(fence.done)


def cuda_fence() -> Any:
    """A fence for a training's `Deferred` frees: record a CUDA event in the current stream."""
    event = load_cupy().cuda.Event(disable_timing=True)
    event.record()
    return event


RELEASES: Final[dict[str, Callable[[], ReleasePolicy]]] = {
    "eager": Eager, "end of step": EndOfStep, "deferred": Deferred,
}  # fmt: skip
"""All policies by name."""


# ------------------------------------------------------------------------------
# KernelRunner: creates tensors and runs kernels in order; each allocates its result, then computes in it.

Kernel = Callable[..., None]
"""Computes. Arguments: NumPy or CuPy, then the arrays of the result, the inputs and the scratch memory."""

Shape = tuple[int, ...]


class KernelRunner:
    """Allocates tensors and runs kernels on them; a release policy decides when to free.

    Args:
        release: keeps the tensors of kernels that may still run.
        compute: False only allocates and frees, as for addresses without memory.
    """

    def __init__(
        self, allocator: Allocator, release: ReleasePolicy, dtype: str = "float32", *, compute: bool = True
    ) -> None:
        self.allocator = allocator
        self.release = release
        self.dtype = dtype
        self.xp: Any = None  # NumPy, CuPy, or None if nothing is computed
        self._scope = ""
        self._place = place_of(allocator)
        if compute and self._place.kind != "nowhere":
            self.xp = np if self._place.kind == "host" else load_cupy()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix kernel names with `name/`."""
        before = self._scope
        self._scope = f"{before}{name}/"
        try:
            yield
        finally:
            self._scope = before

    def named(self, name: str) -> str:
        """The full name of a kernel in this scope."""
        return self._scope + name

    def new(self, shape: Shape, name: str) -> Tensor:
        """Create a tensor. If memory runs out, free what the release policy allows and retry once."""
        try:
            return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))
        except OutOfMemory:
            if not self.release.make_room():
                raise
        return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))

    def filled(self, shape: Shape, name: str, values: Callable[[], Any]) -> Tensor:
        """Create a tensor with values; `values` is called only if something is computed."""
        made = self.new(shape, name)
        if self.xp is not None:
            made.write(values())
        return made

    def run(
        self, name: str, shape: Shape, kernel: Kernel, *inputs: Tensor, scratch: Sequence[Shape] = ()
    ) -> Tensor:
        """Allocate a result, run a kernel and return the result. Scratch memory is allocated after the result."""
        result = self.new(shape, name)
        self.compute(name, kernel, result, *inputs, scratch=scratch)
        return result

    def gradient(
        self, name: str, shape: Shape, kernel: Kernel, *kept: Tensor, scratch: Sequence[Shape] = ()
    ) -> "Gradient":
        """The gradient of one input, by a kernel of the result's gradient and of the tensors that are kept for it."""
        return lambda upstream: self.run(name, shape, kernel, upstream, *kept, scratch=scratch)

    def compute(self, name: str, kernel: Kernel, *tensors: Tensor, scratch: Sequence[Shape] = ()) -> None:
        """Run a kernel that writes into existing tensors."""
        used = (*tensors, *(self.new(shape, f"{name}/scratch") for shape in scratch))
        if self.xp is not None:
            with self._place.active():
                kernel(self.xp, *(tensor.array() for tensor in used))
        self.release.used(used)


GRADIENTS: Final = "gradients"
"""Scope of the backward pass, as in TensorFlow."""


# ------------------------------------------------------------------------------
# Automatic differentiation: a graph of one step's operations; the backward pass frees what it has used.

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
    """The operations of a step, in order."""

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
    """Reshape a value; the result is a view and allocates nothing."""
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
        """Raise InvalidRequest with advice unless the condition is true."""
        if not condition:
            raise InvalidRequest(f"{self} is not possible: {advice}")

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
    """Dense layers with ReLU between them."""

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
    """Layers of attention and two dense layers, each with a residual; then the mean over the tokens."""

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
    """Convolutions with ReLU, each followed by a pool that halves the image; then one dense layer."""

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


# ------------------------------------------------------------------------------
# Optimizers: they update weights in place; their state per weight (slots) is allocated in the first step.


class Optimizer(Protocol):
    """Updates weights from their gradients."""

    slots: dict[str, tuple[Tensor, ...]]

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight."""


def _optimizer_zeros(runner: KernelRunner, weight: Tensor, name: str) -> Tensor:
    return runner.filled(weight.shape, name, lambda: 0)


class Momentum:
    """Gradient descent with momentum: one slot per weight.

    Args:
        momentum: share of the last update that is kept, 0..1.
    """

    def __init__(self, rate: float = 0.01, momentum: float = 0.9) -> None:
        self.rate = rate
        self.momentum = momentum
        self.slots: dict[str, tuple[Tensor, ...]] = {}

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight."""
        if name not in self.slots:
            self.slots[name] = (_optimizer_zeros(runner, weight, f"{name}/momentum"),)
        runner.compute(name, self._kernel, weight, gradient, *self.slots[name], scratch=[weight.shape])

    def _kernel(self, xp: Any, weight: Any, gradient: Any, velocity: Any, scratch: Any) -> None:
        xp.multiply(velocity, self.momentum, out=velocity)
        xp.add(velocity, gradient, out=velocity)
        xp.multiply(velocity, self.rate, out=scratch)
        xp.subtract(weight, scratch, out=weight)


class Adam:
    """Adam (Kingma and Ba, 2015): two slots per weight.

    Args:
        decay: decay per step of the means of gradients and of squared gradients.
        epsilon: prevents a division by 0.
    """

    def __init__(
        self, rate: float = 1e-3, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-7
    ) -> None:
        self.rate = rate
        self.decay = decay
        self.epsilon = epsilon
        self.slots: dict[str, tuple[Tensor, ...]] = {}
        self._steps: dict[str, int] = {}

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight."""
        if name not in self.slots:
            first, second = (_optimizer_zeros(runner, weight, f"{name}/{slot}") for slot in ("m", "v"))
            self.slots[name] = (first, second)
        self._steps[name] = self._steps.get(name, 0) + 1
        step, (one, two) = self._steps[name], self.decay
        rate = self.rate * (1 - two**step) ** 0.5 / (1 - one**step)

        def kernel(xp: Any, *arrays: Any) -> None:
            weight, gradient, m, v, scratch = arrays
            xp.multiply(gradient, 1 - one, out=scratch)
            xp.multiply(m, one, out=m)
            xp.add(m, scratch, out=m)
            xp.multiply(gradient, gradient, out=scratch)
            xp.multiply(scratch, 1 - two, out=scratch)
            xp.multiply(v, two, out=v)
            xp.add(v, scratch, out=v)
            xp.sqrt(v, out=scratch)
            xp.add(scratch, self.epsilon, out=scratch)
            xp.divide(m, scratch, out=scratch)
            xp.multiply(scratch, rate, out=scratch)
            xp.subtract(weight, scratch, out=weight)

        runner.compute(name, kernel, weight, gradient, *self.slots[name], scratch=[weight.shape])


# ------------------------------------------------------------------------------
# Training: a network's weights in an allocator's memory, and the steps that update them.

_BATCHES: Final = 4  # distinct batches, used in turn


class Training:
    """Trains a network to classify random numbers.

    The heap's trace gets a mark for each step and phase; each allocation is labelled with its kernel.

    Args:
        allocator: allocates weights, batches, results, gradients and scratch memory.
        release: when to free: `eager`, `end of step`, `deferred`, or your own policy.
        optimizer: None = gradient descent with momentum.
        dtype: dtype of all numbers.
        seed: seed of weights and batches; equal seeds give equal runs.
        compute: False only allocates and frees; addresses without memory imply it.

    Raises:
        InvalidRequest: an unknown release policy.
        OutOfMemory: the weights do not fit.
    """

    def __init__(  # noqa: PLR0913  network, memory and options
        self,
        network: Network,
        allocator: Allocator,
        *,
        release: str | ReleasePolicy = "eager",
        optimizer: Optimizer | None = None,
        dtype: str = "float32",
        seed: int = 0,
        compute: bool = True,
    ) -> None:
        self.network = network
        self.runner = KernelRunner(allocator, _release_policy(release), dtype, compute=compute)
        self.optimizer = Momentum() if optimizer is None else optimizer
        self.steps = 0
        self._seed = seed
        chance = np.random.default_rng(seed)
        with self.runner.scope("weights"):
            self.weights = {
                name: self.runner.filled(shape, name, partial(_initial_weights, chance, shape))
                for name, shape in network.parameters().items()
            }

    def run(self, steps: int) -> list[float]:
        """Run `steps` steps and return the loss of each; NaN if nothing is computed.

        Raises:
            OutOfMemory: a step ran out of memory and was aborted; some of the weights may be updated already.
        """
        return [self.step() for _ in range(steps)]

    def step(self) -> float:
        """Run one step: batch, forward, backward, optimizer; return the loss."""
        self.steps += 1
        allocator = self.runner.allocator
        with tensors.step(self.steps, allocator):
            try:
                graph = Graph(self.runner)
                with tensors.phase(allocator, "forward"):
                    values, loss = self.forward(graph)
                with tensors.phase(allocator, "backward"):
                    gradients = graph.gradients(loss)
                with tensors.phase(allocator, "optimizer"), self.runner.scope("optimizer"):
                    for name, value in values.items():
                        self.optimizer.update(self.runner, name, value.tensor, gradients.pop(value.key))
                return float("nan") if self.runner.xp is None else float(loss.tensor.array())
            finally:
                self.runner.release.end_step()

    def forward(self, graph: Graph) -> tuple[dict[str, Value], Value]:
        """The weights as values of the graph, and the loss of this step's batch."""
        values = {name: graph.value(weight, needs_gradient=True) for name, weight in self.weights.items()}
        x, targets = self._batch()
        logits = self.network.logits(graph, values, graph.value(x))
        return values, cross_entropy(graph, logits, graph.value(targets))

    def finish(self) -> None:
        """Wait for the device, so that all unused memory is free."""
        self.runner.release.make_room()

    def _batch(self) -> tuple[Tensor, Tensor]:
        network, shape = self.network, (self.network.batch, self.network.classes)
        number = (self.steps - 1) % _BATCHES if self.steps else 0
        made: list[tuple[NDArray[Any], NDArray[Any]]] = []

        def both() -> tuple[NDArray[Any], NDArray[Any]]:
            if not made:
                made.append(_training_examples(np.random.default_rng((self._seed, number)), network))
            return made[0]

        with self.runner.scope("batch"):
            x = self.runner.filled(network.input_shape, "examples", lambda: both()[0])
            return x, self.runner.filled(shape, "targets", lambda: both()[1])


def _release_policy(wish: str | ReleasePolicy) -> ReleasePolicy:
    """The policy by which a training frees its tensors, from its name."""
    if not isinstance(wish, str):
        return wish
    if wish not in RELEASES:
        raise InvalidRequest(f"unknown release policy {wish!r}; give one of {', '.join(map(repr, RELEASES))}")
    return RELEASES[wish]()


def _initial_weights(chance: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Initial weights, scaled to keep a layer's result as large as its input; biases are 0."""
    if len(shape) == 1:
        return np.zeros(shape)
    return chance.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape)


def _training_examples(chance: np.random.Generator, network: Network) -> tuple[NDArray[Any], NDArray[Any]]:
    """Examples around a different centre for each class, and a one-hot row per example."""
    classes = chance.integers(0, network.classes, network.batch)
    examples = chance.normal(size=(network.batch, int(np.prod(network.input_shape)) // network.batch))
    centres = np.random.default_rng(7).normal(size=(network.classes, examples.shape[1]))
    return (examples + centres[classes]).reshape(network.input_shape), np.eye(network.classes)[classes]
