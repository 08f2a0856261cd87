"""Release policies: when a training frees tensors that it needs no more: at once, at the end of a step, later."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from bfcviz.devices.memory_access import load_cupy
from bfcviz.devices.tensors import Tensor
from bfcviz.errors import InvalidRequest


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
