"""Convolutions, and a small convolutional network: large, short-lived scratch memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.examples.training.autodiff import Graph, Value
from bfcviz.examples.training.networks import Network, dense
from bfcviz.examples.training.operations import bias_add, relu, reshape
from bfcviz.examples.training.tensors_and_kernels import Shape


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
