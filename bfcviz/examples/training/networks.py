"""Model: sizes, weights and the way forward; MLP is the simplest."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

from bfcviz.errors import InvalidRequest
from bfcviz.examples.training.autodiff import Graph, Value
from bfcviz.examples.training.kernel_runner import Shape
from bfcviz.examples.training.operations import bias_add, matmul, relu


@dataclass(frozen=True)
class Model(ABC):
    """What is trained: to tell classes apart.

    Attributes:
        batch: examples in a step.
        classes: how many there are.

    Raises:
        InvalidRequest: sizes that no such model has.
    """

    batch: int = 32
    classes: int = 10

    def __post_init__(self) -> None:
        self.expect(self.batch > 0 and self.classes > 0, "give a batch and classes of 1 or more")

    def expect(self, is_so: bool, otherwise: str) -> None:  # noqa: FBT001  reads as what is expected
        """Raise InvalidRequest with what to do, unless it is so."""
        if not is_so:
            raise InvalidRequest(f"{self} was asked for: {otherwise}")

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called."""

    @property
    @abstractmethod
    def input_shape(self) -> Shape:
        """Of a batch."""

    @abstractmethod
    def parameters(self) -> dict[str, Shape]:
        """Shapes of its weights, by name."""

    @abstractmethod
    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward: from a batch to [batch, classes]."""


def dense(graph: Graph, x: Value, weights: dict[str, Value], name: str) -> Value:
    """A layer: [n, a] to [n, b]."""
    with graph.machine.scope(name):
        return bias_add(graph, matmul(graph, x, weights[f"{name}/kernel"]), weights[f"{name}/bias"])


@dataclass(frozen=True)
class MLP(Model):
    """Dense layers with ReLU between them.

    Attributes:
        sizes: of the input, and of each hidden layer.
    """

    sizes: tuple[int, ...] = (64, 256, 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect(
            bool(self.sizes) and min(self.sizes) > 0, "give the size of the input at least, none below 1"
        )

    @property
    def name(self) -> str:
        """What it is called."""
        return "MLP"

    @property
    def input_shape(self) -> Shape:
        """Of a batch."""
        return (self.batch, self.sizes[0])

    def parameters(self) -> dict[str, Shape]:
        """A kernel and a bias for each layer."""
        sizes = (*self.sizes, self.classes)
        shapes: dict[str, Shape] = {}
        for number, pair in enumerate(pairwise(sizes), 1):
            shapes[f"dense_{number}/kernel"] = pair
            shapes[f"dense_{number}/bias"] = pair[1:]
        return shapes

    def logits(self, graph: Graph, weights: dict[str, Value], x: Value) -> Value:
        """Forward."""
        for number in range(1, len(self.sizes)):
            x = relu(graph, dense(graph, x, weights, f"dense_{number}"))
        return dense(graph, x, weights, f"dense_{len(self.sizes)}")
