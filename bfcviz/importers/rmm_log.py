"""Read a log of requests to RMM (CSV of its `logging_resource_adaptor`), of every version.

The log holds allocations and frees; RMM's pools and their growth are not in it. So a region is a run of addresses that
were in use at some time, as `RecordedHistory` derives it. `rmm_sections` splits a file into the logs of its heaps.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.events.origin import MAX_POOLS, Origin, Pool, Status
from bfcviz.events.origin_details import REGION_FACTS, RecordedFailure
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.collected.rmm_sections import MOVED, RmmFile, RmmLogHeap
from bfcviz.importers.file_content import read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.limits import Limits
from bfcviz.importers.pools import by_time
from bfcviz.importers.recorded_history import RecordedHistory
from bfcviz.live.rmm.log_lines import UNIT

_MOST_STREAMS_NAMED: Final = 256
_DERIVED: Final = (
    "RMM's log holds requests only: regions are runs of addresses that were in use, and splits and merges are derived. "
    "Memory that RMM's pools held but never gave out is unknown"
)
_ROUNDED: Final = f"sizes are rounded up to {UNIT} bytes, RMM's alignment; the log holds the requested sizes"
_NO_POINTERS: Final = (
    "the log of this early version holds no pointers: addresses are made up, and a free ends the latest allocation of "
    "its size and stream. The bytes in use are right; regions, free memory and fragmentation are unknown"
)


def read_rmm_log(path: Path) -> Trace:
    """The trace of an RMM log: a pool for each device, and for each log in a file of several.

    Raises:
        FileError: the file cannot be read, or holds more than `Limits` allows.
    """
    limits = Limits.of(path)
    content = read_content(path)
    file = RmmFile(path, limits)
    file.read(content.data, is_cut=content.cut is not None)
    found = [heap for heap in file.heaps() if len(heap.reports)]
    left_out = found[MAX_POOLS:]
    heaps = found[:MAX_POOLS]
    start = min((int(heap.reports["time"].min()) for heap in heaps), default=0)
    rebuilt = [_Rebuilt.of(heap, start) for heap in heaps]
    events = by_time([each.events for each in rebuilt]) if rebuilt else RecordedHistory().events()
    problems = [f"left out: {count:,} {what}" for what, count in file.left_out.items()]
    if left_out:
        problems.append(f"left out: {len(left_out):,} logs after the first {MAX_POOLS}")
    missing = [reason for reason in (content.cut, file.cut) if reason is not None]
    origin = _origin(path, file, rebuilt, missing, problems)
    failed = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    details = {**origin.details, "failures": [RecordedFailure(event).to_json() for event in failed]}
    return Trace.from_events(events, file.labels, replace(origin, details=details))


@dataclass
class _Rebuilt:
    """One heap: its events, and what is to be said of it."""

    heap: RmmLogHeap
    events: Events
    notes: list[str] = field(default_factory=list)  # true of the format
    problems: list[str] = field(default_factory=list)  # something in this file is missing or wrong
    facts: dict[str, int | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, heap: RmmLogHeap, start: int) -> "_Rebuilt":
        """Replay one heap; times count from `start`."""
        reports = heap.reports
        notes = [_DERIVED if heap.has_pointers else _NO_POINTERS]
        allocates = reports[np.isin(reports["kind"], (Kind.ALLOCATE, MOVED))]
        rounds = not (allocates["address"] % UNIT).any()
        if rounds and (allocates["size"] % UNIT).any():
            notes.append(_ROUNDED)
        history, left_out = _replayed(heap, start, UNIT if rounds else 1)
        problems = [f"left out: {count:,} {what}" for what, count in left_out.items() if count]
        if words := history.inconsistencies.words():
            problems.append(words)
        facts = {} if heap.has_pointers else dict.fromkeys(REGION_FACTS)
        totals = {
            "allocations": len(allocates),
            "frees": int((reports["kind"] == Kind.FREE).sum()),
            "failures": int((reports["kind"] == Kind.OOM).sum()),
        }
        if heap.device_total:
            facts |= {"device_free": heap.device_free, "device_total": heap.device_total}
        return cls(heap, history.events(), notes, problems, facts, totals)


def _replayed(heap: RmmLogHeap, start: int, unit: int) -> tuple[RecordedHistory, Counter[str]]:
    """Report every request; returns the history, and counts of what is not in it."""
    history = RecordedHistory()
    ledger = history.ledger
    left_out = Counter[str]()
    empty: set[int] = set()  # addresses of allocations of 0 bytes
    for time, kind, address, size, thread, stream, label, *_ in heap.reports.tolist():
        history.at(time - start, thread)
        if kind == Kind.OOM:
            ledger.oom(size, label, stream)
        elif kind == Kind.FREE:
            if address in empty:
                empty.remove(address)
            elif address:
                ledger.free(address)
            continue
        elif not size:
            empty.add(address)
            left_out["allocations of 0 bytes"] += 1
        elif not address or address + size >= 1 << 62:
            left_out["allocations at an impossible address"] += 1
        else:
            if kind == MOVED and address in ledger.in_use:
                ledger.free(address)
            elif kind == MOVED:
                left_out["frees of memory that a reallocation replaced: the log does not name it"] += 1
            ledger.allocate(address, -(-size // unit) * unit, size, label, stream)
    return history, left_out


def _origin(
    path: Path, file: RmmFile, rebuilt: list[_Rebuilt], missing: list[str], problems: list[str]
) -> Origin:
    problems = problems + [reason for each in rebuilt for reason in each.problems]
    notes = [note for each in rebuilt for note in each.notes]
    facts = [each.facts for each in rebuilt]
    status = Status.DEGRADED if rebuilt or problems else Status.COMPLETE
    if missing and not problems and not any(facts):  # beside what is derived, only the end is missing
        status = Status.TRUNCATED
    details: dict[str, object] = {
        "framework": "rmm",
        "totals": [each.totals for each in rebuilt],
        "threads": {str(number): name for name, number in file.threads.items() if number},
    }
    if any(facts):
        details["facts"] = facts
    return Origin(
        format=Format.RMM_LOG.value,
        source=path.name,
        status=status,
        reasons=tuple(dict.fromkeys([*missing, *problems, *notes])),
        pools=_pools(path, file, rebuilt) or (Pool("rmm"),),
        details=details,
    )


def _pools(path: Path, file: RmmFile, rebuilt: list[_Rebuilt]) -> tuple[Pool, ...]:
    """Named as the live view names them; RMM writes a file a device, with the number in its name."""
    in_name = re.search(r"\.dev(\d{1,3})\b", path.name)
    pools, seen = [], Counter[str]()
    for each in rebuilt:
        device = each.heap.device if each.heap.device is not None else in_name and in_name[1]
        name = "rmm" if device is None else f"rmm:{device}"
        seen[name] += 1
        options: dict[str, object] = {"allocator_name": name}
        if seen[name] > 1:
            options["dump"] = seen[name]
        if file.streams:
            first = islice(file.streams.items(), _MOST_STREAMS_NAMED)
            options["streams"] = {str(number): handle for handle, number in first}
        shown = name if seen[name] == 1 else f"{name} (log {seen[name]})"
        pools.append(Pool(shown, each.heap.device_total or None, options))
    return tuple(pools)
