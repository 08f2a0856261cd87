"""Training: a model's weights in an allocator's memory, and steps that change them."""

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors import memory_log
from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.errors import InvalidRequest
from bfcviz.examples.training.autodiff import Graph, Value
from bfcviz.examples.training.kernel_runner import Machine
from bfcviz.examples.training.networks import Model
from bfcviz.examples.training.operations import cross_entropy
from bfcviz.examples.training.optimizers import Momentum, Optimizer
from bfcviz.examples.training.release_policy import RELEASES, Release

_BATCHES: Final = 4  # different ones, over and over


class Training:
    """A model that is trained to tell classes of random numbers apart.

    The heap's trace gets a mark for each step and its phases, and each allocation the name of its kernel.

    Args:
        model: what is trained.
        allocator: of all memory: weights, batches, results, gradients, scratch.
        release: when memory goes back: `eager`, `end of step`, `deferred`, or one of one's own.
        optimizer: by default gradient descent with momentum.
        dtype: of all numbers.
        seed: of weights and batches; equal ones give equal runs.
        compute: False takes and gives back the memory only; so it is anyway where the memory is pretended.

    Raises:
        InvalidRequest: there is no such release.
        OutOfMemory: not even the weights fit.

    Attributes:
        weights: by name.
        steps: how many were made.
        machine: runs the kernels.
    """

    def __init__(  # noqa: PLR0913  what is trained, and where, and how
        self,
        model: Model,
        allocator: Allocator,
        *,
        release: str | Release = "eager",
        optimizer: Optimizer | None = None,
        dtype: str = "float32",
        seed: int = 0,
        compute: bool = True,
    ) -> None:
        self.model = model
        self.machine = Machine(allocator, _release(release), dtype, compute=compute)
        self.optimizer = Momentum() if optimizer is None else optimizer
        self.steps = 0
        self._seed = seed
        chance = np.random.default_rng(seed)
        with self.machine.scope("weights"):
            self.weights = {
                name: self.machine.filled(shape, name, partial(_start, chance, shape))
                for name, shape in model.parameters().items()
            }

    def run(self, steps: int) -> list[float]:
        """So many steps; the loss of each, NaN where nothing is computed.

        Raises:
            OutOfMemory: in the midst of a step, which is given up: the weights are as after the last one, or some
                of them changed already.
        """
        return [self.step() for _ in range(steps)]

    def step(self) -> float:
        """One step: a batch, forward, backward, optimizer."""
        self.steps += 1
        allocator = self.machine.allocator
        with memory_log.step(self.steps, allocator):
            try:
                graph = Graph(self.machine)
                with memory_log.phase(allocator, "forward"):
                    values, loss = self.forward(graph)
                with memory_log.phase(allocator, "backward"):
                    gradients = graph.gradients(loss)
                with memory_log.phase(allocator, "optimizer"), self.machine.scope("optimizer"):
                    for name, value in values.items():
                        self.optimizer.update(self.machine, name, value.tensor, gradients.pop(value.key))
                return self._number(loss.tensor)
            finally:
                self.machine.release.end_step()

    def forward(self, graph: Graph) -> tuple[dict[str, Value], Value]:
        """The weights as values of the graph, and the loss of this step's batch."""
        values = {name: graph.value(weight, wanted=True) for name, weight in self.weights.items()}
        x, targets = self._batch()
        logits = self.model.logits(graph, values, graph.value(x))
        return values, cross_entropy(graph, logits, graph.value(targets))

    def finish(self) -> None:
        """Wait until the device is done, so that all memory which is not needed is back."""
        self.machine.release.make_room()

    def _batch(self) -> tuple[Tensor, Tensor]:
        model, shape = self.model, (self.model.batch, self.model.classes)
        number = (self.steps - 1) % _BATCHES if self.steps else 0
        made: list[tuple[NDArray[Any], NDArray[Any]]] = []

        def both() -> tuple[NDArray[Any], NDArray[Any]]:
            if not made:
                made.append(_examples(np.random.default_rng((self._seed, number)), model))
            return made[0]

        with self.machine.scope("batch"):
            x = self.machine.filled(model.input_shape, "examples", lambda: both()[0])
            return x, self.machine.filled(shape, "targets", lambda: both()[1])

    def _number(self, loss: Tensor) -> float:
        return float("nan") if self.machine.xp is None else float(loss.array())


def _release(wish: str | Release) -> Release:
    if not isinstance(wish, str):
        return wish
    if wish not in RELEASES:
        raise InvalidRequest(f"release {wish!r} was asked for; there are {', '.join(map(repr, RELEASES))}")
    return RELEASES[wish]()


def _start(chance: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Weights to begin with: as large as keeps a layer's result as large as its input; biases are 0."""
    if len(shape) == 1:
        return np.zeros(shape)
    return chance.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape)


def _examples(chance: np.random.Generator, model: Model) -> tuple[NDArray[Any], NDArray[Any]]:
    """Classes that lie around different numbers, and for each example a row with a 1 at its class."""
    classes = chance.integers(0, model.classes, model.batch)
    examples = chance.normal(size=(model.batch, int(np.prod(model.input_shape)) // model.batch))
    centres = np.random.default_rng(7).normal(size=(model.classes, examples.shape[1]))
    return (examples + centres[classes]).reshape(model.input_shape), np.eye(model.classes)[classes]
