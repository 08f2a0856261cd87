"""`bfcviz export`: write one picture of a heap at one step to a file."""

import argparse
import sys
from pathlib import Path

from bfcviz.cli.arguments import add_kinds, parse_event, parse_step, say_truncated
from bfcviz.errors import FileError, TraceError
from bfcviz.figures import FIGURES, FORMATS, draw, export
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.failure import VIEW as FAILURE
from bfcviz.figures.failure import failure_step_to_show
from bfcviz.figures.mark_values import VIEW as MARK_VALUES
from bfcviz.figures.mark_values import HasValues
from bfcviz.figures.paper import COLUMN_MM, PAGE_MM
from bfcviz.figures.view_options import PLAIN
from bfcviz.importers.open_trace import open_trace, others_than_opened
from bfcviz.model.find_steps import NAMED_STEPS, failing_pool, opening
from bfcviz.model.memory_kinds import use_kinds
from bfcviz.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz export`."""
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    parser.add_argument(
        "--figure",
        default="region_map",
        choices=FIGURES,
        metavar="NAME",
        type=lambda name: name.replace("-", "_"),
        help=f"one of {', '.join(FIGURES)} (default: region_map)",
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="PATH",
        help=f"the file to write; it ends in one of {', '.join(FORMATS)}",
    )
    step = parser.add_mutually_exclusive_group()
    step.add_argument(
        "--step",
        type=parse_step,
        metavar="N",
        help="how many events have happened, from 0; or `oom` (just after the first request that failed), `peak` (most "
        "bytes in use), `worst` (highest external fragmentation) or `last`; default: `oom`, `peak` where none failed",
    )
    step.add_argument(
        "--event",
        type=parse_event,
        dest="step",
        metavar="I",
        help="index of an event, from 0: the heap just after it, which is step I + 1",
    )
    parser.add_argument(
        "--pool",
        type=int,
        metavar="N",
        help="the number of the allocator in the file, from 0; default: the one whose request failed first, else 0",
    )
    add_kinds(parser, "with --colour kind")
    parser.add_argument(
        "--colour",
        choices=COLOURINGS,
        default=PLAIN.colour,
        metavar="BY",
        help=f"what chunks are coloured by, where the figure shows chunks: {', '.join(COLOURINGS)}; "
        f"default: {PLAIN.colour}",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")
    parser.add_argument(
        "--style",
        choices=("screen", "paper"),
        default="screen",
        help="`paper`: .svg or .pdf for print, in greys and patterns, with the definitions as a caption below; "
        "default: screen",
    )
    parser.add_argument(
        "--width",
        type=float,
        default=PAGE_MM,
        metavar="MM",
        help=f"with --style paper: {COLUMN_MM} for one column, {PAGE_MM} for the page (the default)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Draw the picture of `bfcviz export` and write it.

    Raises:
        FileError: the picture would replace the file that it is drawn from.
        TraceError: the picture is of a failed request, and none failed.
    """
    out = Path(arguments.out)
    if out.exists() and Path(arguments.file).exists() and out.samefile(arguments.file):
        raise FileError(out, "", "is the file to draw from and would be overwritten; give another --out")
    if others := others_than_opened(arguments.file):
        say(f"bfcviz: {others}", file=sys.stderr)
    trace = open_trace(arguments.file)
    say_truncated(trace, beside=True)
    use_kinds(trace, arguments.kinds)
    pool, step = arguments.pool, arguments.step
    if step is None:
        pool, step = opening(trace, pool)
    elif pool is None:
        pool = failing_pool(trace)
    if step in NAMED_STEPS:
        step = NAMED_STEPS[step](trace, pool)
    if arguments.figure == FAILURE.name:
        failed = failure_step_to_show(trace, pool, step)
        if failed is None:
            raise TraceError(
                f"no request of pool {pool} failed in this file, so the figure `{FAILURE.name}` has nothing "
                f"to show; `bfcviz why {arguments.file} --size SIZE` says whether a request would fit"
            )
        step = failed if trace.first <= step <= len(trace) else step
    if arguments.figure == MARK_VALUES.name and not HasValues(trace, pool)():
        say(
            f"bfcviz: the figure `{MARK_VALUES.name}` is empty, because no mark of this file has a value that was "
            'measured; bfcviz.mark("loss", 0.5) in the program records one',
            file=sys.stderr,
        )
    look = {"theme": arguments.theme, "colour": arguments.colour}
    figure = draw(arguments.figure, trace, step, pool=pool, **look)
    path = export(figure, arguments.out, style=arguments.style, width_mm=arguments.width)
    say(f"{FIGURES[arguments.figure].title} at step {step:,} of {len(trace):,}: {path}")
