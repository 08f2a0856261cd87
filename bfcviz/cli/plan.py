"""`bfcviz plan`: one region with a place for each block of a job, planned ahead; what it saves, and its offsets."""

import argparse
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bfcviz.cli.arguments import add_request_arguments, asked_requests, writable
from bfcviz.cli.command import INTERRUPTED
from bfcviz.cli.progress_bar import search_control
from bfcviz.errors import InvalidRequest
from bfcviz.events.storage.files import replacing
from bfcviz.extras import needed
from bfcviz.terminal import json_text, say
from bfcviz.units import format_bytes
from bfcviz.whatif.own_rules import own_or_bfc_rules
from bfcviz.whatif.planner import PackingPlan, check_plan, check_plan_seconds, pack, plan_table
from bfcviz.whatif.requests import RequestStream
from bfcviz.whatif.search import searchable

SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz plan`."""
    add_request_arguments(parser)
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help="how long to search for a plan below the first ones, which are made at once (default: %(default)g)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH.parquet", help="write the offset of each allocation"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")


def run(arguments: argparse.Namespace) -> int | None:
    """Print what the plan of placement needs, and write it. After Ctrl-C: the best plan so far, and exit status 130.

    Raises:
        InvalidRequest: the seconds are below 0 or not finite, or the file has no requests to plan for.
        FileError: the plan cannot be written.
    """
    check_plan_seconds(arguments.seconds)
    out = arguments.output
    if out is not None:
        with needed("the table of a plan", "pyarrow", "tables"):
            from pyarrow import parquet  # noqa: PLC0415  an extra

        out = writable(out, arguments.file, [".parquet"], force=arguments.force)
    stream = searchable(asked_requests(arguments))
    plan, complete = _best_plan_found(stream, arguments.seconds)
    reserved = _reserved_by_job(stream)
    if out is not None:
        with replacing(out, overwrite=True) as made:
            parquet.write_table(plan_table(plan, stream), made)
    if arguments.json:
        print(json_text(plan_json(plan, stream, reserved, complete=complete)))
    else:
        say(*plan_lines(plan, stream, reserved))
        if out is not None:
            say(f"{out}: {format_bytes(out.stat().st_size)}")
    return None if complete else INTERRUPTED


class Reserved(NamedTuple):
    """What the job's own allocator reserves, simulated.

    Attributes:
        num_bytes: at its peak.
        limit: under which it was simulated, in bytes; None: none, for the trace has none, or the job fails under it.
    """

    num_bytes: int
    limit: int | None


def _reserved_by_job(stream: RequestStream) -> Reserved | None:
    """What the rules of the job reserve under its limit, at which they return cached memory; None: not known."""
    own = own_or_bfc_rules(stream)
    if not own.role:
        return None
    for limit in dict.fromkeys((stream.limit, None)):
        with suppress(InvalidRequest):  # rules that take their whole limit at once need one
            found = own.policy.serve(stream, limit)
            if found.fits:
                return Reserved(found.peak_reserved, limit)
    return None


def plan_lines(plan: PackingPlan, stream: RequestStream, reserved: Reserved | None) -> list[str]:
    """What `bfcviz plan` prints: the height of the plan, how far it is from the least, and what it saves."""
    least = "no plan needs less"
    if plan.height > plan.least:
        least = f"within {100 * plan.excess:.1f} % of the least that is proven, {format_bytes(plan.least)}"
    lines = [f"one region of {format_bytes(plan.height)} has a place for each allocation: {least}"]
    if plan.not_searched:
        lines.append(f"no search was made: {plan.not_searched}")
    if reserved is not None:
        saved = reserved.num_bytes - plan.height
        under = f" under {format_bytes(reserved.limit)}" if reserved.limit is not None else " without a limit"
        lines.append(
            f"the job's own allocator, simulated, reserves {format_bytes(reserved.num_bytes)}{under}: "
            + (f"the plan saves {format_bytes(saved)}" if saved > 0 else "the plan saves nothing")
        )
    return [*lines, *stream.notes]


def plan_json(
    plan: PackingPlan, stream: RequestStream, reserved: Reserved | None, *, complete: bool
) -> dict[str, Any]:
    """What `bfcviz plan` prints as one object; sizes in bytes, null for what is not known."""
    return {
        "plan_bytes": plan.height,
        "least_bytes": plan.least,
        "found_by": plan.order,
        "not_searched": plan.not_searched or None,
        "reserved_bytes": None if reserved is None else reserved.num_bytes,
        "reserved_under_limit_bytes": None if reserved is None else reserved.limit,
        "saved_bytes": None if reserved is None else max(reserved.num_bytes - plan.height, 0),
        "allocations": int((plan.lifetimes.size > 0).sum()),
        "failed_requests_left_out": stream.left_out,
        "complete": complete,
        "notes": list(stream.notes),
    }


def _best_plan_found(stream: RequestStream, seconds: float) -> tuple[PackingPlan, bool]:
    """The plan that `bfcviz plan` found until its end or Ctrl-C; and whether it was not interrupted."""
    begun = time.monotonic()
    best: list[PackingPlan] = []
    with search_control("Searching a plan") as control:

        def report(plan: PackingPlan) -> bool:
            best[:] = [plan]
            control.report(int(1000 * (time.monotonic() - begun)), int(1000 * seconds), "")
            return True

        try:
            return pack(stream, seconds, report), True
        except KeyboardInterrupt:
            if not best:
                raise
            check_plan(best[0])
            return best[0], False
