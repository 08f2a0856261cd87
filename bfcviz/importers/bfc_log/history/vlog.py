"""Read a VLOG stream of `bfc_allocator.cc` as the full history of its heaps."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, Origin, Pool, Status
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.history.joined_events import in_record_order
from bfcviz.importers.bfc_log.history.vlog_events import VlogEvents, events_of_heap
from bfcviz.importers.bfc_log.history.vlog_operations import collect_operations
from bfcviz.importers.bfc_log.history.vlog_stream import VlogHeap, VlogStream
from bfcviz.importers.bfc_log.records import LogRecord
from bfcviz.importers.file_format import Format
from bfcviz.importers.limits import Limits

_REQUESTS = re.compile(
    r"\] (?:AllocateRaw \S{1,200} +\d|DeallocateRaw \S{1,200} +\d|\[mem-debug\] (?:All|Deall)ocateRaw,)"
)
_REGIONS = re.compile(r"\] (?:Allocated memory at |Deallocate region with ptr = )")


def holds_requests(text: str) -> bool:
    """Whether a log holds allocations and frees of a VLOG stream (level 3 or 4)."""
    return _REQUESTS.search(text) is not None


def holds_regions(text: str) -> bool:
    """Whether a log holds regions of a VLOG stream (level 1 or more)."""
    return _REGIONS.search(text) is not None


def read_vlog(records: Iterable[LogRecord], path: Path, cut: Sequence[str] = ()) -> Trace:
    """The history in a VLOG stream.

    Args:
        records: of the file, in order.
        path: of the file.
        cut: why the end of the file is missing, if it is.

    Raises:
        FileError: there is no heap in it, or the file holds more than one of its size may.
    """
    labels = Labels()
    stream = collect_operations(records, labels, Limits.of(path))
    heaps = [heap for heap in stream.heaps if heap.operations]
    if not heaps:
        raise FileError(path, "", "a log of TensorFlow without a heap that allocated memory")
    found = [events_of_heap(heap) for heap in heaps[:MAX_POOLS]]
    events = in_record_order([heap.events for heap in found], stream.times)
    missing = (*cut, *_unfinished(stream))
    problems = [reason for heap in found for reason in heap.reasons] + _problems(stream, len(heaps))
    names = _names(heaps[:MAX_POOLS])
    pairs = list(zip(names, found, strict=True))
    origin = Origin(
        format=Format.TENSORFLOW_LOG.value,
        source=path.name,
        status=Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE,
        reasons=(*missing, *problems),
        pools=tuple(Pool(name, options=heap.options) for name, heap in pairs),
        details={
            "framework": "tensorflow",
            "checks": [heap.check | {"pool": name} if heap.check else {} for name, heap in pairs],
            "facts": [heap.facts for heap in found],
            "failures": _failures(events, found),
            "threads": {str(number): name for number, name in stream.threads.items()},
        },
    )
    return Trace.from_events(events, labels, origin)


def _failures(events: Events, found: list[VlogEvents]) -> list[dict[str, object]]:
    """One entry per OOM event; those of a heap are in its order."""
    waiting = [iter(heap.failures) for heap in found]
    places = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    return [replace(next(waiting[int(events["pool"][at])]), event=at).to_json() for at in places]


def _names(heaps: list[VlogHeap]) -> list[str]:
    """The name of each heap: with its process if several write the log, and numbered if it was created again."""
    writers = {heap.writer for heap in heaps}
    seen: Counter[str] = Counter()
    names = []
    for heap in heaps:
        name = f"{heap.writer} {heap.name}".strip() if len(writers) > 1 else heap.name
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} (run {seen[name]})")
    return names


def _unfinished(stream: VlogStream) -> list[str]:
    """What the log began, but did not end."""
    ends = [f"an allocation of {size} bytes" for heap in stream.heaps for size in heap.allocating.values()]
    ends += [f"a free of {each.requested} bytes" for heap in stream.heaps for each in heap.unfinished_frees()]
    more = f" and {len(ends) - 1} other operations" if len(ends) > 1 else ""
    return [f"the log ends at line {stream.last_line} in the middle of {ends[0]}{more}"] if ends else []


def _problems(stream: VlogStream, heaps: int) -> list[str]:
    problems = [f"left out: {count} {what}" for what, count in stream.left_out.items()]
    if heaps > MAX_POOLS:
        problems.append(f"{heaps - MAX_POOLS} of {heaps} heaps were left out; a trace holds {MAX_POOLS}")
    if stream.uncertain_failures:
        problems.append(
            f"{stream.uncertain_failures} failed requests may have been optional ones: TensorFlow reports only the "
            "first ten of those"
        )
    return problems
