"""KernelRunner: creates tensors and runs kernels in order; each allocates its result, then computes in it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from bfcviz.allocator.interface import Allocator
from bfcviz.devices.memory_access import load_cupy, place_of
from bfcviz.devices.release_policies import ReleasePolicy
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import OutOfMemory

Kernel = Callable[..., None]
"""Computes. Arguments: NumPy or CuPy, then the arrays of the result, the inputs and the scratch memory."""

Shape = tuple[int, ...]


Gradient = Callable[[Tensor], Tensor]
"""Maps the gradient of a result to the gradient of one input; it holds only the tensors it needs."""


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
        """Create a tensor for a kernel. If memory runs out, free what the release policy allows and retry once."""
        try:
            return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))
        except OutOfMemory:
            if not self.release.make_room():
                raise
        return Tensor(self.allocator, self.dtype, shape, kernel=self.named(name))

    def filled(self, shape: Shape, name: str, values: Callable[[], Any]) -> Tensor:
        """Create a tensor with values for kernels; `values` is called only if something is computed."""
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
    ) -> Gradient:
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
