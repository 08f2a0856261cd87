"""Operations of networks with their gradients, the kernels that run them, and when their tensors are freed."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from bfcviz.allocator.interface import Allocator
from bfcviz.devices.tensors import Tensor, load_cupy, place_of
from bfcviz.errors import InvalidRequest, OutOfMemory

# ------------------------------------------------------------------------------
# Release policies: when to free tensors that are no longer needed: at once, at the end of the step, or deferred.


class ReleasePolicy(Protocol):
    """Gets the tensors of each kernel and decides how long to keep them."""

    @property
    def name(self) -> str:
        """The policy's name."""

    def used(self, tensors: Sequence[Tensor]) -> None:
        """A kernel that reads or writes these tensors was submitted to the device."""

    def make_room(self) -> bool:
        """Memory ran out: drop all tensors that may be freed; False if there are none."""

    def end_step(self) -> None:
        """The step has ended."""


class Eager:
    """Frees at once, with the step's last reference.

    Correct if all work runs in one order: the next use of the memory comes after the last one.
    """

    name: Final = "eager"

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Keep nothing."""

    def make_room(self) -> bool:
        """Nothing is kept, so nothing can be freed."""
        return False

    def end_step(self) -> None:
        """Nothing to drop."""


class EndOfStep:
    """Frees all tensors at the end of the step; until then the heap holds everything the step allocated."""

    name: Final = "end of step"

    def __init__(self) -> None:
        self._held: list[Sequence[Tensor]] = []

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Keep them."""
        self._held.append(tensors)

    def make_room(self) -> bool:
        """Nothing may be freed before the end of the step."""
        return False

    def end_step(self) -> None:
        """Drop all tensors."""
        self._held.clear()


class Deferred:
    """Frees when the device has finished the kernel; the program runs ahead and allocates new memory before that.

    If work is synchronous, as with NumPy, this simulates a device that is `lag` kernels behind.

    Args:
        lag: kernels that the simulated device is behind.
        fence: creates a fence after each kernel; its `done` says whether the device has reached it, and
            `synchronize()` waits for it. `cuda_fence` creates CUDA's.
    """

    name: Final = "deferred"

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

    def end_step(self) -> None:
        """Nothing to drop: the device may still be working."""

    def _is_done(self, fence: Any) -> bool:
        return len(self._queue) > self.lag if fence is None else bool(fence.done)


def cuda_fence() -> Any:
    """Record a CUDA event in the current stream."""
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
        allocator: allocates all memory.
        release: keeps the tensors of kernels that may still run.
        dtype: dtype of results.
        compute: False only allocates and frees, as for addresses without memory.

    Attributes:
        xp: NumPy, CuPy, or None if nothing is computed.
    """

    def __init__(
        self, allocator: Allocator, release: ReleasePolicy, dtype: str = "float32", *, compute: bool = True
    ) -> None:
        self.allocator = allocator
        self.release = release
        self.dtype = dtype
        self.xp: Any = None
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


# ------------------------------------------------------------------------------
# Operations of networks, each with its gradients. Kernels write only into the arrays they get.


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
