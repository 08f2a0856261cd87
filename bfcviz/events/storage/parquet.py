"""A packed trace: one Parquet file, written atomically; only the requested row groups are read and decoded."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events import schema
from bfcviz.events.event_source import BLOCK, GroupSource, Source
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, origin_from_json
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.storage.files import open_regular
from bfcviz.events.storage.label_file import pack_labels, unpack_labels
from bfcviz.extras import needed

with needed("a Parquet file, or a table,", "pyarrow", "tables"):
    import pyarrow as pa
    import pyarrow.parquet as pq

# ------------------------------------------------------------------------------
# Events as Arrow tables: the fields of EVENT, and the names of kinds and labels.

_FORMULA = r"\A([=+\-@\t\r])"
"""The start of a text that a spreadsheet would calculate."""

TEXT = pa.dictionary(pa.int32(), pa.string())


def described(name: str, kind: pa.DataType, unit: str, meaning: str, *, nullable: bool = True) -> pa.Field:
    """A column of a Parquet file that says what it holds: in its metadata `unit` and `description`."""
    return pa.field(name, kind, nullable, {"unit": unit, "description": meaning})


FIELDS = [
    described(name, pa.from_numpy_dtype(EVENT[name]), unit, meaning, nullable=False)
    for name, (_, unit, meaning) in schema.FIELDS.items()
]
SCHEMA = pa.schema(
    [
        *FIELDS,
        described("kind_name", TEXT, "text", "the name of `kind`"),
        described("label_name", TEXT, "text", "the name of `label`; null: none"),
    ]
)
"""Columns of a table of events."""


class ParquetLabelNames:
    """The distinct names of labels for a Parquet file's dictionary columns; labels may share a name.

    Args:
        labels: the table; labels added later are not included.
    """

    def __init__(self, labels: Labels) -> None:
        places: dict[str, int] = {}
        names = labels.names[1 : len(labels)]  # number 0 is null, not a name
        self._place = np.array([0, *(places.setdefault(name, len(places)) for name in names)], np.int32)
        self._names = pa.array(list(places), pa.string())

    def column(self, labels: NDArray[np.uint32], *, own: bool) -> pa.DictionaryArray:
        """The Parquet column of the names of these labels; `own`: with a dictionary of only these names."""
        if not own:
            return self._encode(self._place[labels], self._names, labels)
        places = self._place[labels]
        used = np.zeros(max(len(self._names), 1), bool)
        used[places[labels != 0]] = True
        renumbered = np.cumsum(used, dtype=np.int32) - 1
        return self._encode(renumbered[places], self._names.take(pa.array(np.flatnonzero(used))), labels)

    @staticmethod
    def _encode(places: NDArray[np.int32], names: pa.Array, labels: NDArray[np.uint32]) -> pa.DictionaryArray:
        indices = pa.array(places, pa.int32(), mask=np.asarray(labels == 0))
        return pa.DictionaryArray.from_arrays(indices, names)


def parquet_table(events: Events, names: ParquetLabelNames, *, own: bool = False) -> pa.Table:
    """These events as a table with the columns of a Parquet file, `SCHEMA`; `own` as in `ParquetLabelNames.column`."""
    columns = [pa.array(np.ascontiguousarray(events[field.name]), field.type) for field in FIELDS]
    kinds = pa.array(events["kind"].astype(np.int32) - min(Kind))
    columns.append(pa.DictionaryArray.from_arrays(kinds, pa.array([kind.name for kind in Kind], pa.string())))
    columns.append(names.column(events["label"], own=own))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def without_formulas(table: pa.Table) -> pa.Table:
    """The table for a CSV file: a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    import pyarrow.compute as pc  # noqa: PLC0415  23 ms, for CSV files only

    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = pc.replace_substring_regex(table.column(place).cast(kind), _FORMULA, r"'\1")
            table = table.set_column(place, pa.field(field.name, kind, field.nullable), texts)
    return table


# ------------------------------------------------------------------------------
# Pack a trace into one Parquet file, atomically.
#
# A row group holds 65,536 events; the first row of some groups holds in `keyframe` the state before it. Labels and
# origin are in the footer of the file.
#
# Groups of twice that size need less space (19.7 bytes per event instead of 23.5, with keyframes, for 10 million
# events and 64,000 chunks), but more time for a distant step: 26 ms of computing instead of 21 in the median, 41
# instead of 26 in the 90th percentile.
#
# Measured on two cores, reading a row group of synthetic events into an EVENT array: zstd 12.7 bytes per event, 8 to
# 11 ms; lz4 15.3 bytes, 8 ms; snappy the same size, 7 to 16 ms; plain pages without compression 84 bytes, 9 ms;
# dictionaries for all columns 20 to 40 bytes. So we use lz4, differences for counters, and byte stream split for
# wide numbers. DuckDB and Polars can read all of these.

ORIGIN_KEY = "bfcviz.origin"
LABELS_KEY = "bfcviz.labels"
KEYFRAME_SHARE = 4
"""A keyframe is stored when the events since the last one take this many times its bytes."""

COUNTERS = ["seq", "time"]
WIDE = ["address", "size", "requested", "chunk", "other", "label"]
NARROW = ["thread", "stream", "region", "by", "kind", "bin", "flags", "pool", "kind_name", "label_name"]

KEYFRAME = described(
    "keyframe", pa.binary(), "bytes", "the heaps before this event, packed; null: not stored here"
)
PARQUET_SCHEMA = SCHEMA.append(KEYFRAME)

MakeKeyframes = Callable[[list[int]], Iterable[bytes]]
"""Given ascending steps, returns the state before each, one at a time."""


def write_parquet(source: Source, path: Path, keyframes: MakeKeyframes | None) -> None:
    """Write the trace that `source` reads as Parquet to `path`, which the caller makes and removes.

    Raises:
        OSError: it cannot be written.
        TraceError: there are too many labels for one file.
    """
    with _parquet_writer(path) as writer:
        names = ParquetLabelNames(source.labels)
        length = source.length  # a recording in progress may grow meanwhile
        stored: list[int] = []
        for (start, stop), keyframe in zip(
            _row_group_ranges(length), _row_group_keyframes(source, length, keyframes), strict=True
        ):
            table = parquet_table(source.read(start, stop), names, own=True)
            frames = pa.array([keyframe, *[None] * (stop - start - 1)], KEYFRAME.type)
            writer.write_table(table.append_column(KEYFRAME, frames), row_group_size=BLOCK)
            if keyframe is not None:
                stored.append(start)
        more = {"events": length, "labels": len(source.labels), "keyframes": stored}
        writer.add_key_value_metadata(
            {ORIGIN_KEY: source.origin.to_json(**more), LABELS_KEY: pack_labels(source.labels)}
        )


def _parquet_writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        PARQUET_SCHEMA,
        compression="lz4",
        use_dictionary=NARROW,
        column_encoding={
            **dict.fromkeys(COUNTERS, "DELTA_BINARY_PACKED"),
            **dict.fromkeys(WIDE, "BYTE_STREAM_SPLIT"),
        },
        write_statistics=list(EVENT.names or ()),  # statistics of keyframes would copy them into the footer
        write_page_checksum=True,
    )


def _row_group_ranges(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _row_group_keyframes(source: Source, length: int, make: MakeKeyframes | None) -> Iterator[bytes | None]:
    """For each Parquet row group its keyframe or None; where none are made, those that `source` has."""
    steps = list(range(BLOCK, length, BLOCK))
    made = iter(make(steps)) if make is not None else None
    since = 0  # bytes of events after the last stored keyframe
    for start, stop in _row_group_ranges(length):
        keyframe = None
        if start and made is not None:
            keyframe = next(made, None)
        elif start and (known := source.keyframe_before(start)) is not None and known[0] == start:
            keyframe = known[1]
        if keyframe is not None and len(keyframe) * KEYFRAME_SHARE > since:
            keyframe = None
        since = (0 if keyframe is not None else since) + (stop - start) * EVENT.itemsize
        yield keyframe


def keyframes_in_footer(entry: object, length: int) -> list[int]:
    """The steps of the keyframes in a Parquet file, ascending, from its footer.

    Raises:
        ValueError: the entry is not a list of steps of a trace of this length.
    """
    if not isinstance(entry, list) or not all(type(step) is int and 0 <= step < length for step in entry):
        raise ValueError(f"has invalid keyframes: {json.dumps(entry)[:40]}")
    return sorted(entry)


# ------------------------------------------------------------------------------
# Read a packed trace: one Parquet file. Only the requested row groups are read and decoded.
#
# The file is not mapped: if another process truncates it, reading a mapping would end this process by SIGBUS.

FIELD_NAMES = list(EVENT.names or ())
MAX_GROUP = 1 << 20
"""Events of a row group, which are decoded together: 64 MiB. We write 65,536; other programs write up to this many."""

MANY_GROUPS = 1024
LEAST_GROUP = 256
"""A file with more than `MANY_GROUPS` row groups must have this many events in each on average, because finding one
takes 1 ms."""

FEW_EVENTS = 1 << 20
EVENTS_A_BYTE = 16
"""A file with more than `FEW_EVENTS` may have this many events per byte. Ours have 1/15, and up to 3.3 if all events
are equal."""

_ERRORS = (OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError, pa.ArrowException)
"""Exceptions that Arrow raises for damaged files."""


class ParquetSource(GroupSource):
    """The events of a Parquet file that `write_parquet` wrote.

    Opening reads the footer. The first read of an event decodes its row group, compares the checksums and checks the
    events.

    Raises:
        FileError: the file is not one of ours, or its footer contradicts itself.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
            meta = self._file.metadata
            origin, more = _check_footer(self._file, size)
            starts = np.cumsum([0, *(meta.row_group(g).num_rows for g in range(meta.num_row_groups))])
            self._keyframes = keyframes_in_footer(more.get("keyframes"), meta.num_rows)
        except _ERRORS as error:
            raise _unreadable_parquet(path, "footer", error) from error
        super().__init__(self._unpack_labels(more.get("labels")), origin, starts)

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last keyframe in a Parquet file at or before `step`."""
        place = int(np.searchsorted(self._keyframes, step, "right")) - 1
        if place < 0:
            return None
        at = self._keyframes[place]
        group = self._group_of(at)
        if at != self._starts[group]:  # ours are first in a row group; others would need decoding
            return None
        try:
            with self._lock:
                batches = self._file.iter_batches(1, row_groups=[group], columns=["keyframe"])
                keyframe = next(batches).column(0)[0].as_py()
        except (*_ERRORS, StopIteration) as error:
            raise _unreadable_parquet(self.path, f"keyframe of step {at}", error) from error
        return (at, keyframe) if isinstance(keyframe, bytes) else None

    def _decode(self, group: int) -> Events:
        try:
            table = self._file.read_row_group(group, FIELD_NAMES)
        except _ERRORS as error:
            raise _unreadable_parquet(self.path, f"row group {group}", error) from error
        events = np.empty(self._starts[group + 1] - self._starts[group], EVENT)
        for name in FIELD_NAMES:
            column = table.column(name)
            if len(column) != len(events) or column.null_count:
                raise FileError(self.path, f"row group {group}", f"column {name} has missing values")
            events[name] = column.to_numpy()
        return events

    def _unpack_labels(self, count: object) -> Labels:
        if type(count) is not int or count < 1:
            raise FileError(self.path, "footer", "does not say how many labels there are")
        try:
            labels = unpack_labels(self._file.metadata.metadata[LABELS_KEY.encode()])
        except _ERRORS as error:
            raise FileError(self.path, "labels", str(error)) from error
        if len(labels) != count:
            raise FileError(self.path, "labels", f"are {len(labels)}, not {count}")
        return labels


def _check_footer(file: pq.ParquetFile, size: int) -> tuple[Origin, dict[str, Any]]:
    """The origin in a Parquet file's footer and what is stored beside it.

    Raises:
        ValueError: the footer is not that of a trace.
    """
    meta, entries = file.metadata, file.metadata.metadata or {}
    if ORIGIN_KEY.encode() not in entries or LABELS_KEY.encode() not in entries:
        raise ValueError("has no bfcviz entries: this Parquet file was not written by `Trace.save`")
    for field in FIELDS:
        index = file.schema_arrow.get_field_index(field.name)
        if index < 0 or file.schema_arrow.field(index).type != field.type:
            raise ValueError(f"has no column {field.name} of type {field.type}")
    _check_groups(meta, size)
    text = entries[ORIGIN_KEY.encode()]
    if len(text) > MAX_ORIGIN_BYTES:
        raise ValueError(f"has an origin of {len(text)} bytes, the limit is {MAX_ORIGIN_BYTES}")
    origin, more = origin_from_json(text)
    if type(more.get("events")) is not int or more["events"] != meta.num_rows:
        raise ValueError(f"has {meta.num_rows} rows, but {str(more.get('events'))[:20]} were written")
    return origin, more


def _check_groups(meta: pq.FileMetaData, size: int) -> None:
    """Raise ValueError if a Parquet file's row groups are too many, too large, or more than it can hold."""
    groups, events = meta.num_row_groups, meta.num_rows
    if groups > max(MANY_GROUPS, events // LEAST_GROUP):
        raise ValueError(
            f"has {groups:,} row groups of {events / groups:.1f} events on average; the limit is {MANY_GROUPS:,} "
            f"groups, or {LEAST_GROUP} events in each: write the file again with larger row groups"
        )
    if events > max(FEW_EVENTS, EVENTS_A_BYTE * size):
        raise ValueError(
            f"has {events:,} events in {size:,} bytes; the limit is {EVENTS_A_BYTE} events per byte"
        )
    rows = [meta.row_group(group).num_rows for group in range(groups)]
    if any(not 0 < count <= MAX_GROUP for count in rows) or sum(rows) != events:
        raise ValueError(
            f"has row groups of invalid sizes: {min(rows, default=0):,} to {max(rows, default=0):,} events, "
            f"{sum(rows):,} together; give them 1 to {MAX_GROUP:,} each, {events:,} together"
        )


def _unreadable_parquet(path: Path, place: str, error: Exception) -> FileError:
    # Only the first line: Arrow adds positions in its own source code below it.
    return FileError(path, place, f"{str(error).splitlines()[0] if str(error) else type(error).__name__}")
