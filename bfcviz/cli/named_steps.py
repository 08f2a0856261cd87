"""The argument `--step`: a number of events, or the name of a moment of a trace."""

import argparse
from collections.abc import Callable
from typing import Final

from bfcviz.analysis.why import failed_steps
from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.model.navigation import peak, worst_fragmentation


def _oom(trace: Trace, pool: int) -> int:
    steps = failed_steps(trace, pool)
    if not steps:
        raise TraceError(
            f"no request of pool {pool} failed in this file; give --step peak, worst, last or a number"
        )
    return steps[0]


NAMED_STEPS: Final[dict[str, Callable[[Trace, int], int]]] = {
    "oom": _oom,
    "worst": worst_fragmentation,
    "peak": peak,
    "last": lambda trace, _: len(trace),
}
"""Name -> a function that finds the step in a pool of a trace."""


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
