"""`bfcviz export`: write one picture of a heap at one step to a file."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError
from bfcviz.events.trace import Trace
from bfcviz.figures import FIGURES, FORMATS, draw, export
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.browse.navigation import peak, worst_fragmentation
from bfcviz.terminal import say

NAMED_STEPS: Final[dict[str, Callable[[Trace, int], int]]] = {
    "worst": worst_fragmentation,
    "peak": peak,
    "last": lambda trace, _: len(trace),
}
"""Name -> a function that finds the step in a pool of a trace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz export`."""
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    parser.add_argument(
        "--figure",
        required=True,
        choices=FIGURES,
        metavar="NAME",
        type=lambda name: name.replace("-", "_"),
        help=f"one of {', '.join(FIGURES)}",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help=f"the file to write; it ends in one of {', '.join(FORMATS)}",
    )
    step = parser.add_mutually_exclusive_group()
    step.add_argument(
        "--step",
        type=parse_step,
        default="worst",
        metavar="N",
        help="how many events have happened, from 0; or `worst` (highest external fragmentation; the default), "
        "`peak` (most bytes in use) or `last`",
    )
    step.add_argument(
        "--event",
        type=parse_event,
        dest="step",
        metavar="I",
        help="index of an event, from 0: the heap just after it, which is step I + 1",
    )
    parser.add_argument(
        "--pool", type=int, default=0, metavar="N", help="the number of the allocator in the file, from 0"
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")


def run(arguments: argparse.Namespace) -> None:
    """Draw the picture and write it.

    Raises:
        FileError: the picture would replace the file that it is drawn from.
    """
    out = Path(arguments.out)
    if out.exists() and Path(arguments.file).exists() and out.samefile(arguments.file):
        raise FileError(out, "", "is the file to draw from and would be overwritten; give another --out")
    trace = open_trace(arguments.file)
    step = arguments.step
    if step in NAMED_STEPS:
        step = NAMED_STEPS[step](trace, arguments.pool)
    figure = draw(arguments.figure, trace, step, pool=arguments.pool, theme=arguments.theme)
    path = export(figure, arguments.out)
    say(f"{FIGURES[arguments.figure].title} at step {step:,} of {len(trace):,}: {path}")


def parse_event(text: str) -> int:
    """The step just after an event."""
    try:
        event = int(text.replace(",", ""))
    except ValueError:
        event = -1
    if event < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not the index of an event: give a number from 0")
    return event + 1


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
