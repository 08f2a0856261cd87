"""AlertAllocator: calls a function at once, in the same thread, when a total crosses a threshold."""

from collections.abc import Callable, Sequence
from threading import Lock, local
from typing import Final, NamedTuple

from bfcviz import _forks
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.allocator.interface.stats import Stats
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.thresholds import Hysteresis, Threshold

MEASURES: Final[dict[str, Callable[[Stats], float]]] = {
    "bytes_in_use": lambda s: s.bytes_in_use,
    "pool_bytes": lambda s: s.pool_bytes,
    "free_bytes": lambda s: s.free_bytes,
    "largest_free_chunk": lambda s: s.largest_free_chunk,
    "chunks_in_use": lambda s: s.chunks_in_use,
    "share_of_limit": lambda s: s.bytes_in_use / s.bytes_limit,
    "external_fragmentation": lambda s: 1 - s.largest_free_chunk / s.free_bytes if s.free_bytes else 0.0,
    "internal_fragmentation": lambda s: (
        1 - s.requested_bytes_in_use / s.bytes_in_use if s.bytes_in_use else 0.0
    ),
}
"""Functions that compute each measure of a `Threshold`."""


class Crossing(NamedTuple):
    """A crossed threshold, the value, and the operation that crossed it."""

    threshold: Threshold
    value: float
    heap: str
    doing: str

    def __str__(self) -> str:
        return f"{self.heap}: {self.threshold}: {self.threshold.told(self.value)}, after {self.doing}"


class AlertAllocator(AllocatorWrapper):
    """Checks the totals after every allocate and free, and calls a function when a threshold is crossed.

    It is called once per crossing: again only after the value was back on the good side. Requests that the function
    itself makes raise no alerts. An exception of the function is stored as `error`, because the request has succeeded.

    Args:
        wrapped: the allocator inside.
        thresholds: the thresholds to check.
        call: called with each `Crossing`.
    """

    def __init__(
        self, wrapped: Allocator, thresholds: Sequence[Threshold], call: Callable[[Crossing], object]
    ) -> None:
        super().__init__(wrapped)
        self.thresholds = tuple(thresholds)
        self.error: Exception | None = None
        self._call = call
        self._states = [Hysteresis() for _ in self.thresholds]
        self._lock = _forks.keep(Lock())
        self._here = local()

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`, then check the totals."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address:
            self._check_totals(f"{num_bytes} bytes for {self.label_text(label) or 'no label'}")
        return address

    def free(self, address: int) -> None:
        """Free it, then check the totals."""
        self.wrapped.free(address)
        if address:
            self._check_totals(f"the free of {address:#x}")

    def _check_totals(self, doing: str) -> None:
        if getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            crossings = self._crossed(doing)
            for crossing in crossings:
                self._call(crossing)
            if crossings:
                self._reset_recovered()
        except Exception as error:  # noqa: BLE001  the request has succeeded, even if the user's function fails
            self.error = error
        finally:
            self._here.busy = False

    def _crossed(self, doing: str) -> list[Crossing]:
        """Thresholds that are crossed now and were not before."""
        with self._lock:
            values = self._values()
            new = [
                (each, value)
                for each, state, value in zip(self.thresholds, self._states, values, strict=True)
                if state.take(is_past=each.is_past(value))
            ]
        return [Crossing(each, value, self.name, doing) for each, value in new]

    def _reset_recovered(self) -> None:
        """Allow new alerts for thresholds that are no longer crossed after the call."""
        with self._lock:
            for each, state, value in zip(self.thresholds, self._states, self._values(), strict=True):
                if not each.is_past(value):
                    state.take(is_past=False)

    def _values(self) -> list[float]:
        stats = self.wrapped.stats()
        return [MEASURES[each.measure](stats) for each in self.thresholds]
