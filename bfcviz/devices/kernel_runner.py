"""KernelRunner: creates tensors, runs kernels, each of which allocates its result, and frees by a policy."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from bfcviz.allocator.interface import Allocator
from bfcviz.devices.memory_access import load_cupy, place_of
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import InvalidRequest, OutOfMemory

# ------------------------------------------------------------------------------
# Release policies: when a training frees tensors that it needs no more: at once, at the end of a step, later.


class ReleasePolicy:
    """A release policy: gets the tensors of each kernel and decides how long to keep them; this one keeps none."""

    def used(self, tensors: Sequence[Tensor]) -> None:
        """A kernel that reads or writes these tensors, which the policy may keep, was submitted to the device."""

    def make_room(self) -> bool:
        """Memory ran out: the policy drops all tensors that may be freed; False if there are none."""
        return False

    def end_step(self) -> None:
        """The step has ended: the policy may drop tensors."""


class Eager(ReleasePolicy):
    """A release policy that frees at once, with the step's last reference.

    Correct if all work runs in one order: the next use of the memory comes after the last one.
    """


class EndOfStep(ReleasePolicy):
    """A release policy that frees all tensors at the end of the step; until then the heap holds all of them."""

    def __init__(self) -> None:
        self._held: list[Sequence[Tensor]] = []

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Keep the tensors of a kernel until the policy drops them."""
        self._held.append(tensors)

    def end_step(self) -> None:
        """Drop all tensors that the policy kept."""
        self._held.clear()


class Deferred(ReleasePolicy):
    """A release policy that frees when the device has finished the kernel; the program runs ahead of it.

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
        """Keep the tensors of a kernel, and drop those of kernels the device has finished."""
        self._queue.append((self._fence() if self._fence else None, tensors))
        while self._queue and self._is_done(self._queue[0][0]):
            self._queue.popleft()

    def make_room(self) -> bool:
        """Wait for the device, then drop all tensors that the policy kept."""
        held = bool(self._queue)
        while self._queue:
            fence, _ = self._queue.popleft()
            if fence is not None:
                fence.synchronize()
        return held

    def _is_done(self, fence: Any) -> bool:
        return len(self._queue) > self.lag if fence is None else bool(fence.done)


def cuda_fence() -> Any:
    """A fence for the release policy `Deferred`: record a CUDA event in the current stream."""
    event = load_cupy().cuda.Event(disable_timing=True)
    event.record()
    return event


RELEASES: Final[dict[str, Callable[[], ReleasePolicy]]] = {
    "eager": Eager, "end of step": EndOfStep, "deferred": Deferred,
}  # fmt: skip
"""All policies by name."""


def release_policy(wish: str | ReleasePolicy) -> ReleasePolicy:
    """The policy by which a training frees its tensors, from its name."""
    if not isinstance(wish, str):
        return wish
    if wish not in RELEASES:
        raise InvalidRequest(f"unknown release policy {wish!r}; give one of {', '.join(map(repr, RELEASES))}")
    return RELEASES[wish]()


# ------------------------------------------------------------------------------
# KernelRunner: creates tensors and runs kernels in order; each allocates its result, then computes in it.

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
