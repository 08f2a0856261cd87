"""ByteAxis: the axis of bytes of a comparison; and the two levels that are lines on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bfcviz.figures.comparison.policies.compared_policy import ComparedJob, ComparedPolicy
from bfcviz.figures.style.text import axis_unit
from bfcviz.figures.style.theme import Theme
from bfcviz.units import format_bytes

_FAR: Final = 1.6
"""A limit so many times above all peaks would flatten them: it is not drawn."""


@dataclass(frozen=True)
class ByteLevel:
    """A number of bytes as a line: its name in the legend, in units of the axis (nan: no line), colour and dash."""

    name: str
    value: float
    colour: str
    dash: str


@dataclass(frozen=True)
class ByteAxis:
    """An axis of bytes that fits all policies: bytes per unit, its name, the end in units, the limit if it is drawn."""

    divisor: int
    unit: str
    end: float
    limit: int | None

    @classmethod
    def of(cls, job: ComparedJob, policies: Sequence[ComparedPolicy]) -> "ByteAxis":
        """The axis for these policies; a limit far above all of them is not drawn."""
        top = max(1, job.live_bytes, *(policy.peak_reserved for policy in policies))
        limit = job.limit if job.limit is not None and job.limit <= _FAR * top else None
        top = max(top, limit or 0)
        divisor, unit = axis_unit(top)
        return cls(divisor, unit, top / divisor, limit)

    def least_possible(self, job: ComparedJob, theme: Theme) -> ByteLevel:
        """The most requested bytes in use: no allocator can need less."""
        return self._level("least possible", job.live_bytes, theme.text, "dot")

    def limit_line(self, theme: Theme) -> ByteLevel:
        """The memory limit."""
        return self._level("limit", self.limit, theme.limit, "dashdot")

    def _level(self, name: str, num_bytes: int | None, colour: str, dash: str) -> ByteLevel:
        if num_bytes is None:
            return ByteLevel(name, float("nan"), colour, dash)
        return ByteLevel(f"{name} {format_bytes(num_bytes)}", num_bytes / self.divisor, colour, dash)
