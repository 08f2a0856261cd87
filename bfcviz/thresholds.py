"""Thresholds: limits for the measures of a heap, and when to report a crossing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.units import format_bytes, parse_bytes

Unit = Literal["bytes", "share", "count"]


@dataclass(frozen=True)
class Threshold:
    """A limit that a measure of a heap must not go above, or below.

    Attributes:
        measure: one of `UNITS`.
        above: bytes, or text such as `400MiB`; for a share, 0..1; for a count, a number.
        below: likewise; exactly one of the two is given.

    Raises:
        BfcvizError: (of class `REFUSAL`) the measure is unknown, not exactly one of `above` and `below` was given, or
            the number is not finite or out of range.
        ValueError: a text is not a size.
    """

    measure: str
    above: float | str | None = None
    below: float | str | None = None

    UNITS: ClassVar[Mapping[str, Unit]] = {
        "bytes_in_use": "bytes",
        "pool_bytes": "bytes",
        "free_bytes": "bytes",
        "largest_free_chunk": "bytes",
        "chunks_in_use": "count",
        "share_of_limit": "share",
        "external_fragmentation": "share",
        "internal_fragmentation": "share",
    }
    REFUSAL: ClassVar[type[BfcvizError]] = InvalidRequest

    def __post_init__(self) -> None:
        if self.measure not in self.UNITS:
            raise self.REFUSAL(f"there is no measure {self.measure!r}; there are: {', '.join(self.UNITS)}")
        if (self.above is None) == (self.below is None):
            raise self.REFUSAL(f"a threshold for {self.measure} needs one number: give either above or below")
        try:
            is_finite = math.isfinite(self.number)
        except TypeError:
            is_finite = False
        if not is_finite:
            raise self.REFUSAL(
                f"a threshold of {self._given!r} was given for {self.measure}; give a finite number"
            )
        if self.UNITS[self.measure] == "share" and not 0 <= self.number <= 1:
            raise self.REFUSAL(
                f"a threshold of {self.number:g} was given for {self.measure}, a share: give a number from 0 to 1"
            )

    @cached_property
    def number(self) -> float:
        """The limit of the threshold: bytes, a share or a count."""
        return parse_bytes(self._given) if isinstance(self._given, str) else self._given

    @cached_property
    def is_upper(self) -> bool:
        """Whether the threshold is an upper limit."""
        return self.above is not None

    @property
    def _given(self) -> float | str:
        return self.above if self.above is not None else self.below or 0

    def is_past(self, value: float) -> bool:
        """Whether a value is past the threshold."""
        return value > self.number if self.is_upper else value < self.number

    def told(self, value: float) -> str:
        """A value of this measure as text, in its unit."""
        unit = self.UNITS[self.measure]
        if unit == "share":
            return f"{value:.0%}"
        return f"{value:g}" if unit == "count" else format_bytes(value)

    @property
    def bound(self) -> str:
        """`above` or `below`, and the number of the threshold, as text."""
        return f"{'above' if self.is_upper else 'below'} {self.told(self.number)}"

    @property
    def words(self) -> str:
        """Measure and bound of the threshold as text."""
        return f"{self.measure} {self.bound}"

    def __str__(self) -> str:
        return self.words


class Hysteresis:
    """Decides when to report that a `Threshold` is crossed: once, and again only after some good samples in a row.

    Args:
        calm: number of good samples before the next report.
        is_past: whether the threshold is violated at the start; the value must then return to the good side first.
    """

    def __init__(self, calm: int = 1, *, is_past: bool = False) -> None:
        self.armed = not is_past
        self._calm = calm
        self._good = calm - 1

    def take(self, *, is_past: bool) -> bool:
        """Add a sample of a measure; returns whether to report it."""
        is_reported = is_past and self.armed
        self._good = 0 if is_past else self._good + 1
        self.armed = not is_past and (self.armed or self._good >= self._calm)
        return is_reported
