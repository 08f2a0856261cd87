"""Read a packed trace: one Parquet file. Only the requested row groups are read and decoded.

The file is not mapped: if another process truncates it, reading a mapping would end this process by SIGBUS.
"""

import os
from collections import OrderedDict
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bfcviz.errors import FileError
from bfcviz.events import validation
from bfcviz.events.event_source import Source
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, origin_from_json
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.arrow import FIELDS
from bfcviz.events.storage.files import open_regular
from bfcviz.events.storage.parquet_writer import LABELS_KEY, ORIGIN_KEY, keyframes_of, unpack_labels
from bfcviz.events.validation import Fault

FIELD_NAMES = list(EVENT.names or ())
CACHED_BYTES = 1 << 26
"""Memory for decoded row groups that are kept, beside the last one read; a row group that we write has 4 MiB."""

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


class ParquetSource(Source):
    """The events of a Parquet file that `pack` wrote.

    Opening reads the footer. The first read of an event decodes its row group, compares the checksums and checks the
    events.

    Attributes:
        cached_bytes: memory of the decoded row groups that are kept.

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
            self._starts = np.cumsum([0, *(meta.row_group(g).num_rows for g in range(meta.num_row_groups))])
            self._keyframes = keyframes_of(more.get("keyframes"), meta.num_rows)
        except _ERRORS as error:
            raise _unreadable(path, "footer", error) from error
        self._num_labels = _count(path, more)
        self._lock = RLock()
        self._decoded: OrderedDict[int, Events] = OrderedDict()
        self.cached_bytes = 0
        super().__init__(self._unpack_labels(), origin, meta.num_rows)

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop): a view of one decoded row group, or a copy from several."""
        if start == stop:
            return np.zeros(0, EVENT)
        first, last = self._group_of(start), self._group_of(stop - 1)
        if first == last:
            offset = int(self._starts[first])
            return self._checked_group(first)[start - offset : stop - offset]
        events = np.empty(stop - start, EVENT)
        for group in range(first, last + 1):
            low, high = max(start, int(self._starts[group])), min(stop, int(self._starts[group + 1]))
            offset = int(self._starts[group])
            events[low - start : high - start] = self._checked_group(group)[low - offset : high - offset]
        events.flags.writeable = False
        return events

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last keyframe at or before `step`."""
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
            raise _unreadable(self.path, f"keyframe of step {at}", error) from error
        return (at, keyframe) if isinstance(keyframe, bytes) else None

    def _group_of(self, step: int) -> int:
        return int(np.searchsorted(self._starts, step, "right")) - 1

    def _checked_group(self, group: int) -> Events:
        with self._lock:
            events = self._decoded.get(group)
            if events is None:
                events = self._decode(group)
                fault = validation.first_fault(events, int(self._starts[group]), len(self.origin.pools))
                if fault is not None:
                    self._raise(fault)
                if validation.has_unknown_label(events, self._num_labels):
                    events = validation.without_unknown_labels(events, self._num_labels)
                    self.degrade("some events name a missing label: they are shown without one")
                events.flags.writeable = False
                self._decoded[group] = events
                self.cached_bytes += events.nbytes
                while self.cached_bytes > CACHED_BYTES and len(self._decoded) > 1:
                    self.cached_bytes -= self._decoded.popitem(last=False)[1].nbytes
            self._decoded.move_to_end(group)
            return events

    def _decode(self, group: int) -> Events:
        try:
            table = self._file.read_row_group(group, FIELD_NAMES)
        except _ERRORS as error:
            raise _unreadable(self.path, f"row group {group}", error) from error
        events = np.empty(self._starts[group + 1] - self._starts[group], EVENT)
        for name in FIELD_NAMES:
            column = table.column(name)
            if len(column) != len(events) or column.null_count:
                raise FileError(self.path, f"row group {group}", f"column {name} has missing values")
            events[name] = column.to_numpy()
        return events

    def _fault_in(self, start: int, stop: int) -> Fault | None:
        for group in range(self._group_of(start), self._group_of(stop - 1) + 1):
            low = int(self._starts[group])
            try:
                events = self._decode(group)
            except FileError as error:
                return Fault(low, f"cannot be read: {error.place}: {error.cause}")
            fault = validation.first_fault(events, low, len(self.origin.pools))
            if fault is not None:
                return fault
        return None

    def _unpack_labels(self) -> Labels:
        try:
            labels = unpack_labels(self._file.metadata.metadata[LABELS_KEY.encode()])
        except _ERRORS as error:
            raise FileError(self.path, "labels", str(error)) from error
        if len(labels) != self._num_labels:
            raise FileError(self.path, "labels", f"are {len(labels)}, not {self._num_labels}")
        return labels


def _check_footer(file: pq.ParquetFile, size: int) -> tuple[Origin, dict[str, Any]]:
    """The origin and what is stored beside it.

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
    """Raise ValueError if row groups are too many, too large, or more than the file can hold."""
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


def _count(path: Path, more: dict[str, Any]) -> int:
    count = more.get("labels")
    if type(count) is not int or count < 1:
        raise FileError(path, "footer", "does not say how many labels there are")
    return count


def _unreadable(path: Path, place: str, error: Exception) -> FileError:
    # Only the first line: Arrow adds positions in its own source code below it.
    return FileError(path, place, f"{str(error).splitlines()[0] if str(error) else type(error).__name__}")
