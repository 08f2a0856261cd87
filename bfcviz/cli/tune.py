"""`bfcviz tune`: the setting of the job's own allocator that saves most memory, as the line to set."""

import argparse
from typing import Any

from bfcviz.cli.arguments import add_device_arguments, add_request_arguments, asked_device, asked_requests
from bfcviz.cli.command import DONE, FAILED, INTERRUPTED
from bfcviz.cli.progress_bar import search_control
from bfcviz.terminal import json_text, say
from bfcviz.whatif.policy_table import is_compared
from bfcviz.whatif.search import Trial
from bfcviz.whatif.tuning import Tuned, tune, tuned_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz tune`."""
    add_request_arguments(parser)
    add_device_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")


def run(arguments: argparse.Namespace) -> int:
    """Print the setting to propose. Exit status 1 if none serves the requests; after Ctrl-C 130, with what is known.

    Raises:
        InvalidRequest: the size of the device is none; the file does not say which allocator it had, or has nothing to
            serve.
    """
    limit, device = asked_device(arguments)
    stream = asked_requests(arguments, keep_failed=True)
    with search_control("Searching the settings") as control:
        found = tune(stream, limit, device=device, with_failed=not arguments.without_failed, control=control)
    if arguments.json:
        print(json_text(tuned_json(found)))
    else:
        say(*tuned_lines(found))
    if not found.complete:
        return INTERRUPTED
    return DONE if found.best is not None and found.best.fits else FAILED


def tuned_json(found: Tuned) -> dict[str, Any]:
    """What `bfcviz tune --json` prints: sizes in bytes, null for what is not known."""
    return {
        "line": found.line or None,
        "limit_bytes": found.limit,
        "rules_of_the_job": {"policy": found.own.text, "why": found.own.why} if found.own.role else None,
        "why_not_served": found.why_not or None,
        "graph_pools": None if found.graph_pools is None else found.graph_pools._asdict(),
        "now": _tuning_trial_json(found.now),
        "proposed": _tuning_trial_json(found.best),
        "proposed_for_newest": _tuning_trial_json(found.newest),
        "compared_with_a_real_allocator": is_compared(
            found.best.policy if found.best is not None else found.own.policy.name
        ),
        "settings_tried": found.tried,
        "failed_requests_left_out": found.failed,
        "failed_requests_would_fit": found.failed_fit,
        "complete": found.complete,
        "notes": list(found.notes),
    }


def _tuning_trial_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "options": dict(trial.options),
        "fits": trial.fits,
        "peak_reserved_bytes": trial.peak_reserved,
        "driver_calls": trial.driver_calls,
    }
