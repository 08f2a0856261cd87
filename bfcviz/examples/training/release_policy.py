"""When the memory of a tensor goes back that nobody needs any more: at once, at the end of the step, or later."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from bfcviz.devices.tensors.memory_place import load_cupy
from bfcviz.devices.tensors.tensor import Tensor
from bfcviz.errors import InvalidRequest


class Release(Protocol):
    """Is told of every kernel, and holds on to its tensors for as long as it sees fit."""

    @property
    def name(self) -> str:
        """What it is called."""

    def used(self, tensors: Sequence[Tensor]) -> None:
        """A kernel that reads or writes these was handed to the device."""

    def make_room(self) -> bool:
        """Memory ran out: let go of all that may go; False where nothing may."""

    def end_step(self) -> None:
        """The step is over."""


class Eager:
    """At once: with the last reference that the step itself holds.

    It is right where all work is in one order: what uses the memory next comes after what used it last.
    """

    name: Final = "eager"

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Holds nothing."""

    def make_room(self) -> bool:
        """There is nothing to let go of."""
        return False

    def end_step(self) -> None:
        """Nothing is left."""


class EndOfStep:
    """All at once, when the step is over: simple, and the heap holds everything that the step ever made."""

    name: Final = "end of step"

    def __init__(self) -> None:
        self._held: list[Sequence[Tensor]] = []

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Hold them."""
        self._held.append(tensors)

    def make_room(self) -> bool:
        """Nothing may go before the end."""
        return False

    def end_step(self) -> None:
        """Let go of everything."""
        self._held.clear()


class Deferred:
    """When the device is done with the kernel: the program runs ahead of it, and asks for new memory before.

    Where the work is done at once, as NumPy's is, a device is pretended that is `lag` kernels behind.

    Args:
        lag: so many kernels.
        fence: what to ask whether the device has come so far, made after each kernel; its `done` says it, and
            `synchronize()` waits for it. `cuda_fence` is CUDA's.
    """

    name: Final = "deferred"

    def __init__(self, lag: int = 8, *, fence: Callable[[], Any] | None = None) -> None:
        if lag < 0:
            raise InvalidRequest(f"a lag of {lag} kernels was asked for; give 0 or more")
        self.lag = lag
        self._fence = fence
        self._queue: deque[tuple[Any, Sequence[Tensor]]] = deque()

    def used(self, tensors: Sequence[Tensor]) -> None:
        """Hold them till then, and let go of what the device is done with."""
        self._queue.append((self._fence() if self._fence else None, tensors))
        while self._queue and self._is_done(self._queue[0][0]):
            self._queue.popleft()

    def make_room(self) -> bool:
        """Wait for the device."""
        held = bool(self._queue)
        while self._queue:
            fence, _ = self._queue.popleft()
            if fence is not None:
                fence.synchronize()
        return held

    def end_step(self) -> None:
        """The device is still at work."""

    def _is_done(self, fence: Any) -> bool:
        return len(self._queue) > self.lag if fence is None else bool(fence.done)


def cuda_fence() -> Any:
    """An event of CUDA's, in the current stream."""
    event = load_cupy().cuda.Event(disable_timing=True)
    event.record()
    return event


RELEASES: Final[dict[str, Callable[[], Release]]] = {
    "eager": Eager, "end of step": EndOfStep, "deferred": Deferred,
}  # fmt: skip
"""All of them, by name."""
