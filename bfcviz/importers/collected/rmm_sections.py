"""RmmFile: the requests of a file with one or more RMM logs, heap by heap.

Each header begins a section. A section continues the heap of the last one if it could: its times go on, and it does not
allocate memory that is still in use there. Otherwise it is another run, and its heap is another pool.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.importers.collected.report_rows import ReportRows, Reports, numbers_of
from bfcviz.importers.limits import LABELS, MAX_NAME_BYTES, MEMORY_EVENTS, TEXT, Limits
from bfcviz.live.rmm.log_lines import ALLOCATE, FAIL, FREE, REALLOCATE, UNIT, DayCount, LogLines, RmmRequest

MOVED: Final = 100
"""Kind of a report: an allocation that replaces another one, whose address the log does not name."""

_KINDS: Final = {ALLOCATE: Kind.ALLOCATE, FREE: Kind.FREE, FAIL: Kind.OOM, REALLOCATE: MOVED}
_DAY_NS: Final = 86_400_000_000_000
_LONGEST_LINE: Final = 1 << 16


@dataclass
class RmmLogHeap:
    """The requests of one heap.

    Attributes:
        is_clock: whether the times are those of a clock, in nanoseconds since a midnight.
        device_free, device_total: the last numbers of the driver; 0: the log does not hold them.
    """

    device: int | None
    has_pointers: bool
    is_clock: bool
    reports: Reports
    device_free: int = 0
    device_total: int = 0


class RmmFile:
    """Reads the lines of a file.

    Args:
        path: of the file, for errors.
        limits: of the file.

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
        self._lines = LogLines()
        self._sections: list[_Section] = []

    def read(self, data: bytes, *, is_cut: bool = False) -> None:
        """Read all lines. The last one may be incomplete if it has no line end.

        Args:
            data: the content of the file.
            is_cut: whether more is known to follow.

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
        """The heaps of the file, in its order."""
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
    """The lines after one header."""

    def __init__(self, *, has_pointers: bool) -> None:
        self.has_pointers = has_pointers
        self._days = DayCount()
        self._is_clock = True
        self._rows: dict[int | None, ReportRows] = {}
        self._driver: dict[int | None, tuple[int, int]] = {}
        self._made_up: dict[int | None, _MadeUpAddresses] = {}

    def add(self, request: RmmRequest, thread: int, stream: int, label: int) -> None:
        device = request.device
        if device not in self._rows:
            self._rows[device], self._driver[device] = ReportRows(), (0, 0)
            self._made_up[device] = _MadeUpAddresses()
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


class _MadeUpAddresses:
    """Addresses for a log without pointers: a free ends the latest allocation of the same size and stream."""

    def __init__(self) -> None:
        self._end = UNIT
        self._in_use: dict[tuple[int, int], list[int]] = {}
        self._free: dict[int, list[int]] = {}

    def address(self, request: RmmRequest) -> int:
        key = request.size, request.stream
        size = -(-request.size // UNIT) * UNIT
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
    """The sections of one heap; a file of many sections is read in linear time.

    Args:
        first: the requests of its first section.
    """

    def __init__(self, first: RmmLogHeap) -> None:
        self._latest = first
        self._parts = [first.reports]
        self._live: set[int] = set()
        self._follow(first.reports)

    def take(self, after: RmmLogHeap) -> bool:
        """Add a section if it goes on where the last one ends; otherwise nothing may be added any more."""
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
        """Note what is in use after a section; False if it allocates what an earlier one has in use."""
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
