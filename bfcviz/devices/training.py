"""Training steps with all tensors in an allocator's memory: forward, backward, optimizer.

::

    Training(MLP(...), allocator, release=Deferred()).run(100)
        networks ──> operations (gradients, kernels, when to free) ──> Tensor ──> allocator

In: an allocator, the sizes of a network, a release policy. Out: losses, and the heap's events with names, steps and
phases. NumPy or CuPy computes in the tensors themselves. If no memory backs the addresses nothing is computed, and the
same memory is allocated and freed.
"""

from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.interface import Allocator
from bfcviz.devices import tensors as log
from bfcviz.devices.kernel_runner import KernelRunner, ReleasePolicy, release_policy
from bfcviz.devices.networks import (
    Graph,
    Network,
    Value,
    cross_entropy,
)
from bfcviz.devices.tensors import Tensor

# ------------------------------------------------------------------------------
# Optimizers: they update weights in place; their state per weight (slots) is allocated in the first step.


class Optimizer(Protocol):
    """Updates weights of a training from their gradients."""

    slots: dict[str, tuple[Tensor, ...]]

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight of a training."""


def _optimizer_zeros(runner: KernelRunner, weight: Tensor, name: str) -> Tensor:
    return runner.filled(weight.shape, name, lambda: 0)


class Momentum:
    """An optimizer of a training: gradient descent with momentum, one slot per weight.

    Args:
        momentum: share of the last update that is kept, 0..1.
    """

    def __init__(self, rate: float = 0.01, momentum: float = 0.9) -> None:
        self.rate = rate
        self.momentum = momentum
        self.slots: dict[str, tuple[Tensor, ...]] = {}

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight of a training by gradient descent with momentum."""
        if name not in self.slots:
            self.slots[name] = (_optimizer_zeros(runner, weight, f"{name}/momentum"),)
        runner.compute(name, self._kernel, weight, gradient, *self.slots[name], scratch=[weight.shape])

    def _kernel(self, xp: Any, weight: Any, gradient: Any, velocity: Any, scratch: Any) -> None:
        xp.multiply(velocity, self.momentum, out=velocity)
        xp.add(velocity, gradient, out=velocity)
        xp.multiply(velocity, self.rate, out=scratch)
        xp.subtract(weight, scratch, out=weight)


class Adam:
    """An optimizer of a training: Adam (Kingma and Ba, 2015), two slots per weight.

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
        """Update one weight of a training by Adam."""
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
        self.runner = KernelRunner(allocator, release_policy(release), dtype, compute=compute)
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
        """Run `steps` training steps and return the loss of each; NaN if nothing is computed.

        Raises:
            OutOfMemory: a step ran out of memory and was aborted; some of the weights may be updated already.
        """
        return [self.step() for _ in range(steps)]

    def step(self) -> float:
        """Run one training step: batch, forward, backward, optimizer; return the loss."""
        self.steps += 1
        allocator = self.runner.allocator
        with log.step(self.steps, allocator):
            try:
                graph = Graph(self.runner)
                with log.phase(allocator, "forward"):
                    values, loss = self.forward(graph)
                with log.phase(allocator, "backward"):
                    gradients = graph.gradients(loss)
                with log.phase(allocator, "optimizer"), self.runner.scope("optimizer"):
                    for name, value in values.items():
                        self.optimizer.update(self.runner, name, value.tensor, gradients.pop(value.key))
                return float("nan") if self.runner.xp is None else float(loss.tensor.array())
            finally:
                self.runner.release.end_step()

    def forward(self, graph: Graph) -> tuple[dict[str, Value], Value]:
        """The weights of a training as values of the graph, and the loss of this step's batch."""
        values = {name: graph.value(weight, needs_gradient=True) for name, weight in self.weights.items()}
        x, targets = self._batch()
        logits = self.network.logits(graph, values, graph.value(x))
        return values, cross_entropy(graph, logits, graph.value(targets))

    def finish(self) -> None:
        """Wait for the device, so that all unused memory of the training is free."""
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


def _initial_weights(chance: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Initial weights of a training, scaled to keep a layer's result as large as its input; biases are 0."""
    if len(shape) == 1:
        return np.zeros(shape)
    return chance.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape)


def _training_examples(chance: np.random.Generator, network: Network) -> tuple[NDArray[Any], NDArray[Any]]:
    """Examples for a training around a different centre for each class, and a one-hot row per example."""
    classes = chance.integers(0, network.classes, network.batch)
    examples = chance.normal(size=(network.batch, int(np.prod(network.input_shape)) // network.batch))
    centres = np.random.default_rng(7).normal(size=(network.classes, examples.shape[1]))
    return (examples + centres[classes]).reshape(network.input_shape), np.eye(network.classes)[classes]
