"""Read the memory events of a Chrome trace that PyTorch's profiler (Kineto) wrote: a large JSON text, as a stream.

Segments of the caching allocator are not in the trace, so regions are runs of addresses that were in use, as
`RecordedHistory` derives them. `kineto_events` finds the events, which come in any order.
"""

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, Origin, Pool, RecordedFailure, Status, end_missing
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import REPORT, RecordedHistory, Reports, by_time, numbers_of
from bfcviz.importers.file_content import MEMORY_EVENTS, UNPACKED_JSON, ContentPieces, Limits
from bfcviz.importers.file_format import Format
from bfcviz.importers.row_blocks import RowBlocks
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# KinetoEvents: the memory events in a Chrome trace of PyTorch's profiler (Kineto), heap by heap.
#
# ::
#
#     | {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 90.5,      microseconds
#     |  "args": {"Addr": 140234, "Bytes": -512, "Total Allocated": 4096, "Total Reserved": 8192,
#     |           "Device Type": 1, "Device Id": 0}}                         Bytes below 0: a free
#
# A failed request is named `[OutOfMemory]`.

_NAMES: Final = {"[memory]": Kind.ALLOCATE, "[OutOfMemory]": Kind.OOM}
_LARGEST: Final = 1 << 60
_LAST_US: Final = 1 << 51

KinetoHeap = tuple[str, int | str, int]
"""Process, type of the device and its number."""


class KinetoEvents:
    """Collects the memory events of each heap in a Chrome trace.

    Attributes:
        heaps: the reports of each.
        left_out: what is no report -> count.
        threads: process and thread -> number.
    """

    def __init__(self, limits: Limits) -> None:
        self.heaps: dict[KinetoHeap, RowBlocks] = {}
        self.left_out = Counter[str]()
        self.threads: dict[str, int] = {}
        self._limits = limits

    def reasons(self) -> list[str]:
        """What was left out of a Chrome trace, as sentences."""
        return [f"left out: {count:,} {what}" for what, count in self.left_out.items()]

    def add(self, item: Any) -> None:
        """Add a value of a Chrome trace if it is a memory event."""
        name = item.get("name") if isinstance(item, dict) else None
        kind = _NAMES.get(name) if isinstance(name, str) else None
        if kind is None:
            return
        self._limits.count(MEMORY_EVENTS, 1)
        args = item.get("args")
        if not isinstance(args, dict):
            self.left_out["memory events without numbers"] += 1
            return
        time, num_bytes = _chrome_trace_nanoseconds(item.get("ts")), _chrome_trace_integer(args.get("Bytes"))
        address = 0 if kind == Kind.OOM else _chrome_trace_integer(args.get("Addr"))
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
                totals = [_chrome_trace_total(args.get(key)) for key in ("Total Allocated", "Total Reserved")]
                rows.add(time, kind, address, abs(num_bytes), thread, 0, 0, *totals)

    def _rows(self, item: dict[str, Any], args: dict[str, Any]) -> RowBlocks | None:
        """The reports of the heap that an event of a Chrome trace belongs to; None if there are too many heaps."""
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
            self.heaps[key] = RowBlocks(REPORT)
        return self.heaps[key]


def _chrome_trace_integer(value: object) -> int | None:
    """An integer below 2^63 in a Chrome trace; some writers put them in quotes."""
    if isinstance(value, str) and len(value) < 24:
        try:
            value = int(value, 0)
        except ValueError:
            return None
    return value if type(value) is int and abs(value) < 1 << 63 else None


def _chrome_trace_total(value: object) -> int:
    number = _chrome_trace_integer(value)
    return -1 if number is None or not 0 <= number < _LARGEST else number


def _chrome_trace_nanoseconds(value: object) -> int | None:
    """A time of a Chrome trace in microseconds, which may be in quotes, in nanoseconds."""
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


# ------------------------------------------------------------------------------
# Read the memory events of a Chrome trace that PyTorch's profiler (Kineto) wrote.

_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 19: "mtia", 20: "privateuseone"}
_EARLIER: Final = "allocated before the trace"
_HELP: Final = (
    "this Chrome trace holds no memory events; record them with torch.profiler.profile(profile_memory=True)"
)
_DERIVED: Final = (
    "a Chrome trace holds allocations and frees only: regions are runs of addresses that were in use, and splits and "
    "merges are derived"
)
_UNKNOWN_OF_A_POOL: Final = (
    *("requested_bytes_in_use", "regions", "chunks_free", "largest_free_chunk", "external_fragmentation"),
)


def read_chrome_trace(path: Path) -> Trace:
    """The trace of the memory events: a pool for each device of each process.

    Raises:
        FileError: the file cannot be read, is no JSON, or holds no memory events.
    """
    pieces = ContentPieces(path, UNPACKED_JSON)
    found = KinetoEvents(Limits.of(path))
    stream = JsonStream(pieces)
    missing = []
    try:
        for item in stream.items("traceEvents"):
            found.add(item)
    except JsonCut:
        missing.append(f"the trace is cut off at {stream.place}")
    except FileError:
        raise
    except ValueError as error:
        raise FileError(path, stream.place, f"corrupt Chrome trace: {error}") from None
    if pieces.cut is not None:
        missing.insert(0, pieces.cut)
    if not found.heaps:
        raise FileError(path, "", "; ".join([_HELP, *missing, *found.reasons()]))
    return _trace_of_kineto_events(path, found, missing)


@dataclass
class _RebuiltHeap:
    """The events of one heap of a Chrome trace, and what is to be said of it."""

    events: Events
    problems: list[str] = field(default_factory=list)
    facts: dict[str, int | None] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)


def _trace_of_kineto_events(path: Path, found: KinetoEvents, missing: list[str]) -> Trace:
    labels = Labels()
    tables = {key: rows.table() for key, rows in found.heaps.items()}
    start = min(int(table["time"].min()) for table in tables.values())
    rebuilt = {key: _rebuild_kineto_heap(table, start, labels) for key, table in tables.items()}
    events = by_time([heap.events for heap in rebuilt.values()])
    names = _pool_names(list(rebuilt))
    problems = [
        f"{name}: {problem}"
        for name, heap in zip(names, rebuilt.values(), strict=True)
        for problem in heap.problems
    ]
    failed = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    origin = Origin(
        format=Format.CHROME_TRACE.value,
        source=path.name,
        status=Status.DEGRADED,
        reasons=(*missing, *found.reasons(), *problems, _DERIVED),
        pools=tuple(map(Pool, names)),
        details={
            "framework": "torch",
            "facts": [heap.facts for heap in rebuilt.values()],
            "totals": [heap.totals for heap in rebuilt.values()],
            "failures": [RecordedFailure(event).to_json() for event in failed],
            "threads": {str(number): name for name, number in found.threads.items() if number},
            **end_missing(missing),
        },
    )
    return Trace.from_events(events, labels, origin)


def _rebuild_kineto_heap(table: Reports, start: int, labels: Labels) -> _RebuiltHeap:
    """Replay one heap of a Chrome trace in the order of the times; they count from `start`."""
    reports = table[np.argsort(table["time"], kind="stable")]
    earlier = _allocated_earlier(reports)
    history = RecordedHistory()
    ledger = history.ledger
    history.at(0)
    label = labels.intern(_EARLIER) if earlier else 0
    for address, size in earlier.items():
        ledger.allocate(address, size, size, label)
    for time, kind, address, size, thread, *_ in reports.tolist():
        history.at(time - start, thread)
        if kind == Kind.OOM:
            ledger.oom(size)
        elif kind == Kind.FREE:
            ledger.free(address)
        else:
            ledger.allocate(address, size, size)
    heap = _RebuiltHeap(history.events())
    if earlier:
        amount = format_bytes(sum(earlier.values()))
        heap.problems.append(
            f"{len(earlier):,} allocations of {amount} were made before the trace; their frees tell where they were"
        )
    if words := history.inconsistencies.words():
        heap.problems.append(words)
    _compare_kineto_totals(heap, reports, sum(earlier.values()))
    kinds = reports["kind"]
    for name, kind in (("allocations", Kind.ALLOCATE), ("frees", Kind.FREE), ("failures", Kind.OOM)):
        heap.totals[name] = int((kinds == kind).sum())
    return heap


def _allocated_earlier(reports: Reports) -> dict[int, int]:
    """Address -> size of the memory that a Chrome trace frees, but does not allocate before."""
    seen: set[int] = set()
    earlier: dict[int, int] = {}
    for kind, address, size in reports[["kind", "address", "size"]].tolist():
        if kind == Kind.OOM or address in seen:
            continue
        seen.add(address)
        if kind == Kind.FREE:
            earlier[address] = size
    return earlier


def _compare_kineto_totals(heap: _RebuiltHeap, reports: Reports, earlier: int) -> None:
    """Compare the bytes in use with those that a Chrome trace states after each event; take its totals as facts."""
    has_total = (reports["in_use"] >= 0) & (reports["kind"] != Kind.OOM)
    stated = reports[has_total]
    if len(stated):
        changes: NDArray[np.int64] = reports["size"].astype(np.int64)
        changes[reports["kind"] == Kind.FREE] *= -1
        changes[reports["kind"] == Kind.OOM] = 0
        computed = np.cumsum(changes) + np.int64(min(earlier, 1 << 62))
        differences = stated["in_use"] - computed[has_total]
        never_freed = int(differences[0])
        differing = int((differences != never_freed).sum())
        if never_freed > 0:
            heap.problems.append(
                f"{format_bytes(never_freed)} were allocated before the trace and not freed in it: they are not shown"
            )
        if differing or never_freed < 0:
            heap.problems.append(
                f"{max(differing, 1):,} of {len(stated):,} events state other bytes in use than allocations and frees "
                "give: the trace is not complete"
            )
        heap.facts = {
            "bytes_in_use": int(stated["in_use"][-1]),
            "peak_bytes_in_use": int(stated["in_use"].max()),
        }
    reserved = reports["pool_bytes"][reports["pool_bytes"] > 0]
    if len(reserved) and len(stated):  # the caching allocator rounds sizes, and holds more than was seen
        heap.facts |= dict.fromkeys(_UNKNOWN_OF_A_POOL) | {"pool_bytes": int(reserved[-1])}
        heap.facts["free_bytes"] = max(0, int(reserved[-1]) - int(stated["in_use"][-1]))


def _pool_names(heaps: list[KinetoHeap]) -> list[str]:
    """The names of the heaps of a Chrome trace: `cuda:0`; with the process where there are several."""
    several = len({process for process, *_ in heaps}) > 1
    names = []
    for process, device, number in heaps:
        kind = (
            _DEVICE_TYPES.get(device, f"device type {device}") if isinstance(device, int) else device.lower()
        )
        name = kind if number < 0 else f"{kind}:{number}"
        names.append(f"{name} (process {process})" if several else name)
    return names


# ------------------------------------------------------------------------------
# JsonStream: the values of one array in a large JSON text, one at a time.

# The standard parser would make an object of every value of the file at once. Here one value of the array is an
# object at a time, and of the text only a window is in memory.

MAX_ITEM: Final = 1 << 26
"""Characters of one value."""

_WINDOW: Final = 1 << 20
_LONGEST_WORD: Final = 16
_GOES_ON: Final = re.compile(r"[.eE+\-]*\Z")
"""After a number: more digits may follow in the next piece."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class JsonCut(Exception):
    """The JSON text ends inside a value; the values before it are complete."""


class JsonStream:
    """Reads the top level of a JSON text in UTF-8: an array, or an object with arrays; invalid bytes are replaced."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text = ""
        self._at = 0
        self._before = 0  # characters before the window
        self._is_whole = False

    @property
    def place(self) -> str:
        """Where the reader of the JSON text is, for errors."""
        return f"character {self._before + self._at}"

    def items(self, key: str) -> Iterator[Any]:
        """The values of the array of a JSON text; if it is an object, those of the arrays under `key`.

        NaN and Infinity, which are not JSON but do occur, become None.

        Raises:
            JsonCut: the text ends too early.
            ValueError: it is not JSON, is nested too deeply, or one value is too long.
        """
        if (first := self._next_mark()) == "[":
            yield from self._array()
        elif first != "{":
            raise ValueError("is not an array or an object")
        else:
            yield from self._object(key)
        if self._peek():
            raise ValueError("is followed by more text")

    def _object(self, key: str) -> Iterator[Any]:
        if self._peek() == "}":
            self._next_mark()
            return
        while True:
            name = self._value()
            if not isinstance(name, str) or self._next_mark() != ":":
                raise ValueError("a key is missing")
            if name == key and self._peek() == "[":
                self._next_mark()
                yield from self._array()
            else:
                self._value()
            if not self._goes_on("}"):
                return

    def _array(self) -> Iterator[Any]:
        if self._peek() == "]":
            self._next_mark()
            return
        while True:
            yield self._value()
            if not self._goes_on("]"):
                return

    def _goes_on(self, end: str) -> bool:
        mark = self._next_mark()
        if mark not in (",", end):
            raise ValueError(f"a comma or {end} is missing")
        return mark == ","

    def _value(self) -> Any:
        """The next value of the JSON text; makes the window longer until it is complete."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Only a fault at the end of the window, or a text without an end, can be mended by what follows.
                if error.pos < len(self._text) - _LONGEST_WORD and not error.msg.startswith("Unterminated"):
                    raise ValueError(f"is not JSON ({error.msg})") from None
                self._longer()
                continue
            except RecursionError:
                raise ValueError("is nested too deeply") from None
            if not isinstance(value, int | float) or _GOES_ON.match(self._text, end) is None:
                self._at = end
                return value
            self._longer()

    def _next_mark(self) -> str:
        mark = self._peek()
        if not mark:
            raise JsonCut
        self._at += 1
        return mark

    def _peek(self) -> str:
        """The next character of the JSON text that is no space; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._is_whole:
                return ""
            self._longer()

    def _longer(self) -> None:
        """Add a piece of the JSON text to the window, as long as what is left: so a long value takes linear time."""
        if self._is_whole:
            raise JsonCut
        if len(self._text) - self._at > MAX_ITEM:
            raise ValueError(f"a value has more than {MAX_ITEM:,} characters")
        left = self._text[self._at :]
        parts, length, wanted = [left], 0, max(_WINDOW, len(left))
        while length < wanted and not self._is_whole:
            piece = next(self._pieces, None)
            self._is_whole = piece is None
            parts.append(self._decode(piece or b"", self._is_whole))
            length += len(parts[-1])
        self._before += self._at
        self._text, self._at = "".join(parts), 0


_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
