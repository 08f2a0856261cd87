"""KinetoEvents: the memory events in a Chrome trace of PyTorch's profiler (Kineto), heap by heap.

::

    {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 90.5,      microseconds
     "args": {"Addr": 140234, "Bytes": -512, "Total Allocated": 4096, "Total Reserved": 8192,
              "Device Type": 1, "Device Id": 0}}                         Bytes below 0: a free

A failed request is named `[OutOfMemory]`.
"""

import math
from collections import Counter
from typing import Any, Final

from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.schema import Kind
from bfcviz.importers.collected.report_rows import ReportRows, numbers_of
from bfcviz.importers.limits import MEMORY_EVENTS, Limits

_NAMES: Final = {"[memory]": Kind.ALLOCATE, "[OutOfMemory]": Kind.OOM}
_LARGEST: Final = 1 << 60
_LAST_US: Final = 1 << 51

KinetoHeap = tuple[str, int | str, int]
"""Process, type of the device and its number."""


class KinetoEvents:
    """Collects the memory events of each heap.

    Attributes:
        heaps: the reports of each.
        left_out: what is no report -> count.
        threads: process and thread -> number.
    """

    def __init__(self, limits: Limits) -> None:
        self.heaps: dict[KinetoHeap, ReportRows] = {}
        self.left_out = Counter[str]()
        self.threads: dict[str, int] = {}
        self._limits = limits

    def reasons(self) -> list[str]:
        """What was left out, as sentences."""
        return [f"left out: {count:,} {what}" for what, count in self.left_out.items()]

    def add(self, item: Any) -> None:
        """Add a value of the trace if it is a memory event."""
        name = item.get("name") if isinstance(item, dict) else None
        kind = _NAMES.get(name) if isinstance(name, str) else None
        if kind is None:
            return
        self._limits.count(MEMORY_EVENTS, 1)
        args = item.get("args")
        if not isinstance(args, dict):
            self.left_out["memory events without numbers"] += 1
            return
        time, num_bytes = _nanoseconds(item.get("ts")), _integer(args.get("Bytes"))
        address = 0 if kind == Kind.OOM else _integer(args.get("Addr"))
        if time is None or address is None or num_bytes is None or address + abs(num_bytes) >= _LARGEST:
            self.left_out["memory events with impossible numbers"] += 1
        elif num_bytes == 0 or (address <= 0 and kind != Kind.OOM):
            self.left_out["memory events without memory"] += 1
        else:
            if kind != Kind.OOM and num_bytes < 0:
                kind = Kind.FREE
            rows = self._rows(item, args)
            if rows is not None:
                thread = numbers_of(self.threads, f"{item.get('pid')}/{item.get('tid')}"[:64])
                totals = [_stated(args.get(key)) for key in ("Total Allocated", "Total Reserved")]
                rows.add(time, kind, address, abs(num_bytes), thread, 0, 0, *totals)

    def _rows(self, item: dict[str, Any], args: dict[str, Any]) -> ReportRows | None:
        """The reports of the heap that an event belongs to; None if there are too many heaps."""
        number = args.get("Device Id", -1)
        device = args.get("Device Type", 0 if number == -1 else 1)
        key = (
            str(item.get("pid", ""))[:64],
            device if isinstance(device, int) else str(device)[:64],
            number if isinstance(number, int) and abs(number) < 1 << 16 else -1,
        )
        if key not in self.heaps:
            if len(self.heaps) == MAX_POOLS:
                self.left_out[f"memory events of devices after the first {MAX_POOLS}"] += 1
                return None
            self.heaps[key] = ReportRows()
        return self.heaps[key]


def _integer(value: object) -> int | None:
    """An integer below 2^63; some writers put them in quotes."""
    if isinstance(value, str) and len(value) < 24:
        try:
            value = int(value, 0)
        except ValueError:
            return None
    return value if type(value) is int and abs(value) < 1 << 63 else None


def _stated(value: object) -> int:
    number = _integer(value)
    return -1 if number is None or not 0 <= number < _LARGEST else number


def _nanoseconds(value: object) -> int | None:
    """A time in microseconds, which may be in quotes, in nanoseconds."""
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is int:
        return value * 1000 if 0 <= value < _LAST_US else None
    if type(value) is float and math.isfinite(value) and 0 <= value < _LAST_US:
        return round(value * 1000)
    return None
