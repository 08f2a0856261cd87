"""`bfcviz sweep`: the requests of many files under many policies and limits, on local processes or a Dask cluster."""

import argparse
import sys
from pathlib import Path
from typing import Any

from bfcviz.cli.arguments import add_failed_arguments, writable
from bfcviz.cli.command import DONE, FAILED, INTERRUPTED
from bfcviz.cli.progress_bar import search_control
from bfcviz.errors import InvalidRequest
from bfcviz.terminal import json_text, say
from bfcviz.units import read_as
from bfcviz.whatif.own_rules import USUAL
from bfcviz.whatif.policy_table import POLICIES, is_compared, policy_of
from bfcviz.whatif.sweep import SweepResults, sweep
from bfcviz.whatif.sweep_points import SweepLimit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz sweep`."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="traces or profiles: anything that `bfcviz info` reads, or URLs that fsspec reads, such as s3://...",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help=f"the rules of one allocator; give it once for each. The names: {', '.join(POLICIES)}; "
        f"`bfcviz whatif --list` explains them (default: {', '.join(USUAL)})",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="SIZE",
        help="a memory limit, such as 12GiB, or 110%% of the most bytes that a file requests at once; give it once for "
        "each (default: `none`, no limit)",
    )
    parser.add_argument(
        "--pool", metavar="NAME", help="the allocator in each file (default: as `bfcviz whatif`)"
    )
    add_failed_arguments(parser, with_failed=True)
    parser.add_argument(
        "--stop-at-failure", action="store_true", help="end each replay after its first request that fails"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--processes", type=int, metavar="N", help="serve on N processes of this machine (default: in one)"
    )
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="serve on the workers of a Dask cluster: the address of its scheduler, such as tcp://host:8786",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH.parquet",
        help="write the numbers of each point, every few seconds and at the end; with --resume, those that are there "
        "are not served again",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the results in the file of --output"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")


def run(arguments: argparse.Namespace) -> int:
    """Print a line of the sweep for each file and policy. Exit status 1 if no point has numbers, 130 after Ctrl-C.

    Raises:
        InvalidRequest: there is no such policy, option or limit; or no scheduler answers.
        FileError: the results cannot be read or written.
        MissingExtra: a scheduler is given, and Dask is not installed.
    """
    if arguments.processes is not None and arguments.processes < 1:
        raise InvalidRequest(f"--processes is {arguments.processes}; give 1 or more")
    policies = arguments.policy or list(USUAL)
    for policy in policies:
        policy_of(policy)
    limits = [None if each == "none" else each for each in arguments.limit or ["none"]]
    for limit in limits:
        SweepLimit.of(limit)
        if limit is not None and (note := read_as(limit)):
            say(note, file=sys.stderr)
    out = _sweep_results_file(arguments)
    replaces = out is not None and out.exists() and not arguments.resume
    with search_control("Sweeping") as control:
        found = sweep(
            arguments.files,
            policies,
            limits,
            client=arguments.scheduler,
            processes=arguments.processes,
            pool=arguments.pool,
            with_failed=not arguments.without_failed,
            stop_at_failure=arguments.stop_at_failure,
            results=out,
            resume=arguments.resume,
            progress=lambda now: control.report(now.done, now.asked, ""),
        )
    if arguments.json:
        print(json_text(sweep_json(found)))
    else:
        say(*str(found).splitlines(), whole=True)  # a table
    if replaces and not found.has_numbers:
        say(f"{out}: the earlier results are kept, for no point has numbers", file=sys.stderr)
    if not found.complete:
        return INTERRUPTED
    return DONE if found.has_numbers else FAILED


def _sweep_results_file(arguments: argparse.Namespace) -> Path | None:
    """The file of the results of a sweep, checked before the work begins."""
    out: Path | None = arguments.output
    if out is None:
        if arguments.resume:
            raise InvalidRequest("--resume goes on with earlier results; say with -o in which file they are")
        return None
    for file in arguments.files:
        writable(out, file, [".parquet"], force=arguments.force or arguments.resume)
    return out


def sweep_json(found: SweepResults) -> dict[str, Any]:
    """The results of a sweep as one object; sizes in bytes, null for what is not known."""
    return {
        "points": found.to_arrow().to_pylist(),
        "compared_with_a_real_allocator": {point.policy: is_compared(point.policy) for point in found.points},
        "asked": found.asked,
        "complete": found.complete,
        "reason": found.reason or None,
        "resumed": found.resumed,
        "seconds": round(found.seconds, 3),
    }
