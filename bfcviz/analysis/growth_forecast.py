"""When a heap reaches its limit if what grows with every step of its program goes on."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.analysis.leaks import Growth, growing_name, growth_until
from bfcviz.events.trace import event_times
from bfcviz.model.lifetimes import elapsed
from bfcviz.model.model import Model
from bfcviz.model.timelines import measured
from bfcviz.units import counted, format_bytes, signed_bytes


@dataclass(frozen=True)
class Forecast:
    """When a heap reaches its limit, from the growth and the pace of the steps that were compared.

    A free chunk that is too small, or a step that needs more than the last ones, can make a request fail earlier.

    Attributes:
        limit: of the heap, in bytes.
        left: bytes from the most in use since the last but one compared step to the limit.
        steps: whole steps of the program until nothing is left.
        seconds: how long these take; None: the trace has no times.
    """

    limit: int
    left: int
    steps: int
    seconds: float | None

    @property
    def clause(self) -> str:
        """As text: `the limit of 256.0 MiB is reached in about 200 steps, 54 s`."""
        if not self.steps:
            return f"the limit of {format_bytes(self.limit)} is reached within a step"
        time = "" if self.seconds is None else f", {_coarse_time(self.seconds)}"
        steps = counted(_two_digits(self.steps), "step")
        return f"the limit of {format_bytes(self.limit)} is reached in about {steps}{time}"


_RECENT: Final = 0.1
"""The share of the compared steps that may follow the last one of them, where what grew grows still."""

_FEW_STEPS: Final = 3
"""So many steps may follow in any case: a step that ends now is compared with the next search."""


def growth_headline(model: Model, stop: int, *, still_held: bool = False) -> str:
    """The headline of a heap without a failure that grows with every step of its program; empty: it does not.

    Args:
        model: of the heap; it returns to its step.
        stop: the end of the trace, up to which it grows.
        still_held: of what grew, only what is held at the end counts.
    """
    found = growth_until(model, stop, still_held=still_held)
    if found is None or not _goes_on(found):
        return ""
    forecast = limit_forecast(model, found, stop)
    until = "" if forecast is None else f". If that goes on, {forecast.clause}"
    grow = f"and {found.growing - 1:,} more grow" if found.growing > 1 else "grows"
    return f"{growing_name(model.trace, found)} {grow}, {signed_bytes(found.bytes_a_step)} a step{until}"


def _goes_on(found: Growth) -> bool:
    """Whether what grew did so up to the end: the steps of the program are still those that were compared.

    A cache that is full, or an evaluation after the training, makes other steps.
    """
    later = found.steps.found - int(found.steps.numbers[-1])
    return later <= max(_FEW_STEPS, found.all_steps * _RECENT)


def limit_forecast(model: Model, found: Growth, stop: int) -> Forecast | None:
    """When the heap reaches its limit; None: it has none of its own, or does not grow. The model returns to its step.

    What grows may take the place of what shrinks, as results take that of the inputs: the heap itself must grow.

    Args:
        model: of the heap.
        found: what grows, from `growth_until`.
        stop: the end of the trace, from which it goes on.
    """
    trace, ends = model.trace, found.steps.ends
    limit = trace.origin.pools[model.pool].limit
    if limit is None or not _goes_on(found):
        return None
    with model.visiting(int(ends[0])):
        before = int(model.stats().bytes_in_use)
        model.seek(int(ends[-2]))
        rows = measured(model, [int(ends[-1]), stop])
        grown, most = int(rows["bytes_in_use_last"][0]) - before, int(rows["bytes_in_use_max"].max())
    left, a_step = limit - most, min(found.bytes_a_step, grown / found.all_steps)
    if a_step <= 0 or left < 0:  # below 0: the limit is that of something else
        return None
    steps = int(left / a_step)
    times = event_times(trace, ends[[0, -1]].astype(np.uint64))
    seconds = int(elapsed(times[:1], times[1:])[0]) / 1e9 / found.all_steps * steps
    return Forecast(limit, left, steps, seconds or None)


def _two_digits(number: int) -> int:
    return round(number, 2 - len(str(number)))


_COARSE_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))


def _coarse_time(seconds: float) -> str:
    """A time of which only the first two digits mean something, such as `54 s` and `4.5 h`."""
    if seconds < 1:
        return "less than 1 s"
    unit, size = next((each for each in _COARSE_UNITS if seconds >= 2 * each[1]), ("s", 1))
    value = seconds / size
    return f"{value:.1f} {unit}" if value < 9.95 else f"{_two_digits(round(value)):,} {unit}"
