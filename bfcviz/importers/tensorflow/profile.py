"""Read a profile of TensorFlow or XLA (`xplane.pb`, plain or gzip): parse its XSpace, find the requests in it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Status, end_missing
from bfcviz.events.trace import Trace
from bfcviz.formats.tensorflow import CPU_BFC, dtype_name, whole_windows
from bfcviz.importers.event_makers import numbered_names
from bfcviz.importers.file_content import (
    EVENTS,
    LABELS,
    MAX_EVENT_BYTES,
    MAX_NAME_BYTES,
    MEMORY_EVENTS,
    PARTS,
    STATS,
    TEXT,
    Limits,
    read_content,
)
from bfcviz.importers.file_format import Format, detect_format
from bfcviz.importers.protobuf_wire import LENGTH, Field, Wire
from bfcviz.importers.row_blocks import RowBlocks
from bfcviz.importers.tensorflow.profiler_windows import join, profile_in
from bfcviz.importers.tensorflow.protobuf_messages import parse_protobuf_message, protobuf_message_text
from bfcviz.importers.tensorflow.reconstruct import (
    ABSENT,
    REQUEST,
    RecordedRequestRows,
    RecordedRequests,
    reconstruct,
)

# ------------------------------------------------------------------------------
# Parse XSpace, the message in an `xplane.pb`: its planes, their names and their lines (threads).
#
# Field numbers: xla/tsl/profiler/protobuf/xplane.proto. Lines are parsed in pieces, and everything is counted (see
# `Limits`), so the parser needs memory for one piece beside the bytes of the file.

_PLANES = 1

_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA = 2, 3, 4, 5

_LINE_EVENTS = 4  # in a line

_PIECE = 1 << 20
"""Bytes of events that are parsed at once; each needs at most 40 bytes of memory."""

_MAX_HEADER = 3 * MAX_NAME_BYTES
"""Bytes of a line without its events: a number, a time and two names."""


class LinePiece(NamedTuple):
    """Some events of a line of an XSpace, as XEvent messages, and where their bytes begin in the file, for errors."""

    start: int
    events: Sequence[Any]


class Line:
    """A complete line of a plane of an XSpace: one thread. Its events are parsed during iteration, their stats are not.

    Attributes:
        what: it is, for errors.

    Raises:
        FileError: its bytes are corrupt, or the file holds too many events.
    """

    def __init__(self, wire: Wire, span: Field, what: str) -> None:
        self._wire = wire
        self.what = what
        header, self._ranges = self._walk(span)
        line = parse_protobuf_message(wire, "XLine", header, span.start, what)
        self.id: int = line.id
        self.name: bytes = line.display_name or line.name
        self.timestamp_ns: int = line.timestamp_ns

    def pieces(self) -> Iterator[LinePiece]:
        """The events of a line in file order, about 1 MiB of them at a time.

        Raises:
            FileError: an event is corrupt.
        """
        for start, stop in self._ranges:
            line = parse_protobuf_message(self._wire, "XLine", self._wire.data[start:stop], start, self.what)
            yield LinePiece(start, line.events)

    def _walk(self, span: Field) -> tuple[bytes, list[tuple[int, int]]]:
        """The bytes of a line that are not events, and the ranges of events. A message may be cut between fields."""
        header, ranges = bytearray(), []
        at = span.start
        while at < span.stop:
            start = at
            at, count = self._wire.run(_LINE_EVENTS, at, span.stop, _PIECE)
            if not count:
                field = self._field(at, span.stop)
                at, count = field.stop, 1
            self._wire.limits.count(EVENTS, count, self.what)
            if self._wire.data[start] == _LINE_EVENTS << 3 | LENGTH:
                ranges.append((start, at))
            else:
                header += self._wire.data[start:at]
            if at - start > _PIECE + MAX_EVENT_BYTES or len(header) > _MAX_HEADER:
                raise self._wire.corrupt(start, f"{self.what} has an event or a name of {at - start} bytes")
        return bytes(header), ranges

    def _field(self, at: int, stop: int) -> Field:
        try:
            return self._wire.field(at, stop)
        except FileError:
            raise self._wire.corrupt(at, f"{self.what} cannot be decoded") from None


@dataclass
class Plane:
    """One plane of an XSpace, a source of events; its metadata map the numbers in its events to names, as bytes.

    `protobuf_message_text` decodes a name.
    """

    wire: Wire
    name: str = ""
    event_names: dict[int, bytes] = field(default_factory=dict)
    stat_names: dict[int, bytes] = field(default_factory=dict)
    spans: list[Field] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        """The complete lines of a plane of an XSpace.

        Raises:
            FileError: a line's bytes are corrupt, or the file holds too many events.
        """
        for span in self.spans:
            yield Line(self.wire, span, f"a line of plane {self.name!r}")


class XSpace(NamedTuple):
    """The planes of an XSpace in file order; `cut` says what is missing at its end, None if nothing is."""

    planes: list[Plane]
    cut: str | None


def read_space(wire: Wire) -> XSpace:
    """Parse the XSpace of a profile; of a truncated plane, the part before the cut.

    Raises:
        FileError: the bytes are not an XSpace; says where.
    """
    planes = []
    cut = None
    for found in wire.fields(0, len(wire.data)):
        wire.limits.count(PARTS, 1)
        what = ""
        if found.number == _PLANES and found.wire == LENGTH:
            planes.append(_plane_message(wire, found))
            what = f" of plane {planes[-1].name!r}"
        if found.missing:
            lost = f"{found.missing} or more bytes{what} are missing"
            cut = f"the profile is cut off at byte {len(wire.data)}: {lost}"
    return XSpace(planes, cut)


def _plane_message(wire: Wire, found: Field) -> Plane:
    plane = Plane(wire)
    for part in wire.fields(found.start, found.stop):
        wire.limits.count(PARTS, 1, f"plane {plane.name!r}")
        if part.missing or part.wire != LENGTH:
            continue
        if part.number == _NAME:
            plane.name = protobuf_message_text(
                wire.data[part.start : min(part.stop, part.start + MAX_NAME_BYTES)]
            )
        elif part.number == _LINES:
            plane.spans.append(part)
        elif part.number in (_EVENT_METADATA, _STAT_METADATA):
            raw = wire.data[part.start : part.stop]
            entry = parse_protobuf_message(
                wire, "Entry", raw, part.start, f"the metadata of plane {plane.name!r}"
            )
            names = plane.event_names if part.number == _EVENT_METADATA else plane.stat_names
            names[entry.key] = entry.value.name
    return plane


# ------------------------------------------------------------------------------
# Collect the MemoryAllocation and MemoryDeallocation events of a profile (`xplane.pb`) of TensorFlow or XLA.
#
# The BFC heap writes one of them for every allocation and free, as a host event of the calling thread, with the
# stats named below (tsl/framework/bfc_allocator.cc, AddTraceMe). The events of all threads are sorted by time.

_EVENTS = {b"MemoryAllocation": False, b"MemoryDeallocation": True}  # name -> whether it is a free

_COLUMNS = {
    "id": "step",
    "addr": "address",
    "requested_bytes": "requested",
    "allocation_bytes": "size",
    "bytes_allocated": "bytes_in_use",
    "bytes_available": "bytes_available",
    "bytes_reserved": "bytes_reserved",
    "peak_bytes_in_use": "peak_bytes_in_use",
}
_ABSENT: dict[str, int | float | str] = {
    **dict.fromkeys(_COLUMNS, ABSENT),
    "fragmentation": -1.0,
    "data_type": 0,
    "allocator_name": "",
    "tf_op": "",
    "shape": "",
    "region_type": "",
}
"""The stats we read, each with the value that means absent; the type of that value is the type of the stat."""
_IGNORED = len(_ABSENT)
"""The place of the stats that we do not read, after the others."""
_ABSENT_VALUES = [*_ABSENT.values(), None]
_PLACES = {stat: place for place, stat in enumerate(_ABSENT)}
_STATS = {stat.encode(): place for stat, place in _PLACES.items()}
_ALLOCATOR, _OP, _DATA_TYPE, _SHAPE, _REGION_TYPE, _ADDRESS, _SIZE, _REQUESTED, _AVAILABLE, _FRAGMENTATION = (
    _PLACES[stat]
    for stat in (
        *("allocator_name", "tf_op", "data_type", "shape", "region_type", "addr", "allocation_bytes"),
        *("requested_bytes", "bytes_available", "fragmentation"),
    )
)
_NUMBERS = [_PLACES[stat] for stat in (*_COLUMNS, "fragmentation")]

_MAX_TIME_NS = 1 << 61  # beyond any clock; sums and differences of two times fit in 64 bits
_PS_PER_NS = 1000
_HALF_SPACE = 1 << 63  # processes use the lower half of all addresses; so sums of sizes fit in 64 bits, too

_ROW = np.dtype(
    [
        ("ns", "<i8"),
        ("ps", "<i8"),  # within that ns: a time in ps may not fit in 64 bits
        ("key", "<i8"),  # of the label
        ("pool", "<i8"),
        ("thread", "<i8"),
        ("free", "?"),
        *((column, REQUEST[column]) for column in (*_COLUMNS.values(), "fragmentation")),
    ]
)
_MAX_KNOWN = 1 << 14  # stats that a reader remembers
_MAX_KNOWN_BYTES = 32  # of each: a number, the number of a name, or a short text

_MAX_REASONS = 20
_MAX_SHOWN = 60  # characters of a name in a message

_LabelKey = tuple[str, int, str, str]


def collect_requests(space: XSpace, path: object) -> RecordedRequests:
    """All memory events of a profile, sorted by time.

    Raises:
        FileError: a line is corrupt, there are no memory events, or the profile exceeds a limit of a trace or of a file
            of this size.
    """
    threads: dict[tuple[int, int], int] = {}
    names: dict[int, str] = {}
    rows = _ProfileRows(path, space.planes)
    for number, plane in enumerate(space.planes):
        if _EVENTS.keys().isdisjoint(plane.event_names.values()):
            continue
        reader = _ProfileReader(plane, rows)
        for line in plane.lines():
            # Lines with the same id are one thread.
            thread = threads.get((number, line.id), len(threads) + 1)
            if reader.read(line, number, thread):
                threads[number, line.id] = thread
                names[thread] = protobuf_message_text(line.name[:MAX_NAME_BYTES]) or f"thread {line.id}"
    if len(threads) > np.iinfo(REQUEST["thread"]).max:
        raise FileError(path, "", f"{len(threads)} threads allocated memory; a trace holds 65,535")
    table = rows.rows.table()
    if not len(table):
        raise _no_memory_events(path, space.cut, rows.left_out)
    table = table[np.lexsort((table["ps"], table["ns"]))]
    labels = Labels()
    requests = _profile_requests(table)
    requests["label"] = _profile_labels(table["key"], list(rows.keys), labels)
    requests["pool"], pool_names = _profile_pools(table["pool"], list(rows.pools), space.planes)
    return RecordedRequests(requests, pool_names, labels, names, dict(rows.left_out))


class _ProfileReader:
    """Reads the memory events of one plane of a profile into `rows`."""

    def __init__(self, plane: Plane, rows: "_ProfileRows") -> None:
        self._plane = plane
        self._rows = rows
        self._limits = plane.wire.limits
        self._frees = {key: _EVENTS[name] for key, name in plane.event_names.items() if name in _EVENTS}
        self._places = {key: _STATS[name] for key, name in plane.stat_names.items() if name in _STATS}
        self._texts: dict[int, str] = {}  # names that memory events refer to
        self._known: dict[bytes, tuple[int, Any]] = {}  # bytes of a stat -> its place and value
        self._place = f"plane {plane.name!r}"  # for errors

    def read(self, line: Line, plane: int, thread: int) -> int:
        """Add one row for every memory event of a line of a profile; returns how many there are."""
        start = line.timestamp_ns
        if abs(start) > _MAX_TIME_NS:
            cause = f"corrupt profile: a line begins at {start} ns"
            raise FileError(self._plane.wire.path, self._place, cause)
        frees, count = self._frees, 0
        for piece in line.pieces():
            for event in piece.events:
                free = frees.get(event.metadata_id)
                if free is None:
                    continue
                count += 1
                self._limits.count(MEMORY_EVENTS, 1, self._place)
                ns, ps = divmod(event.offset_ps, _PS_PER_NS)
                values = self._values(event.stats, piece.start, line.what)
                self._rows.add(values, (start + ns, ps), (plane, thread), free=free)
        return count

    def _values(self, stats: Sequence[bytes], start: int, what: str) -> list[Any]:
        """The values of one event of a profile, in the order of `_ABSENT`, and one for the stats that are not read.

        `start`, where its piece begins in the file, and `what`, the name of its line, are for errors.
        """
        self._limits.count(STATS, len(stats), self._place)
        values = _ABSENT_VALUES.copy()
        known = self._known
        for raw in stats:
            found = known.get(raw)
            place, value = self._parsed(raw, start, what) if found is None else found
            values[place] = value
        return values

    def _parsed(self, raw: bytes, start: int, what: str) -> tuple[int, Any]:
        """The place and the value of a stat of a profile; they are remembered: most are equal to an earlier one."""
        stat = parse_protobuf_message(self._plane.wire, "XStat", raw, start, what)
        place = self._places.get(stat.metadata_id)
        found = (_IGNORED, None) if place is None else (place, self._value(stat, _ABSENT_VALUES[place]))
        if len(raw) <= _MAX_KNOWN_BYTES:
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known[raw] = found
        return found

    def _value(self, stat: Any, absent: Any) -> Any:
        """The value of a stat of a profile in the type of `absent`, or `absent` if it cannot be converted.

        The profiler stores the text `0.5` as a double, `1` as an int64 and `conv` as a reference to a name: the text
        decides, not the meaning of the stat.
        """
        which = stat.WhichOneof("value")
        if which is None:
            return absent
        value = getattr(stat, which)
        if which == "ref_value":
            value = self._name(value)
        elif isinstance(value, bytes):
            value = self._text(value)
        kind = type(absent)
        if type(value) is not kind:
            try:
                value = kind(value)
            except (ValueError, OverflowError):
                return absent
        return absent if kind is int and not ABSENT <= value < _HALF_SPACE else value

    def _name(self, key: int) -> str:
        name = self._texts.get(key)
        if name is None:
            name = self._texts[key] = self._text(self._plane.stat_names.get(key, b""))
        return name

    def _text(self, raw: bytes) -> str:
        if len(raw) > MAX_NAME_BYTES:
            raise FileError(
                self._plane.wire.path,
                self._place,
                f"corrupt profile: a name of {len(raw):,} bytes, the limit is {MAX_NAME_BYTES:,}; "
                "record it again",
            )
        return protobuf_message_text(raw)


class _ProfileRows:
    """Collects the memory events of a profile with enough data for a replay, as rows of `_ROW`, and their names."""

    def __init__(self, path: object, planes: Sequence[Plane]) -> None:
        self.path = path
        self.keys: dict[_LabelKey, int] = {}
        self.pools: dict[tuple[int, str], int] = {}
        self.left_out = Counter[str]()  # unusable events, by reason
        self._limits = planes[0].wire.limits if planes else Limits(path, 0)
        self.rows = RowBlocks(_ROW)

    def add(self, values: list[Any], when: tuple[int, int], of: tuple[int, int], *, free: bool) -> None:
        """Add one memory event of a profile; `when`: its (ns, ps), `of`: its (plane, thread)."""
        why = _why_not_usable(values, free=free)
        if why:
            known = why in self.left_out or len(self.left_out) < _MAX_REASONS
            self.left_out[why if known else "more unusable events"] += 1
            return
        plane, thread = of
        pool = self._number(self.pools, (plane, values[_ALLOCATOR]))
        key = self._number(self.keys, (values[_OP], values[_DATA_TYPE], values[_SHAPE], values[_REGION_TYPE]))
        self.rows.add(*when, key, pool, thread, free, *[values[place] for place in _NUMBERS])

    def _number(self, known: dict[Any, int], key: tuple[Any, ...]) -> int:
        number = known.get(key)
        if number is None:
            number = known[key] = len(known)
            self._limits.count(TEXT, sum(len(part) for part in key if isinstance(part, str)))
            if known is self.keys:
                self._limits.count(LABELS, 1)
            elif number == np.iinfo(REQUEST["pool"]).max:
                raise FileError(self.path, "", f"{number + 1} allocators; a trace holds {number}")
        return number


def _why_not_usable(values: list[Any], *, free: bool) -> str:
    """Why a memory event of a profile cannot be replayed; empty if it can."""
    allocator, address, size = values[_ALLOCATOR], values[_ADDRESS], values[_SIZE]
    if not allocator or address <= 0:
        return "memory events without an allocator or an address"
    if values[_AVAILABLE] == ABSENT and values[_FRAGMENTATION] < 0:
        return f"events of allocator {allocator[:_MAX_SHOWN]!r}, which is not a BFC heap"
    if size <= 0 or (values[_REQUESTED] <= 0 and not free):
        return "memory events without a size"
    if address + size > _HALF_SPACE:
        return "memory events with impossible addresses"
    return ""


def _no_memory_events(path: object, cut: str | None, left_out: Mapping[str, int]) -> FileError:
    if cut is not None:
        return FileError(path, "", f"{cut}, and no complete plane before that has events of a BFC heap")
    without = "".join(f" ({count} {what})" for what, count in left_out.items())
    return FileError(
        path,
        "",
        f"a profile without events of a BFC heap{without}. Record it with "
        "tf.profiler.experimental.ProfilerOptions(host_tracer_level=2), "
        "on a device whose memory is a BFC pool: a GPU, or a CPU where Python was started with " + CPU_BFC,
    )


def _profile_pools(
    numbers: NDArray[np.int64], keys: Sequence[tuple[int, str]], planes: Sequence[Plane]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The pool of each row of a profile, and the names of pools: the allocator, with the plane if hosts share it.

    Planes can have the same name, too; then a number follows.
    """
    order, pools = _renumbered_profile_keys(numbers)
    found = [keys[number] for number in order]
    counts = Counter(name for _, name in found)
    names = (name if counts[name] == 1 else f"{planes[plane].name} {name}" for plane, name in found)
    return pools, tuple(name for name, _ in numbered_names(names))


def _renumbered_profile_keys(numbers: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """The distinct numbers in a profile in order of first occurrence, and for each number its index there."""
    distinct, first, back = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return distinct[order].tolist(), places[back.reshape(-1)]


def _profile_requests(table: NDArray[np.void]) -> RecordedRequestRows:
    """Sorted rows of a profile as requests, without labels and pools."""
    requests: RecordedRequestRows = np.zeros(len(table), REQUEST)
    for column in (*_COLUMNS.values(), "fragmentation", "thread", "free"):
        requests[column] = table[column]
    requests["time"] = table["ns"] - table["ns"][0]
    return requests


def _profile_labels(
    numbers: NDArray[np.int64], keys: Sequence[_LabelKey], labels: Labels
) -> NDArray[np.int64]:
    """The label of every row of a profile; each distinct op with its details is interned once."""
    order, places = _renumbered_profile_keys(numbers)
    interned = []
    for number in order:
        op, data_type, shape, region_type = keys[number]
        details = {"data_type": dtype_name(data_type), "shape": shape, "region_type": region_type}
        details = {name: text for name, text in details.items() if text}
        interned.append(labels.intern(op, **details) if op or details else 0)
    return np.array(interned, np.int64)[places]


# ------------------------------------------------------------------------------
# Read a profile of TensorFlow or XLA (`xplane.pb`, plain or gzip).


def read_profile(path: Path) -> Trace:
    """The trace in a profile of TensorFlow or XLA, or in a folder of windows that `bfcviz record --tensorflow` made.

    `origin.details` holds the checks of its reconstruction.

    Raises:
        FileError: it cannot be read, is corrupt, or holds no events of a BFC heap.
    """
    if path.is_dir():
        return _read_profile_windows(path)
    recorded, missing = _read_profile_requests(path)
    return _trace_of_profile(path, recorded, missing, [], [])


def _read_profile_windows(folder: Path) -> Trace:
    """The profiles in a folder of windows as one trace; those that cannot be read are named."""
    windows: list[RecordedRequests] = []
    missing: list[str] = []
    errors: list[FileError] = []
    for window in whole_windows(folder):
        try:
            path = profile_in(window)
            detect_format(path)  # an empty file says so
            recorded, cut = _read_profile_requests(path)
        except FileError as error:
            errors.append(error)
            continue
        windows.append(recorded)
        missing += [f"{window.name}: {text}" for text in cut]
    if not windows:
        raise errors[0]
    found, inferred = join(windows, folder)
    unread = [f"{error.path}: {error.cause}" for error in errors]
    return _trace_of_profile(folder, found, missing, unread, inferred)


def _read_profile_requests(path: Path) -> tuple[RecordedRequests, tuple[str, ...]]:
    """The requests in a profile, and what is missing at its end."""
    limits = Limits.of(path)
    content = read_content(path)
    space = read_space(Wire(path, content.data, limits))
    missing = tuple(cut for cut in (content.cut, space.cut) if cut is not None)
    return collect_requests(space, path), missing


def _trace_of_profile(
    path: Path,
    recorded: RecordedRequests,
    cut: Sequence[str],
    unread: Sequence[str],
    inferred: Sequence[str],
) -> Trace:
    rebuilt = reconstruct(recorded)
    left_out = tuple(f"left out: {count} {what}" for what, count in recorded.left_out.items())
    problems = (*inferred, *left_out, *rebuilt.reasons)
    missing = (*cut, *unread)
    status = Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE
    origin = Origin(
        format=Format.XPLANE.value,
        source=path.name,
        status=status,
        reasons=(*missing, *problems),
        pools=rebuilt.pools,
        details={
            "checks": list(rebuilt.checks),
            "facts": list(rebuilt.facts),
            "threads": {str(number): name for number, name in recorded.threads.items()},
            **end_missing(cut),
        },
    )
    return Trace.from_events(rebuilt.events, recorded.labels, origin)
