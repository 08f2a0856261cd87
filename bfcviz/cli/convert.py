"""`bfcviz convert`: write a trace, or a range of its steps, as .bfc, Parquet, CSV, Chrome counters or a snapshot."""

import argparse
from pathlib import Path

from bfcviz.cli.arguments import add_range_argument, say_truncated, steps_of, writable
from bfcviz.cli.progress_bar import open_with_progress
from bfcviz.exporters.convert import SUFFIXES, convert
from bfcviz.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz convert`."""
    parser.add_argument(
        "file", metavar="FILE", help="a trace, log or snapshot: anything that `bfcviz info` reads"
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        type=Path,
        metavar="PATH",
        help="the file to write; its ending chooses the format: .bfc (a trace of bfcviz, the smallest), .parquet "
        "(a trace of bfcviz that other programs read), .csv (a row an event), .json (counters for chrome://tracing and "
        "Perfetto) or .pickle (a snapshot for PyTorch's memory viewer)",
    )
    add_range_argument(parser)
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> None:
    """Convert a trace: write the file, and say what its format cannot hold.

    Raises:
        FileError: the file cannot be written, or its ending names no format.
    """
    out = writable(arguments.out, arguments.file, SUFFIXES, force=arguments.force)
    with open_with_progress(arguments.file) as trace:
        say_truncated(trace, beside=True)
        start, stop = steps_of(arguments, trace)
        notes = convert(trace, out, start, stop, overwrite=arguments.force)
    say(f"{out}: steps {start:,} to {stop:,} of {len(trace):,}", *(f"  {note}" for note in notes))
