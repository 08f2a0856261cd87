"""`bfcviz compare`: what changed from one recording to another, as text, as a JSON object, or as a picture."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bfcviz.analysis.ranks import pair_lines, paired_ranks, pairs_json
from bfcviz.analysis.recording_alignment import AlignedBy
from bfcviz.analysis.recording_comparison import comparison_json, comparison_lines, comparison_markdown
from bfcviz.cli.arguments import add_by, asked_ranks, writable
from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.public_functions import compare_recordings, open_several
from bfcviz.terminal import json_text, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz compare`."""
    parser.add_argument(
        "file",
        metavar="A",
        help="the recording before: anything that `bfcviz info` reads. Alone, a folder or a pattern with the ranks of "
        "one job: a typical rank is compared with the worst",
    )
    parser.add_argument(
        "more",
        metavar="B",
        nargs="*",
        help="the recording after; changes are B less A. Of two folders with ranks the same ranks are compared; three "
        "or more files are the ranks of one job",
    )
    add_by(parser, "memory is grouped", "op, the names of labels")
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
        type=_parse_pool_pair,
        metavar="N",
        help="the number of the allocator in both files, from 0; N:M: N in A, and M in B (default: the heaps of one "
        "name: that of the first failed request, else the first that both have)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print a comment for a pull request: the answer, totals, holders",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="also draw memory over time and the largest changes; formats as those of `bfcviz export`",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison of two recordings, and draw it where asked.

    Raises:
        FileError: a file cannot be read; or the picture cannot be written, or would replace a file without --force.
    """
    files, out = [arguments.file, *arguments.more], arguments.output
    if out is not None:
        from bfcviz.figures.compared_recordings import recordings_compared  # noqa: PLC0415
        from bfcviz.figures.export import FORMATS, export  # noqa: PLC0415  plotly, which texts do not need

        same = [file for file in files if out.exists() and Path(file).exists() and out.samefile(file)]
        writable(out, same[0] if same else files[0], FORMATS, force=arguments.force)
    sides = _compared_sides(arguments, files)
    if sides.lines and not (arguments.json or arguments.markdown):
        say(*sides.lines, "")
    found = compare_recordings(
        sides.a, sides.b, arguments.pool, by=arguments.by, align=arguments.align, mark=arguments.mark
    )
    if arguments.json:
        print(json_text(comparison_json(found) | ({"ranks": sides.ranks} if sides.ranks else {})))
    elif arguments.markdown:
        say(*comparison_markdown(found).splitlines(), whole=True)
    else:
        say(*comparison_lines(found))
    if out is not None:
        path = export(recordings_compared(found, arguments.theme), out)
        if not (arguments.json or arguments.markdown):
            say("", f"picture: {path}")


class _Sides(NamedTuple):
    """What `bfcviz compare` compares; and how the ranks of several files were chosen, as text and as JSON values."""

    a: Trace
    b: Trace
    lines: Sequence[str] = ()
    ranks: Mapping[str, Any] = MappingProxyType({})


def _compared_sides(arguments: argparse.Namespace, files: Sequence[str]) -> _Sides:
    """What is compared: two files; of a set of ranks a typical one and the worst; of two the rank that changed most."""
    if len(files) == 2:
        before, after = (open_several([file]) for file in files)
        if before is not None and after is not None:
            pairs = paired_ranks(before, after)
            a, b = pairs[0]
            lines = [*pair_lines(pairs), "", f"{b.name}:"]
            return _Sides(before.open(a), after.open(b), lines, pairs_json(pairs))
        first = open_trace(files[0]) if before is None else before.trace
        second = open_trace(files[1]) if after is None else after.trace
        sets = filter(None, (before, after))
        return _Sides(
            first, second, [f"{each.source}: {each.worst_heap.name}, the worst rank" for each in sets]
        )
    ranks = asked_ranks(arguments)
    if ranks is None:
        raise TraceError(
            f"{files[0]} is one recording: give a second one, or a folder or a pattern with several"
        )
    chosen = [f"A is {ranks.typical.name}, a typical rank; B is {ranks.worst_heap.name}, the worst"]
    return _Sides(ranks.open(ranks.typical), ranks.trace, [*ranks.lines, "", *chosen], ranks.to_json())


def _parse_pool_pair(text: str) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of an allocator: give one number, or two such as 0:1"
        )
    return int(parts[0]), int(parts[-1])
