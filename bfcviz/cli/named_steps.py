"""The argument `--step`: a number of events, or the name of a moment of a trace."""

import argparse

from bfcviz.analysis.why import NAMED_STEPS


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
