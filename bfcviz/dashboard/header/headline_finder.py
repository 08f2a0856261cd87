"""HeadlineFinder: what to say first of a heap; each failure is diagnosed once."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from bfcviz.events.origin_details import recorded_failures
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.browse.navigation import peak
from bfcviz.model.explain.failure.diagnose import diagnose, failed_steps
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.model.explain.text.headline import failure_headline, peak_headline
from bfcviz.units import format_bytes

_SETTLED: Final = 256
"""Events after an OOM by which it is known whether the heap made room for its request after all."""


@dataclass(frozen=True)
class Headline:
    """What to say first.

    Attributes:
        text: one sentence.
        step: the step that it is about; None: the step shown.
        failed: the diagnosis of the failure that it is about; None where nothing failed.
        number, count: the position of the failure among all failures, from 1.
    """

    text: str
    step: int | None = None
    failed: Diagnosis | None = None
    number: int = 0
    count: int = 0


class HeadlineFinder:
    """The headlines of one heap of a trace, which may grow."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self.trace, self.pool = trace, pool
        self._failed: list[int] = []
        self._read = trace.first
        self._found: dict[int, Diagnosis] = {}
        self._peak: tuple[int, Headline] | None = None
        self._bare = {each.event for each in recorded_failures(trace.origin.details) if not each.has_heap}

    def find(self, model: Model) -> Headline:
        """The failure at or before the model's step; else the first one after it; else the peak."""
        self._read_new()
        if self._failed:
            return self._failure(model)
        if self.trace.following:
            most = format_bytes(model.stats().peak_bytes_in_use)
            return Headline(f"No request failed so far; peak {most} in use")
        if self._peak is None or self._peak[0] != len(self.trace):
            with model.visiting(peak(self.trace, self.pool)) as there:
                self._peak = (len(self.trace), Headline(peak_headline(there), there.step))
        return self._peak[1]

    def _failure(self, model: Model) -> Headline:
        step = self._nearest(model.step)
        if step not in self._found:
            self._found[step] = diagnose(self.trace, step - 1, model)
        found = self._found[step]
        number = self._failed.index(step) + 1
        return Headline(failure_headline(found), step, found, number, len(self._failed))

    def _nearest(self, step: int) -> int:
        """The last failure at or before a step, else the first with a heap, else the first."""
        before = bisect_right(self._failed, step)
        if before:
            return self._failed[before - 1]
        return next((each for each in self._failed if each - 1 not in self._bare), self._failed[0])

    def _read_new(self) -> None:
        """Read the failures among the events that came since the last call."""
        first, stop = self.trace.first, len(self.trace)
        if stop == self._read:
            return
        start = max(first, self._read - _SETTLED)
        kept = [step for step in self._failed if first < step <= start]
        self._failed = kept + failed_steps(self.trace, self.pool, start, stop)
        self._read = stop
