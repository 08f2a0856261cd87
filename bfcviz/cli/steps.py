"""The arguments `--step`, `--event`, `--range` and `--time`: numbers of events, names of moments, times."""

import argparse
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.model.navigation import NAMED_STEPS

# ------------------------------------------------------------------------------
# The arguments `--step` and `--event`: the number of a step, its name, or the index of an event.


def parse_step(text: str) -> int | str:
    """The number of a step, or one of `NAMED_STEPS`."""
    if text in NAMED_STEPS:
        return text
    try:
        return int(text.replace(",", ""))  # bfcviz prints 10,479
    except ValueError:
        names = ", ".join(NAMED_STEPS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step: give a number, or one of {names}"
        ) from None


def parse_event(text: str) -> int:
    """The argument `--event`: the step just after the event with this index."""
    try:
        event = int(text.replace(",", ""))
    except ValueError:
        event = -1
    if event < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not the index of an event: give a number from 0")
    return event + 1


# ------------------------------------------------------------------------------
# The arguments `--range` and `--time`: a part of a trace, as steps or as times since its first event.

_UNITS: Final = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1, "min": 60 * 10**9}

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)")

Ends = tuple[int | None, int | None]
"""The first and the last of a range; None: that of the trace."""


def add_range_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--range` and `--time`, of which one can be given."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--range",
        dest="steps",
        type=partial(_parse_range, parse=_parse_whole_step, form="steps, such as 1000:2000"),
        metavar="A:B",
        help="only steps A to B, such as 1000:2000, 1000: or :2000; a step is a number of events applied",
    )
    which.add_argument(
        "--time",
        type=partial(_parse_range, parse=_parse_nanoseconds, form="times, such as 10s:20s"),
        metavar="A:B",
        help="only this time since the first event, such as 10s:20s, 500ms: or :2min",
    )


def steps_of(arguments: argparse.Namespace, trace: Trace) -> tuple[int, int]:
    """The first and the last step that `--range` or `--time` asks for.

    Raises:
        TraceError: the trace has no such steps, or none in that time.
    """
    first, last = trace.first, len(trace)
    if arguments.time is not None:
        return _steps_within(trace, arguments.time)
    if arguments.steps is None:
        return first, last
    start, stop = (
        end if end is not None else other for end, other in zip(arguments.steps, (first, last), strict=True)
    )
    if not first <= start <= stop <= last:
        raise TraceError(f"--range {start}:{stop} is not in the trace: it has steps {first} to {last}")
    return start, stop


def _steps_within(trace: Trace, times: Ends) -> tuple[int, int]:
    """The steps of the events within `--time`; times never decrease in a trace."""
    if len(trace) == trace.first:
        raise TraceError("--time was given, but the trace has no event")
    begin = _time_of_event(trace, trace.first)
    start = trace.first if times[0] is None else _first_step_at(trace, begin + times[0])
    stop = len(trace) if times[1] is None else _first_step_at(trace, begin + times[1] + 1)
    if start >= stop:
        length = (_time_of_event(trace, len(trace) - 1) - begin) / 1e9
        raise TraceError(f"no event lies in that --time: the trace lasts {length:.6g} s")
    return start, stop


def _first_step_at(trace: Trace, time: int) -> int:
    """The step before the first event at or after a time, for `--time`; a search that reads few blocks."""
    low, high = trace.first, len(trace)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _time_of_event(trace, middle) < time else (low, middle)
    return low


def _time_of_event(trace: Trace, event: int) -> int:
    """The time of an event in nanoseconds, for `--time`."""
    return int(np.int64(trace.read(event, event + 1)["time"][0]))


def _parse_range(text: str, parse: Callable[[str], int | None], form: str) -> Ends:
    """The two ends of `--range` or `--time` in a command line."""
    parts = [part.strip() for part in text.replace(",", "").split(":")]
    found = [parse(part) if part else None for part in parts]
    is_known = [not part or end is not None for part, end in zip(parts, found, strict=True)]
    if len(parts) == 2 and all(is_known):
        first, last = found
        if first is None or last is None or first <= last:
            return first, last
    raise argparse.ArgumentTypeError(f"{text!r} is not a range: give two {form}")


def _parse_whole_step(text: str) -> int | None:
    """One end of `--range`; None: it is no step."""
    return int(text) if text.isdecimal() else None


def _parse_nanoseconds(text: str) -> int | None:
    """One end of `--time` in nanoseconds; None: it is no time."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2] not in _UNITS:
        return None
    value = float(found[1]) * _UNITS[found[2]]
    return int(value) if math.isfinite(value) and value < 1 << 62 else None
