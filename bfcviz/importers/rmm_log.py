"""Read a log of requests to RMM (CSV of its `logging_resource_adaptor`), of every version.

The log holds allocations and frees; RMM's pools and their growth are not in it. So a region is a run of addresses that
were in use at some time, as `RecordedHistory` derives it. `rmm_sections` splits a file into the logs of its heaps.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Origin, Pool, RecordedFailure, Status, end_missing
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.formats.rmm import (
    ALLOCATE,
    FAIL,
    FREE,
    REALLOCATE,
    UNIT,
    RmmDayCount,
    RmmLogFormat,
    RmmRequest,
    round_up,
)
from bfcviz.importers.event_makers import (
    REPORT,
    RecordedHistory,
    Reports,
    by_time,
    numbered_names,
    numbers_of,
)
from bfcviz.importers.file_content import LABELS, MAX_NAME_BYTES, MEMORY_EVENTS, TEXT, Limits, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.row_blocks import RowBlocks

# ------------------------------------------------------------------------------
# RmmFile: the requests of a file with one or more RMM logs, heap by heap.
#
# Each header begins a section. A section continues the heap of the last one if it could: its times go on, and it
# does not allocate memory that is still in use there. Otherwise it is another run, and its heap is another pool.

MOVED: Final = 100
"""Kind of a report: an allocation that replaces another one, whose address the log does not name."""

_KINDS: Final = {ALLOCATE: Kind.ALLOCATE, FREE: Kind.FREE, FAIL: Kind.OOM, REALLOCATE: MOVED}
_DAY_NS: Final = 86_400_000_000_000
_LONGEST_LINE: Final = 1 << 16


@dataclass
class RmmLogHeap:
    """The requests of one heap in an RMM log."""

    device: int | None
    has_pointers: bool
    is_clock: bool  # whether the times are those of a clock, in nanoseconds since a midnight
    reports: Reports
    device_free: int = 0  # the last numbers of the driver; 0: the log does not hold them
    device_total: int = 0  # the same


class RmmFile:
    """Reads the lines of the file of an RMM log.

    Attributes:
        labels: the source lines that the oldest version names.
        threads: name -> number.
        streams: handle -> number.
        cut: why the end is missing; None if it is not.
        left_out: lines that hold no request -> their count.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.labels = Labels()
        self.threads: dict[str, int] = {}
        self.streams: dict[str, int] = {}
        self.cut: str | None = None
        self.left_out = Counter[str]()
        self._path = path
        self._limits = limits
        self._lines = RmmLogFormat()
        self._sections: list[_Section] = []

    def read(self, data: bytes, *, is_cut: bool = False) -> None:
        """Read all lines. The last one may be incomplete if it has no line end; `is_cut`: more is known to follow.

        Raises:
            FileError: there are more requests, names or characters than the limits allow.
        """
        for number, line in enumerate(BytesIO(data), 1):
            text = line[:_LONGEST_LINE].decode("utf-8", "replace").strip()
            if not text:
                continue
            if self._lines.take_header(text):
                self._sections.append(_Section(has_pointers=self._lines.has_pointers))
                continue
            is_last = not line.endswith(b"\n")
            try:
                request = self._lines.parse(text)
            except ValueError:
                if is_last:
                    self.cut = f"line {number} is cut off"
                else:
                    self.left_out["lines that hold no request of RMM"] += 1
                continue
            if is_last:  # RMM ends every line; so the number in the last column may be incomplete
                self.cut = f"line {number} has no end: it may be cut off"
                if is_cut or not self._is_known_stream(request):
                    continue
            self._limits.count(MEMORY_EVENTS, 1, f"line {number}")
            self._take(request)

    def heaps(self) -> list[RmmLogHeap]:
        """The heaps of an RMM log, in its order."""
        joined: list[_JoinedSections] = []
        latest: dict[int | None, _JoinedSections] = {}  # of each device
        for section in self._sections:
            for heap in section.heaps():
                last = latest.get(heap.device)
                if last is None or not last.take(heap):
                    latest[heap.device] = _JoinedSections(heap)
                    joined.append(latest[heap.device])
        return [each.heap() for each in joined]

    def _is_known_stream(self, request: RmmRequest) -> bool:
        """Whether the stream, the last column of most versions, occurred before."""
        return bool(request.location) or not request.stream or hex(request.stream) in self.streams

    def _take(self, request: RmmRequest) -> None:
        if not self._sections:  # a log whose header is missing
            self._sections.append(_Section(has_pointers=self._lines.has_pointers))
        thread = request.thread[:64]
        if thread and thread not in self.threads:
            self._limits.count(TEXT, len(thread))
        number = numbers_of(self.threads, thread) if thread else 0
        stream = numbers_of(self.streams, hex(request.stream)) if request.stream else 0
        self._sections[-1].add(request, number, stream, self._label(request.location))

    def _label(self, location: str) -> int:
        if not location:
            return 0
        before = len(self.labels)
        number = self.labels.intern(location[:MAX_NAME_BYTES])
        if len(self.labels) > before:
            self._limits.count(LABELS, 1)
            self._limits.count(TEXT, len(location))
        return number


class _Section:
    """The lines after one header of an RMM log."""

    def __init__(self, *, has_pointers: bool) -> None:
        self.has_pointers = has_pointers
        self._days = RmmDayCount()
        self._is_clock = True
        self._rows: dict[int | None, RowBlocks] = {}
        self._driver: dict[int | None, tuple[int, int]] = {}
        self._made_up: dict[int | None, _RmmLogAddresses] = {}

    def add(self, request: RmmRequest, thread: int, stream: int, label: int) -> None:
        device = request.device
        if device not in self._rows:
            self._rows[device], self._driver[device] = RowBlocks(REPORT), (0, 0)
            self._made_up[device] = _RmmLogAddresses()
        time = self._days.time(request.time) if request.is_clock else request.time
        self._is_clock = request.is_clock
        address = request.pointer if self.has_pointers else self._made_up[device].address(request)
        kind = _KINDS[request.action]
        self._rows[device].add(time, kind, address, request.size, thread, stream, label, -1, -1)
        if request.device_total:
            self._driver[device] = request.device_free, request.device_total

    def heaps(self) -> Iterator[RmmLogHeap]:
        for device, rows in self._rows.items():
            driver = self._driver[device]
            yield RmmLogHeap(device, self.has_pointers, self._is_clock, rows.table(), *driver)


class _RmmLogAddresses:
    """Addresses for an RMM log without pointers: a free ends the latest allocation of the same size and stream."""

    def __init__(self) -> None:
        self._end = UNIT
        self._in_use: dict[tuple[int, int], list[int]] = {}
        self._free: dict[int, list[int]] = {}

    def address(self, request: RmmRequest) -> int:
        key = request.size, request.stream
        size = round_up(request.size)
        if request.action == FREE:
            held = self._in_use.get(key)
            if not held:
                return 1  # nothing begins there: a free of unknown memory
            self._free.setdefault(size, []).append(held[-1])
            return held.pop()
        if request.action == FAIL or not size:
            return 0
        if free := self._free.get(size):
            found = free.pop()
        elif self._end + size >= 1 << 62:
            return 0
        else:
            found, self._end = self._end, self._end + size
        self._in_use.setdefault(key, []).append(found)
        return found


class _JoinedSections:
    """The sections of one heap in an RMM log; a file of many sections is read in linear time."""

    def __init__(self, first: RmmLogHeap) -> None:
        self._latest = first
        self._parts = [first.reports]
        self._live: set[int] = set()
        self._follow(first.reports)

    def take(self, after: RmmLogHeap) -> bool:
        """Add a section of an RMM log if it goes on where the last one ends; else nothing may be added any more."""
        if (self._latest.has_pointers, self._latest.is_clock) != (after.has_pointers, after.is_clock):
            return False
        end, start = int(self._parts[-1]["time"][-1]), int(after.reports["time"][0])
        days = max(0, -(-(end - _DAY_NS // 2 - start) // _DAY_NS)) if after.is_clock else 0
        if start + days * _DAY_NS < end or not self._follow(after.reports):
            return False
        reports = after.reports.copy()
        reports["time"] += days * _DAY_NS
        self._parts.append(reports)
        numbers = after if after.device_total else self._latest
        self._latest = replace(after, device_free=numbers.device_free, device_total=numbers.device_total)
        return True

    def heap(self) -> RmmLogHeap:
        """All sections as one."""
        return replace(self._latest, reports=np.concatenate(self._parts))

    def _follow(self, reports: Reports) -> bool:
        """Note what is in use after a section of an RMM log; False if it allocates what an earlier one has in use."""
        allocated: set[int] = set()
        for kind, address in reports[["kind", "address"]].tolist():
            if kind == Kind.FREE:
                self._live.discard(address)
                allocated.discard(address)
            elif kind == Kind.ALLOCATE and address and address in self._live:
                return False
            elif kind != Kind.OOM:
                allocated.add(address)
        self._live |= allocated
        return True


# ------------------------------------------------------------------------------
# Read a log of requests to RMM (CSV of its `logging_resource_adaptor`), of every version.

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
    rebuilt = [_RebuiltRmmHeap.of(heap, start) for heap in heaps]
    events = by_time([each.events for each in rebuilt]) if rebuilt else RecordedHistory().events()
    problems = [f"left out: {count:,} {what}" for what, count in file.left_out.items()]
    if left_out:
        problems.append(f"left out: {len(left_out):,} logs after the first {MAX_POOLS}")
    missing = [reason for reason in (content.cut, file.cut) if reason is not None]
    origin = _rmm_log_origin(path, file, rebuilt, missing, problems)
    failed = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    details = {**origin.details, "failures": [RecordedFailure(event).to_json() for event in failed]}
    return Trace.from_events(events, file.labels, replace(origin, details=details))


@dataclass
class _RebuiltRmmHeap:
    """One heap of an RMM log: its events, and what is to be said of it."""

    heap: RmmLogHeap
    events: Events
    notes: list[str] = field(default_factory=list)  # true of the format
    problems: list[str] = field(default_factory=list)  # something in this file is missing or wrong
    facts: dict[str, int | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, heap: RmmLogHeap, start: int) -> "_RebuiltRmmHeap":
        """Replay one heap of an RMM log; times count from `start`."""
        reports = heap.reports
        notes = [_DERIVED if heap.has_pointers else _NO_POINTERS]
        allocates = reports[np.isin(reports["kind"], (Kind.ALLOCATE, MOVED))]
        rounds = not (allocates["address"] % UNIT).any()
        if rounds and (allocates["size"] % UNIT).any():
            notes.append(_ROUNDED)
        history, left_out = _replayed_rmm_heap(heap, start, UNIT if rounds else 1)
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


def _replayed_rmm_heap(heap: RmmLogHeap, start: int, unit: int) -> tuple[RecordedHistory, Counter[str]]:
    """Report every request of an RMM log to the ledger; returns the history, and counts of what is not in it."""
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
            if kind == MOVED and ledger.is_in_use(address):
                ledger.free(address)
            elif kind == MOVED:
                left_out["frees of memory that a reallocation replaced: the log does not name it"] += 1
            ledger.allocate(address, -(-size // unit) * unit, size, label, stream)
    return history, left_out


def _rmm_log_origin(
    path: Path, file: RmmFile, rebuilt: list[_RebuiltRmmHeap], missing: list[str], problems: list[str]
) -> Origin:
    """The origin of the trace of an RMM log."""
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
        **end_missing(missing),
    }
    if any(facts):
        details["facts"] = facts
    return Origin(
        format=Format.RMM_LOG.value,
        source=path.name,
        status=status,
        reasons=tuple(dict.fromkeys([*missing, *problems, *notes])),
        pools=_rmm_log_pools(path, file, rebuilt) or (Pool("rmm"),),
        details=details,
    )


def _rmm_log_pools(path: Path, file: RmmFile, rebuilt: list[_RebuiltRmmHeap]) -> tuple[Pool, ...]:
    """The heaps of an RMM log, named as the live view does; RMM writes a file a device, with its number in the name."""
    in_name = re.search(r"\.dev(\d{1,3})\b", path.name)
    devices = (
        each.heap.device if each.heap.device is not None else in_name and in_name[1] for each in rebuilt
    )
    names = ["rmm" if device is None else f"rmm:{device}" for device in devices]
    pools = []
    for each, name, (shown, number) in zip(rebuilt, names, numbered_names(names, "log "), strict=True):
        options: dict[str, object] = {"allocator_name": name}
        if number > 1:
            options["dump"] = number
        if file.streams:
            first = islice(file.streams.items(), _MOST_STREAMS_NAMED)
            options["streams"] = {str(number): handle for handle, number in first}
        pools.append(Pool(shown, each.heap.device_total or None, options))
    return tuple(pools)
