"""Machine: runs kernels one after the other; each takes the memory of its result first, then computes in it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.memory_place import load_cupy, place_of
from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.errors import OutOfMemory
from bfcviz.examples.training.release_policy import Release

Kernel = Callable[..., None]
"""Computes: its arguments are NumPy or CuPy, the result's array, those of the inputs, and of scratch memory."""

Shape = tuple[int, ...]


class Machine:
    """An allocator, an arithmetic, and when memory goes back.

    Args:
        allocator: of all memory.
        release: holds on to the tensors of kernels that may still be at work.
        dtype: of results.
        compute: False takes and gives back the memory only, as where the memory is pretended.

    Attributes:
        xp: NumPy, CuPy, or None where nothing is computed.
    """

    def __init__(
        self, allocator: Allocator, release: Release, dtype: str = "float32", *, compute: bool = True
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
        """Names of kernels begin so, as `layer1/`."""
        before = self._scope
        self._scope = f"{before}{name}/"
        try:
            yield
        finally:
            self._scope = before

    def named(self, name: str) -> str:
        """The name of a kernel in this scope."""
        return self._scope + name

    def new(self, shape: Shape, name: str) -> Tensor:
        """A tensor; where memory runs out, what may go is let go of first, once."""
        try:
            return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))
        except OutOfMemory:
            if not self.release.make_room():
                raise
        return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))

    def filled(self, shape: Shape, name: str, values: Callable[[], Any]) -> Tensor:
        """A tensor with values, which are made only where something is computed."""
        made = self.new(shape, name)
        if self.xp is not None:
            made.write(values())
        return made

    def run(
        self, name: str, shape: Shape, kernel: Kernel, *inputs: Tensor, scratch: Sequence[Shape] = ()
    ) -> Tensor:
        """The result of a kernel. Scratch memory is taken after the result's, and is the kernel's alone."""
        result = self.new(shape, name)
        self.compute(name, kernel, result, *inputs, scratch=scratch)
        return result

    def compute(self, name: str, kernel: Kernel, *tensors: Tensor, scratch: Sequence[Shape] = ()) -> None:
        """Run a kernel that writes into tensors there are."""
        used = (*tensors, *(self.new(shape, f"{name}/scratch") for shape in scratch))
        if self.xp is not None:
            with self._place.active():
                kernel(self.xp, *(tensor.array() for tensor in used))
        self.release.used(used)


GRADIENTS: Final = "gradients"
"""The scope of the backward pass, as TensorFlow calls it."""
