"""AlertAllocator: tells at once, in the thread that did it, when a total goes past a threshold."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, local
from typing import Final, NamedTuple

from bfcviz import _forks
from bfcviz.allocator.attributes import AllocationAttributes
from bfcviz.allocator.protocol import Allocator
from bfcviz.allocator.stats import Stats
from bfcviz.allocator.wrappers.wrapper import AllocatorWrapper
from bfcviz.errors import InvalidRequest
from bfcviz.units import format_bytes

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
"""What a threshold can be about; the last three are shares of 0..1, most others bytes."""

_SHARES: Final = ("share_of_limit", "external_fragmentation", "internal_fragmentation")


@dataclass(frozen=True)
class Threshold:
    """A total may not go above, or below, a number.

    Raises:
        InvalidRequest: there is no such measure, or not exactly one of `above` and `below`, or that is no number.
    """

    measure: str
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise InvalidRequest(f"there is no measure {self.measure!r}; there are: {', '.join(MEASURES)}")
        if (self.above is None) == (self.below is None):
            raise InvalidRequest(
                f"a threshold for {self.measure} needs one number: give either above or below"
            )
        given = self.above if self.above is not None else self.below
        if not _is_finite(given):
            raise InvalidRequest(
                f"a threshold of {given!r} was given for {self.measure}; give a finite number"
            )

    def is_past(self, value: float) -> bool:
        """Whether a value lies on the wrong side."""
        return value > self.above if self.above is not None else value < (self.below or 0)

    def __str__(self) -> str:
        number = self.above if self.above is not None else self.below
        return f"{self.measure} {'above' if self.above is not None else 'below'} {_told(self.measure, number or 0)}"


class Crossing(NamedTuple):
    """A threshold that was crossed: with which value, and what the thread was just doing."""

    threshold: Threshold
    value: float
    heap: str
    doing: str

    def __str__(self) -> str:
        value = _told(self.threshold.measure, self.value)
        return f"{self.heap}: {self.threshold}: {value}, after {self.doing}"


class AlertAllocator(AllocatorWrapper):
    """Looks at the totals after every allocate and free, and calls when a threshold is crossed.

    Once for a crossing: again only after the value was on the good side. What the call does with the allocator
    itself raises no alerts; what it raises is kept as `error`, for the request it is told of has succeeded.

    Args:
        wrapped: the allocator inside.
        thresholds: what to look at.
        call: called with each `Crossing`.
    """

    def __init__(
        self, wrapped: Allocator, thresholds: Sequence[Threshold], call: Callable[[Crossing], object]
    ) -> None:
        super().__init__(wrapped)
        self.thresholds = tuple(thresholds)
        self.error: Exception | None = None
        self._call = call
        self._past: set[Threshold] = set()
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
        """Memory for `num_bytes`; then a look at the totals."""
        address = self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)
        if address:
            self._look(f"{num_bytes} bytes for {self.label_text(label) or 'no label'}")
        return address

    def free(self, address: int) -> None:
        """Give it back; then a look at the totals."""
        self.wrapped.free(address)
        if address:
            self._look(f"the free of {address:#x}")

    def _look(self, doing: str) -> None:
        if getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            crossings = self._crossed(doing)
            for crossing in crossings:
                self._call(crossing)
            if crossings:
                self._come_back()
        except Exception as error:  # noqa: BLE001  the request has succeeded, whatever the user's function does
            self.error = error
        finally:
            self._here.busy = False

    def _crossed(self, doing: str) -> list[Crossing]:
        """Thresholds that are past now and were not before."""
        with self._lock:
            values = self._values()
            past = {each for each, value in values.items() if each.is_past(value)}
            new = [each for each in self.thresholds if each in past - self._past]
            self._past = past
        return [Crossing(each, values[each], self.name, doing) for each in new]

    def _come_back(self) -> None:
        """What the call has put right itself can be crossed again."""
        with self._lock:
            self._past = {
                each for each, value in self._values().items() if each in self._past and each.is_past(value)
            }

    def _values(self) -> dict[Threshold, float]:
        stats = self.wrapped.stats()
        return {each: MEASURES[each.measure](stats) for each in self.thresholds}


def _is_finite(value: object) -> bool:
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except TypeError:
        return False


def _told(measure: str, value: float) -> str:
    if measure in _SHARES:
        return f"{value:.0%}"
    return f"{value:g}" if measure == "chunks_in_use" else format_bytes(value)
