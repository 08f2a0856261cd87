"""`bfcviz compare`: what changed from one recording to another, as text, as a JSON object, or as a picture."""

import argparse
from pathlib import Path

from bfcviz.analysis.alignment import AlignedBy
from bfcviz.analysis.comparison import RecordingComparison, comparison_json, comparison_lines
from bfcviz.cli.common import writable
from bfcviz.explain_and_draw import compare_recordings
from bfcviz.figures.comparison.recordings import recordings_compared
from bfcviz.figures.export import FORMATS, export
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.grouping import UNNAMED
from bfcviz.terminal import json_text, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz compare`."""
    parser.add_argument("a", metavar="A", help="the recording before: anything that `bfcviz info` reads")
    parser.add_argument("b", metavar="B", help="the recording after; changes are B less A")
    parser.add_argument(
        "--by",
        choices=UNNAMED,
        default="op",
        metavar="WHAT",
        type=lambda name: name.replace("-", "_"),
        help=f"what memory is grouped by: one of {', '.join(UNNAMED)} (default: op, the names of labels)",
    )
    parser.add_argument(
        "--align",
        choices=[str(way) for way in AlignedBy if way is not AlignedBy.STATE],
        metavar="WAY",
        help="how steps of both are paired: `marks` of the same name, equal `steps` of the program, `labels` of "
        "allocations, or the `share` of all events (default: the first of these that works)",
    )
    parser.add_argument(
        "--mark", metavar="NAME", help="the mark or phase that comes once a step of the program"
    )
    parser.add_argument(
        "--pool",
        type=_pools,
        metavar="N",
        help="the number of the allocator in both files, from 0; N:M: N in A, and M in B (default: the heaps of one "
        "name: that of the first failed request, else the first that both have)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help=f"also draw memory over time and the largest changes; the file ends in one of {', '.join(FORMATS)}",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison, and draw it where asked.

    Raises:
        FileError: a file cannot be read; or the picture cannot be written, or would replace a file without --force.
    """
    files, out = [arguments.a, arguments.b], arguments.output
    if out is not None:
        same = [file for file in files if out.exists() and Path(file).exists() and out.samefile(file)]
        writable(out, same[0] if same else files[0], FORMATS, force=arguments.force)
    a, b = map(open_trace, files)
    found = compare_recordings(
        a, b, arguments.pool, by=arguments.by, align=arguments.align, mark=arguments.mark
    )
    _print(found, as_json=arguments.json)
    if out is not None:
        path = export(recordings_compared(found, arguments.theme), out)
        if not arguments.json:
            say("", f"picture: {path}")


def _print(found: RecordingComparison, *, as_json: bool) -> None:
    if as_json:
        print(json_text(comparison_json(found)))
    else:
        say(*comparison_lines(found))


def _pools(text: str) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of an allocator: give one number, or two such as 0:1"
        )
    return int(parts[0]), int(parts[-1])
