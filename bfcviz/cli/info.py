"""`bfcviz info`: the format, status and last state of any trace, as a JSON object or as text."""

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from bfcviz.analysis.diagnosis import Diagnosis, failure_headline
from bfcviz.analysis.failures import all_failures
from bfcviz.analysis.missing_numbers import missing_of_chunks
from bfcviz.cli.arguments import add_more_files, asked_ranks, status_of
from bfcviz.errors import FileError, TraceError
from bfcviz.events.memory_samples import process_peak_text
from bfcviz.events.origin import (
    ENDED_BY_SIGNAL,
    PROCESS_PEAK,
    Origin,
    Status,
    ending_signal,
    later_reasons,
    process_peak,
    signal_text,
)
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.find_steps import MOST_FAILURES, failures_left_out
from bfcviz.model.fragmentation import external
from bfcviz.model.model import Model
from bfcviz.terminal import json_text, say
from bfcviz.units import counted, format_bytes

_SHOWN_STATUS: Final = {Status.RECORDING: Status.TRUNCATED}
"""A trace that is still recorded is shown as truncated: it is not complete."""

_WIDTH: Final = 24  # characters of a name in the text
_UNKNOWN: Final = "unknown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz info`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a profile of TensorFlow or XLA, a log, dump or snapshot with a heap, a trace folder, or a Parquet file",
    )
    add_more_files(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: sizes in bytes, null for unknown"
    )


def run(arguments: argparse.Namespace) -> int | None:
    """Print what a file holds; of several ranks a row each, and what differs."""
    ranks = asked_ranks(arguments)
    if ranks is not None:
        if arguments.json:
            print(json_text(ranks.to_json()))
        else:
            say(*ranks.lines)
        return status_of(ranks)
    trace = open_trace(arguments.file)
    found = info(trace)
    if arguments.json:
        print(json_text(found))
    else:
        say(*info_lines(trace.origin, found, opened_file_name(trace)))
    return None


def opened_file_name(trace: Trace) -> str:
    """The name of the file or folder that `bfcviz info` shows; "" for a trace in memory."""
    return "" if trace.path is None else trace.path.name


def info(trace: Trace) -> dict[str, object]:
    """What `bfcviz info` prints: format, status and the state of every allocator after the last event, as JSON values.

    `origin.details["facts"]`, a mapping for each pool, holds numbers that the source states itself, or cannot know
    (None). They take precedence over the numbers computed from the events.
    """
    allocators = [_allocator_info(trace, pool) for pool in range(len(trace.origin.pools))]
    origin = trace.origin  # read last: reading the events can add reasons
    reasons = list(dict.fromkeys([*origin.reasons, *(damage for _, damage in allocators if damage)]))
    status = Status.DEGRADED if len(reasons) > len(origin.reasons) else origin.status
    if origin.status == Status.RECORDING and not later_reasons(origin.details, reasons):
        reasons.append("still being recorded")
    failed, left_out = _failure_verdicts(trace)
    return {
        "format": str(origin.format),
        "status": str(_SHOWN_STATUS.get(status, status)),
        "reasons": reasons,
        "events": len(trace),
        **({} if (number := ending_signal(origin.details)) is None else {ENDED_BY_SIGNAL: number}),
        **({} if (peak := process_peak(origin.details)) is None else {PROCESS_PEAK: peak}),
        "allocators": [allocator for allocator, _ in allocators],
        "failures": [_failure_info(each) for each in failed],
        **({"failures_left_out": left_out} if left_out else {}),
    }


def _failure_verdicts(trace: Trace) -> tuple[list[Diagnosis], int]:
    """What `bfcviz info` says of failures: a verdict on each, none if events contradict; how many are left out."""
    try:
        return all_failures(trace, runs=0), failures_left_out(trace)
    except (TraceError, FileError):
        return [], 0


def _failure_info(found: Diagnosis) -> dict[str, object]:
    from bfcviz.analysis.failures import cause_for_json  # noqa: PLC0415  with the tables of messages: only for a failure

    return {
        "event": found.event,
        "pool": found.pool,
        "verdict": str(cause_for_json(found)),
        "heap_verdict": str(found.verdict),
        "requested_bytes": found.requested,
        "line": failure_headline(found),
    }


def _allocator_info(trace: Trace, pool: int) -> tuple[dict[str, object], str]:
    """What `bfcviz info` says of one heap at the end; and the contradiction in its events, "" where there is none."""
    model = Model(trace, pool)
    damage = ""
    try:
        model.seek(len(trace))
    except (TraceError, FileError) as error:
        damage = f"the numbers are those at step {model.step}: {error}"
    stats, named = model.stats(), trace.origin.pools[pool]
    name = {"name": named.options.get("allocator_name", named.name)}
    if (dump := named.options.get("dump")) is not None:  # which one, of a file with several
        name["dump"] = dump
    known: dict[str, object] = {
        **name,
        "bytes_limit": stats.bytes_limit,
        "pool_bytes": stats.pool_bytes,
        "bytes_in_use": stats.bytes_in_use,
        "requested_bytes_in_use": stats.requested_bytes_in_use,
        "peak_bytes_in_use": stats.peak_bytes_in_use,
        "regions": len(model.regions()),
        "chunks_in_use": stats.chunks_in_use,
        "chunks_free": stats.chunks_free,
        "free_bytes": stats.free_bytes,
        "largest_free_chunk": stats.largest_free_chunk,
        "external_fragmentation": external(stats),
    }
    facts = _of_pool(trace.origin, "facts", pool)
    totals = _of_pool(trace.origin, "totals", pool)
    known |= {key: value for key, value in facts.items() if key in known}
    missing = missing_of_chunks(trace, pool)
    known |= {"missing": missing} if missing else {}
    return known | ({"totals": totals} if totals else {}), damage


def _of_pool(origin: Origin, entry: str, pool: int) -> dict[str, object]:
    """What the details state of one heap, for `bfcviz info`: its mapping in an entry; empty if missing."""
    found = origin.details.get(entry)
    if not isinstance(found, list | tuple) or pool >= len(found) or not isinstance(found[pool], Mapping):
        return {}
    return dict(found[pool])


def info_lines(origin: Origin, found: Mapping[str, Any], file: str = "") -> list[str]:
    """What `bfcviz info` prints as lines of text: the file, then each allocator after the last event.

    Args:
        origin: of the trace.
        found: the object.
        file: the name of the file that was opened; "": that of the file that the trace was made from.
    """
    lines = [file or origin.source]
    if file and origin.source not in {"", file}:
        lines.append(_info_line("made from", origin.source))
    lines += [
        _info_line("format", found["format"]),
        _info_line("status", "; ".join([found["status"], *found["reasons"]])),
        _info_line("events", f"{found['events']:,}"),
    ]
    number = ending_signal(origin.details)
    if number is not None:
        ended = "; all events that its process wrote are here" if origin.has_ended_whole else ""
        lines.append(_info_line("ended by", f"{signal_text(number)}{ended}"))
    if (peak := process_peak_text(origin.details)) is not None:
        lines.append(_info_line("process at its peak", peak))
    for check in _replay_checks(origin):
        rebuilt = f"{check['checked']:,} recorded events of {check['pool']} rebuilt"
        lines.append(_info_line("checked", f"{rebuilt}, {check['differing']:,} differ"))
    names = Counter(allocator["name"] for allocator in found["allocators"])
    for pool, allocator in enumerate(found["allocators"]):
        several = "dump" in allocator and (names[allocator["name"]] > 1 or allocator["dump"] != 1)
        dump = f" (dump {allocator['dump']})" if several else ""
        name = allocator["name"] or origin.pools[pool].name
        lines += ["", f"{name}{dump} after the last event", *_allocator_info_lines(allocator)]
        failed = [each["line"] for each in found.get("failures", []) if each["pool"] == pool]
        lines += [_info_line("failed request", line) for line in failed]
    if left_out := found.get("failures_left_out"):
        more = f"{left_out:,} more OOM events follow"
        lines += ["", f"{more}; only the first {MOST_FAILURES:,} failures are listed"]
    return lines


def _allocator_info_lines(known: Mapping[str, Any]) -> list[str]:
    def size(name: str) -> str | None:
        return _info_size_text(known[name])

    fragmentation = known["external_fragmentation"]
    share = None if fragmentation is None else f"{100 * fragmentation:.1f} %"
    lines = [
        _info_line("limit", size("bytes_limit")),
        _info_line("pool", size("pool_bytes"), _info_count_text(known["regions"], "region")),
        _info_line("in use", size("bytes_in_use"), _info_count_text(known["chunks_in_use"], "chunk")),
        _info_line("requested of that", size("requested_bytes_in_use")),
        _info_line("peak in use", size("peak_bytes_in_use")),
        _info_line("free", size("free_bytes"), _info_count_text(known["chunks_free"], "chunk")),
        _info_line("largest free chunk", size("largest_free_chunk")),
        _info_line("external fragmentation", share),
    ]
    lines += [_info_line("missing", missing)] if (missing := known.get("missing")) else []
    # What the file counts in the words of its framework.
    totals: Mapping[str, object] = known.get("totals", {})
    counts = ", ".join(f"{name} {value:,}" for name, value in totals.items() if isinstance(value, int))
    return [*lines, _info_line("counted by the file", counts)] if counts else lines


def _info_line(name: str, *parts: str | None) -> str:
    """One line of `bfcviz info`; `unknown` where every part is None."""
    known = [part for part in parts if part is not None]
    return f"  {name:<{_WIDTH}}{' in '.join(known) or _UNKNOWN}"


def _info_size_text(number: int | None) -> str | None:
    return None if number is None else format_bytes(number)


def _info_count_text(number: int | None, what: str) -> str | None:
    return None if number is None else counted(number, what)


def _replay_checks(origin: Origin) -> list[Mapping[str, Any]]:
    """The comparisons that the importer made, for `bfcviz info`; see `bfcviz.importers.tensorflow.reconstruct`."""
    checks = origin.details.get("checks")
    found = checks if isinstance(checks, list | tuple) else ()
    return [check for check in found if isinstance(check, Mapping) and check.get("checked")]
