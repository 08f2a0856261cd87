"""`bfcviz holders`: who holds the memory at a step, and what leaks; as text or as a JSON object."""

import argparse
from typing import Any, Final

from bfcviz.analysis.leaks import Growth, Leaks, leaks
from bfcviz.cli.arguments import (
    add_by,
    add_kinds,
    add_more_files,
    asked_ranks,
    parse_step,
    pool_number,
    say_truncated,
    status_of,
)
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.find_steps import NAMED_STEPS, failing_pool
from bfcviz.model.holders import Holders, holder_lines, holders, require_chunks
from bfcviz.model.memory_kinds import use_kinds
from bfcviz.model.model import Model
from bfcviz.public_functions import what_grew
from bfcviz.terminal import json_text, say

_MOST_CHUNKS: Final = 1000  # chunks of a holder that the JSON object lists


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz holders`."""
    parser.set_defaults(refuse=parser.error)
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    add_more_files(parser)
    add_by(parser, "memory is grouped", "op, the names of labels")
    add_kinds(parser, "with --by kind")
    parser.add_argument(
        "--step",
        type=lambda text: "last" if text == "end" else parse_step(text),
        metavar="N",
        help="how many events have happened, from 0; or `peak` (most bytes in use; the default), `end` or `worst` "
        "(highest external fragmentation); with --since the default is the end",
    )
    parser.add_argument(
        "--pool",
        metavar="NAME",
        help="the allocator: its name, or its number in the file, from 0 (default: the one whose request failed first, "
        "else the first)",
    )
    parser.add_argument(
        "--leaks", action="store_true", help="show what was never freed, and what grows with every step"
    )
    parser.add_argument("--phase", metavar="NAME", help="with --leaks: only what this phase allocated")
    parser.add_argument(
        "--events",
        nargs=2,
        type=int,
        metavar=("FROM", "TO"),
        help="with --leaks: only what these events allocated, TO itself not included",
    )
    parser.add_argument(
        "--mark", metavar="NAME", help="with --leaks: the mark or phase that comes once a step of the program"
    )
    parser.add_argument(
        "--since",
        type=lambda text: int(text) if text.isdecimal() else text,
        metavar="N",
        help="show what grew from here to --step: how many events have happened, or the name of a mark or phase",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: sizes in bytes")


def run(arguments: argparse.Namespace) -> int | None:
    """Print the holders of memory, or the leaks; of several ranks first what their holders have in common."""
    for name in ("phase", "events", "mark"):
        if getattr(arguments, name) is not None and not arguments.leaks:
            arguments.refuse(f"--{name} is of what leaks: give --leaks with it")
    ranks = asked_ranks(arguments, by=arguments.by, step="peak" if arguments.step is None else arguments.step)
    if ranks is None:
        _print_holders_or_leaks(open_trace(arguments.file), arguments)
        return None
    if arguments.json and not arguments.leaks:
        print(json_text(ranks.to_json(holders=True)))
        return status_of(ranks)
    if not arguments.json:
        say(*ranks.holder_lines, "", f"{ranks.worst_heap.name}, {ranks.worst_heap.place.file}:", "")
    _print_holders_or_leaks(ranks.trace, arguments)
    return status_of(ranks)


def _print_holders_or_leaks(trace: Trace, arguments: argparse.Namespace) -> None:
    """Print the holders or the leaks of one file."""
    use_kinds(trace, arguments.kinds)
    asked = arguments.pool
    pool = arguments.pool = failing_pool(trace) if asked is None else pool_number(trace, asked)
    require_chunks(trace, pool)
    if not arguments.json:
        say_truncated(trace)
    if arguments.leaks:
        start, stop = arguments.events or (None, None)
        options = {"phase": arguments.phase, "by": arguments.by, "mark": arguments.mark}
        leaked = leaks(trace, pool, start, stop, **options)
        if arguments.json:
            print(json_text({**_leaks_json(leaked), "truncated": trace.origin.truncated or None}))
        else:
            say(*leaked.lines)
        return
    if arguments.since is not None:
        _print_what_grew(trace, arguments)
        return
    step = "peak" if arguments.step is None else arguments.step
    model = Model(trace, pool)
    model.seek(NAMED_STEPS[step](trace, pool) if isinstance(step, str) else step)
    found = holders(model, arguments.by)
    if arguments.json:
        print(json_text(_holders_json(found, trace)))
    else:
        by = found.by.replace("_", " ")
        say(
            f"{trace.origin.pools[pool].name} at step {found.step:,} of {len(trace):,}, by {by}",
            *holder_lines(found),
        )


def _print_what_grew(trace: Trace, arguments: argparse.Namespace) -> None:
    """Print the holders that grew up to a step."""
    found = what_grew(trace, arguments.since, arguments.step, by=arguments.by, pool=arguments.pool)
    if arguments.json:
        steps = {"first": found.first, "last": found.last, "by": arguments.by}
        steps["truncated"] = trace.origin.truncated or None
        print(json_text({**steps, "holders": found.to_arrow().to_pylist()}))
    else:
        say(*str(found).splitlines())


def _holders_json(found: Holders, trace: Trace) -> dict[str, Any]:
    return {
        "allocator": trace.origin.pools[found.pool].name,
        "step": found.step,
        "by": found.by,
        "bytes_in_use": found.bytes_in_use,
        "chunks_in_use": found.chunks_in_use,
        "truncated": trace.origin.truncated or None,
        "holders": found.to_arrow().to_pylist(),
    }


def _leaks_json(found: Leaks) -> dict[str, Any]:
    """What `bfcviz holders --leaks --json` prints."""
    rows = []
    for row, name in enumerate(found.names):
        chunks = found.chunks_of(row)[:_MOST_CHUNKS]
        values = {field: int(found.rows[field][row]) for field in found.rows.dtype.names or ()}
        first = values.pop("first")
        listed = [
            {
                "address": int(chunk["address"]),
                "size": int(chunk["size"]),
                "age_events": found.until - int(chunk["born"]),
                "age_ns": int(found.ages_ns[first + place]),
            }
            for place, chunk in enumerate(chunks)
        ]
        rows.append({"holder": name, **values, "listed": listed})
    return {
        "events": [found.start, found.stop],
        "phase": found.phase,
        "by": found.by,
        "bytes": found.bytes,
        "chunks": len(found.chunks),
        "holders": rows,
        "growth": _leak_growth_json(found.growth),
    }


def _leak_growth_json(found: Growth) -> dict[str, Any]:
    """What grows with every step, in the output of `bfcviz holders --leaks --json`."""
    steps = found.steps
    return {
        "mark": steps.name,
        "allocation": steps.allocation,
        "steps": steps.found,
        "equal_steps": steps.equal,
        "warm_up": steps.warm_up,
        "compared": steps.numbers.tolist(),
        "compared_at": steps.ends.tolist(),
        "reason": found.reason,
        "holders": found.to_arrow().to_pylist(),
    }
