"""Network: the base of all networks (sizes, weights, forward pass), and MLP, the simplest one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

from bfcviz.errors import InvalidRequest
from bfcviz.examples.training.autodiff import Graph, Value
from bfcviz.examples.training.operations import bias_add, matmul, relu
from bfcviz.examples.training.tensors_and_kernels import Shape


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
