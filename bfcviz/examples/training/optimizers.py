"""Optimizers: they update weights in place; their state per weight (slots) is allocated in the first step."""

from typing import Any, Protocol

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.tensors_and_kernels import KernelRunner


class Optimizer(Protocol):
    """Updates weights from their gradients."""

    slots: dict[str, tuple[Tensor, ...]]

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight."""


def _zeros(runner: KernelRunner, weight: Tensor, name: str) -> Tensor:
    return runner.filled(weight.shape, name, lambda: 0)


class Momentum:
    """Gradient descent with momentum: one slot per weight.

    Args:
        rate: learning rate.
        momentum: share of the last update that is kept, 0..1.
    """

    def __init__(self, rate: float = 0.01, momentum: float = 0.9) -> None:
        self.rate = rate
        self.momentum = momentum
        self.slots: dict[str, tuple[Tensor, ...]] = {}

    def update(self, runner: KernelRunner, name: str, weight: Tensor, gradient: Tensor) -> None:
        """Update one weight."""
        if name not in self.slots:
            self.slots[name] = (_zeros(runner, weight, f"{name}/momentum"),)
        runner.compute(name, self._kernel, weight, gradient, *self.slots[name], scratch=[weight.shape])

    def _kernel(self, xp: Any, weight: Any, gradient: Any, velocity: Any, scratch: Any) -> None:
        xp.multiply(velocity, self.momentum, out=velocity)
        xp.add(velocity, gradient, out=velocity)
        xp.multiply(velocity, self.rate, out=scratch)
        xp.subtract(weight, scratch, out=weight)


class Adam:
    """Adam (Kingma and Ba, 2015): two slots per weight.

    Args:
        rate: learning rate.
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
            first, second = (_zeros(runner, weight, f"{name}/{slot}") for slot in ("m", "v"))
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
