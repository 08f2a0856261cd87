"""`bfcviz fit`: the smallest memory limit under which a policy serves the requests of a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from bfcviz.cli.arguments import add_request_arguments, asked_requests
from bfcviz.cli.command import INTERRUPTED
from bfcviz.cli.progress_bar import search_control
from bfcviz.errors import InvalidRequest
from bfcviz.terminal import json_text, say
from bfcviz.units import read_as
from bfcviz.whatif.own_rules import own_or_bfc_rules
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import POLICIES, is_compared, on_device, policy_of
from bfcviz.whatif.smallest_limit import GRANULE, SmallestLimit, limit_lines, smallest_limit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz fit`."""
    add_request_arguments(parser, with_failed=True)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:OPTION=VALUE,...]",
        help=f"the rules to serve by: one of {', '.join(POLICIES)}; `bfcviz whatif --list` explains them (default: "
        "the job's own rules, where the file says them; else bfc, whose growth is off)",
    )
    parser.add_argument(
        "--granule",
        default=GRANULE,
        metavar="SIZE",
        help=f"try only multiples of this, such as 2MiB (default: {GRANULE})",
    )
    parser.add_argument(
        "--device",
        metavar="SIZE",
        help="memory of the device, such as 80GiB: the limit is then a share of it, as by PyTorch's "
        "set_per_process_memory_fraction (default: the limit is that of the device)",
    )
    parser.add_argument("--at-most", metavar="SIZE", help="the largest limit to try, such as 80GiB")
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="keep the results of replays here, for the next search"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")


def run(arguments: argparse.Namespace) -> int | None:
    """Print the smallest limit. After Ctrl-C: what is known so far, and exit status 130.

    Raises:
        InvalidRequest: there is no such policy or limit; the file has no requests to serve; or the policy cannot serve
            them.
    """
    if len(arguments.policy or []) > 1:
        raise InvalidRequest(
            f"--policy was given {len(arguments.policy)} times; a search is for one policy: run `bfcviz fit` for each"
        )
    # Before the file is read, which may take long.
    given = [policy_of(text) for text in arguments.policy or ()]
    granule = replay_limit(arguments.granule, "--granule") or 1
    at_most = replay_limit(arguments.at_most, "--at-most")
    device = replay_limit(arguments.device, "--device")
    for note in filter(None, map(read_as, (arguments.granule, arguments.at_most, arguments.device))):
        say(note, file=sys.stderr)
    stream = asked_requests(arguments, needs_frees=False)
    rules = None if given else own_or_bfc_rules(stream)
    policy = on_device(given[0] if rules is None else rules.policy, device)
    at_most = device if at_most is None else at_most
    with search_control(f"Searching the smallest limit of {policy.name}") as control:
        found = smallest_limit(
            stream, policy, control=control, granule=granule, at_most=at_most, cache=arguments.cache
        )
    if arguments.json:
        print(json_text({**limit_json(found), "policy_chosen_because": None if rules is None else rules.why}))
    else:
        if rules is not None:
            say(f"rules: {rules.text}: {rules.why}; --policy names other rules")
        say(*limit_lines(found))
    return None if found.complete else INTERRUPTED


def limit_json(found: SmallestLimit) -> dict[str, Any]:
    """What `bfcviz fit --json` prints: sizes in bytes, null for what is not known."""
    return {
        "limit_bytes": found.limit_bytes,
        "limits_of_other_orders_bytes": [
            each.amount if each.fits else None
            for each in (found.orders.found[1:] if found.orders is not None else ())
        ],
        "next_smaller_bytes": found.next_smaller,
        "next_smaller_fails_at_event": found.fails_at_event,
        "next_smaller_fails_at_request": found.fails_at_request,
        "failed_size_bytes": found.failed_size,
        "failed_label": found.failed_label,
        "policy": found.policy,
        "options": dict(found.options),
        "compared_with_a_real_allocator": is_compared(found.policy),
        "lower_bound_bytes": found.lower_bound,
        "added_bytes": found.added,
        "tried": [{"limit_bytes": each.limit, "fits": each.fits} for each in found.tried],
        "replays": found.replays,
        "seconds": round(found.seconds, 3),
        "complete": found.complete,
        "notes": list(found.notes),
    }
