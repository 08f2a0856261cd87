"""`bfcviz info`: one object about any trace, the same for every format; as JSON, or as text for people."""

import argparse
import json
from collections.abc import Mapping

from bfcviz.cli.info_text import info_lines
from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.state.model import Model
from bfcviz.model.timelines.fragmentation import external
from bfcviz.terminal import say

_STATUS = {Status.RECORDING: Status.TRUNCATED}
"""Who asks about a trace wants to know whether it is whole; one that still grows is not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bfcviz info` takes."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a profile of TensorFlow or XLA (xplane.pb, also gzipped), a trace folder, or a trace's Parquet file",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object, sizes in bytes, null for not known"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print what the file holds."""
    trace = open_trace(arguments.file)
    found = info(trace)
    if arguments.json:
        # JSON leaves DEL as it is, and it can stand in texts alone.
        print(json.dumps(found, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))
    else:
        say(*info_lines(trace.origin, found))


def info(trace: Trace) -> dict[str, object]:
    """Format, status and the state of every allocator after the last event, as JSON values.

    Where the source states a number itself, or cannot know one (None), `origin.details["facts"]`, a mapping
    for each pool, says so, and it stands before what the events would give.
    """
    allocators, damages = [], []
    for pool in range(len(trace.origin.pools)):
        allocator, damage = _allocator(trace, pool)
        allocators.append(allocator)
        damages.append(damage)
    origin = trace.origin  # only now: reading the events may have found something missing
    reasons = list(dict.fromkeys([*origin.reasons, *filter(None, damages)]))
    status = Status.DEGRADED if len(reasons) > len(origin.reasons) else origin.status
    if origin.status == Status.RECORDING and not reasons:
        reasons = ["it is still being recorded"]
    return {
        "format": str(origin.format),
        "status": str(_STATUS.get(status, status)),
        "reasons": reasons,
        "events": len(trace),
        "allocators": allocators,
    }


def _allocator(trace: Trace, pool: int) -> tuple[dict[str, object], str]:
    """One heap at the end of the trace; and, where events contradict each other, how."""
    model = Model(trace, pool)
    damage = ""
    try:
        model.seek(len(trace))
    except (TraceError, FileError) as error:
        damage = f"the numbers are those at step {model.step}: {error}"
    stats = model.stats()
    known: dict[str, object] = {
        "name": trace.origin.pools[pool].name,
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
    return known | {key: value for key, value in _facts(trace, pool).items() if key in known}, damage


def _facts(trace: Trace, pool: int) -> Mapping[str, object]:
    facts = trace.origin.details.get("facts")
    if not isinstance(facts, list | tuple) or pool >= len(facts) or not isinstance(facts[pool], Mapping):
        return {}
    return dict(facts[pool])
