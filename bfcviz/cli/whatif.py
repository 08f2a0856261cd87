"""`bfcviz whatif`: the requests of a file served under the rules of several allocators, as a table and a figure."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bfcviz.cli.arguments import (
    add_device_arguments,
    add_request_arguments,
    asked_device,
    asked_requests,
    writable,
)
from bfcviz.cli.command import DONE, FAILED, INTERRUPTED
from bfcviz.errors import InvalidRequest
from bfcviz.policy_comparison import PolicyComparison, compare_policies, comparison_text, outcome_notes
from bfcviz.terminal import json_text, say
from bfcviz.units import format_bytes, read_as
from bfcviz.whatif.own_rules import USUAL
from bfcviz.whatif.policy import NO_LIMIT, checked_limit
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import POLICIES, meaning_of, option_text, policy_of
from bfcviz.whatif.tuning import ENOUGH, setting_line

FORMATS: Final = (".html", ".png", ".svg", ".pdf", ".csv", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz whatif`."""
    add_request_arguments(parser)
    add_device_arguments(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help=f"the rules of one allocator; give it once for each. The names: {', '.join(POLICIES)}; "
        f"`bfcviz whatif --list` explains them. Default: the job's own rules, where they are known, and "
        f"{', '.join(USUAL)}",
    )
    parser.add_argument(
        "--limit",
        metavar="SIZE",
        help="the memory limit, such as 12GiB; `none`: no limit (default: that of --device, or of the file)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="print what each column means and what is assumed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help=f"write the figure, or its numbers; the name ends in one of {', '.join(FORMATS)}",
    )
    parser.add_argument(
        "--theme", choices=("light", "dark"), default="light", help="of the figure; default: light"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--list", action=_PrintPolicies, nargs=0, help="print all policies with their options and defaults"
    )


class _PrintPolicies(argparse.Action):
    """The argument `bfcviz whatif --list`: prints the table of policies, and ends; as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        say(*policy_lines())
        parser.exit()


def policy_lines() -> Iterator[str]:
    """What `bfcviz whatif --list` prints: each policy with its meaning, and its options with their defaults."""
    yield (
        "give a policy as NAME or NAME:OPTION=VALUE,...; sizes as 2MiB; below each are its options, "
        "their defaults and what they mean"
    )
    for name, entry in POLICIES.items():
        yield ""
        yield f"{name}: {entry.what}"
        for key, default in entry.options.items():
            value = option_text(default, default) if default != "" else " (empty)"
            yield f"    {f'{key}={value}':34} {meaning_of(name, key)}"


def run(arguments: argparse.Namespace) -> int:
    """Print the table of policies, and write the figure; status 1 if none can serve the requests, 130 after Ctrl-C.

    Raises:
        InvalidRequest: there is no such policy, option or limit; or the file has no requests to serve.
        FileError: the figure cannot be written.
    """
    for policy in arguments.policy or ():
        policy_of(policy)  # before the file is read, which may take long
    limit, device = asked_limit(arguments)
    out = arguments.output
    if out is not None:
        out = writable(out, arguments.file, FORMATS, force=arguments.force)
    stream = asked_requests(arguments)
    if arguments.limit is None and arguments.device is None:
        limit = stream.limit
    found = compare_policies(stream, arguments.policy, limit, device=device)
    if arguments.json:
        print(json_text(comparison_json(found)))
    else:
        text = comparison_text(found.comparison, explain=arguments.explain)
        say(*text.splitlines(), *action_lines(found, arguments.file), whole=True)  # a table
    if out is not None:
        _write_whatif_figure(found, out, arguments)
    if not found.comparison.complete:
        return INTERRUPTED
    served = (each.outcome is not None for each in found.comparison.results if each.is_allocator)
    return DONE if any(served) else FAILED


def asked_limit(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The limit that `bfcviz whatif` serves under, None for none; and the device if the limit is a share of it.

    Raises:
        InvalidRequest: a size is none, or both a limit and a device are given.
    """
    limit, device = asked_device(arguments)
    if arguments.limit is None:
        return limit, device
    if arguments.device is not None:
        raise InvalidRequest(
            "--limit and --device both say how much memory there is; give --device SIZE, and --fraction for a share"
        )
    if note := read_as(arguments.limit):
        say(note, file=sys.stderr)
    limit = None if arguments.limit == "none" else replay_limit(arguments.limit)
    checked_limit(limit)
    return limit, None


def action_lines(found: PolicyComparison, file: str) -> list[str]:
    """The line to set, where other settings of the job's own allocator need less memory or do not fail."""
    comparison = found.comparison
    own = next((each for each in comparison.results if each.role), None)
    if comparison.own is None or own is None or own.outcome is None:
        return []
    rules = comparison.own.policy.name
    least, name = (own.outcome.peak_reserved, "") if own.outcome.fits else (NO_LIMIT, "")
    for each in comparison.results:
        outcome = each.outcome
        if outcome is None or outcome.policy != rules or not outcome.fits:
            continue
        if outcome.peak_reserved < (1 - ENOUGH) * least:
            least, name = outcome.peak_reserved, each.name
    if not name:
        return ["", "# the other settings of this allocator:", f"bfcviz tune {file}"]
    line = setting_line(policy_of(name), comparison.stream.family, comparison.own.policy)
    now = f"fits, in {format_bytes(least)}"
    if own.outcome.fits:
        now = f"{format_bytes(least)} instead of {format_bytes(own.outcome.peak_reserved)}"
    return ["", f"# {now}:", line, "# all settings of this allocator:", f"bfcviz tune {file}"]


def comparison_json(found: PolicyComparison) -> dict[str, Any]:
    """What `bfcviz whatif --json` prints; sizes in bytes, null for what is not known."""
    stream, own = found.comparison.stream, found.comparison.own
    return {
        "source": stream.source,
        "requests": len(stream),
        "limit_bytes": found.comparison.limit,
        "lower_bound_bytes": int(stream.live_bytes.max(initial=0)),
        "assumed_driver_call_us": found.comparison.call_cost_us,
        "rules_of_the_job": None if own is None else {"policy": own.text, "role": own.role, "why": own.why},
        "policies": found.comparison.to_rows(),
        "notes": [*outcome_notes(found.comparison), *stream.notes],
    }


def _write_whatif_figure(found: PolicyComparison, out: Path, arguments: argparse.Namespace) -> None:
    from bfcviz.figures.export import export  # noqa: PLC0415  plotly, which the table does not need

    export(found.figure(arguments.theme), out)
    if not arguments.json:
        say(f"{out}: {format_bytes(out.stat().st_size)}")
