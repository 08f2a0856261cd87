"""A recording's folder, read: while it grows, after it ended, or after its writer was killed.

::

    origin.json     written first and, when the recording ends, once more with `events`: replaced as a whole
    labels.jsonl    one label a line, written before the first event that names it; locked while recording
    events.bin      [ events: kind != 0, seq = 0, 1, 2 ... | a half-written one | zeros, allocated ahead ]

So the events are looked at first and the labels after them: every label an event names is there.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.event_source import BLOCK, ArraySource
from bfcviz.events.labels import MAX_LABEL_BYTES, SHORTEST_LINE, Labels
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, Status, origin_from_json
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.files import OpenFile, open_regular, read_small, reading
from bfcviz.events.storage.writer_lock import is_locked
from bfcviz.events.validation import Fault

ORIGIN_FILE = "origin.json"
LABELS_FILE = "labels.jsonl"
EVENTS_FILE = "events.bin"
RECORD = EVENT.itemsize
MAX_LABELS_BYTES = 1 << 30

LAST_LOOK = 4096
"""Events before the end that are looked at one by one when a folder is opened."""

MAX_TAIL = 1 << 24
"""Bytes behind the last event that are searched for what is left of others."""


def files_of(folder: Path) -> list[Path]:
    """The files of a recording that are in the folder, in the order of their removal: the origin last."""
    parts = folder.glob(f".{ORIGIN_FILE}.*.partial")  # `replacing` was killed
    names = (folder / name for name in (EVENTS_FILE, LABELS_FILE, ORIGIN_FILE))
    return [path for path in (*parts, *names) if path.is_symlink() or path.is_file()]


def remove_files(folder: Path) -> None:
    """Remove the files of a recording from the folder, and nothing else."""
    for path in files_of(folder):
        path.unlink(missing_ok=True)


_GONE = "is not there any more: the file became shorter"


class FolderSource(ArraySource):
    """The events of a recording's folder, read as they are asked for; more of them after each `refresh`.

    Opening reads the labels and looks for the end of the events: a few records, whatever their number. The events are
    not mapped: where another process truncated the file, a look at them would end this process by SIGBUS.

    Raises:
        FileError: the folder is not a recording, or its origin cannot be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(np.zeros(0, EVENT), Labels(), read_origin(path).origin)
        self.path: Path = path
        self._file: OpenFile | None = None  # the events
        self._last: tuple[int, Events] = (0, np.zeros(0, EVENT))  # read last, and where they begin
        self._label_bytes = 0  # of labels.jsonl read so far
        self._label_lines = 0
        self._missing_names = 0
        self._bad_line = ""  # the first that is damaged, and how
        self._labels_broken = False
        self._damage: tuple[str, ...] = ()
        self.following = True
        self.refresh()

    def refresh(self) -> int:
        """Look for events that came since the last look; returns how many."""
        if not self.following:
            return 0
        # Asked first: if the writer is gone now, what is read below is all there will ever be. A process it
        # forked may keep the lock, but an origin that tells the number of events is the end all the same.
        locked = is_locked(self.path / LABELS_FILE)
        told = read_origin(self.path)
        self.following = locked and told.events is None
        before = self.length
        left_over = self._find_events(self.path / EVENTS_FILE)
        if not self._labels_broken:
            self._read_labels(self.path / LABELS_FILE)
        if not self._labels_broken and told.labels not in (None, len(self.labels)):
            self._give_up_labels(f"holds {len(self.labels)} labels of {told.labels}")
        self._settle(told.origin, told.events, left_over)
        return self.length - before

    def degrade(self, reason: str, status: Status = Status.DEGRADED) -> None:
        """Say in the origin, now and after each refresh, that something is wrong."""
        if reason not in self._damage:
            self._damage = (*self._damage, reason)
        super().degrade(reason, status)

    def _find_events(self, path: Path) -> int:
        """Look for the end of what is valid; returns how many bytes behind it are not zero."""
        if not os.path.lexists(path):
            return 0  # the writer was killed, or we came, before it made the file
        with reading(path):
            file = OpenFile(path)
            records = os.fstat(file.fd).st_size // RECORD
            if records < self.length:
                self.degrade(f"{EVENTS_FILE} became shorter: of {self.length} events {records} can be read")
            self.length = find_end(file.fd, self.length)
            self._file = file
            return 0 if self.following else _left_over(file.fd, self.length * RECORD)

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop), a copy."""
        events = super().read(start, stop)
        if len(events) < stop - start:
            self._raise(Fault(start + len(events), _GONE))
        return events

    def _check(self, start: int, stop: int) -> Fault | None:
        there = start + len(self._part(start, stop))
        fault = super()._check(start, there)
        return Fault(there, _GONE) if fault is None and there < stop else fault

    def _part(self, start: int, stop: int) -> Events:
        """Events [start, stop), fewer where the file became shorter; from what was read last, where they are in it."""
        first, last = self._last
        if first <= start and stop <= first + len(last):
            return last[start - first : stop - first]
        with reading(self.path / EVENTS_FILE):
            data = b"" if self._file is None else self._file.read_at(start * RECORD, (stop - start) * RECORD)
        events = np.frombuffer(data, EVENT, len(data) // RECORD)
        if len(events) <= BLOCK:
            self._last = (start, events)  # a check comes before each read
        return events

    def _read_labels(self, path: Path) -> None:
        """Take over the lines that are complete; at the end of the recording the rest is damage."""
        try:
            with open_regular(path) as file, reading(path):
                file.seek(self._label_bytes)
                rest = self._take_lines(file)
            if rest and not self.following:
                raise ValueError("is cut off")  # noqa: TRY301
        except FileError as error:
            self._give_up_labels(error.cause)
        except ValueError as error:
            self._give_up_labels(f"line {self._label_lines + 1} {error}")

    def _take_lines(self, file: FileIO) -> bytes:
        rest = b""
        while data := file.read(1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take_line(line)
            if len(rest) > MAX_LABEL_BYTES or self._label_bytes > MAX_LABELS_BYTES:
                raise ValueError("is longer, or stands further down, than makes sense")
        return rest

    def _take_line(self, line: bytes) -> None:
        """Take over a line. One that is damaged costs the names in it: those behind it have their own numbers."""
        most_missing = self._label_bytes // SHORTEST_LINE  # a number is no reason to make a table of any size
        try:
            self._missing_names += self.labels.add_line(line, most_missing)
        except ValueError as error:
            self._bad_line = self._bad_line or f"line {self._label_lines + 1} {error}"
        self._label_bytes += len(line) + 1
        self._label_lines += 1

    def _give_up_labels(self, why: str) -> None:
        self._labels_broken = True
        self.degrade(f"{LABELS_FILE} {why}: names from there on are missing")

    def _label_damage(self) -> tuple[str, ...]:
        count = self._missing_names
        if not count and not self._bad_line:
            return ()
        many = f"{count} name{'s' * (count != 1)} missing"
        return (f"{LABELS_FILE} {self._bad_line}: {many}" if self._bad_line else f"{LABELS_FILE}: {many}",)

    def _settle(self, origin: Origin, events: int | None, left_over: int) -> None:
        """Tell from the origin and from what is there how the recording stands."""
        status, reasons = origin.status, origin.reasons
        if self.following:
            status = Status.RECORDING
        elif events != self.length or left_over:
            status = Status.TRUNCATED
            reasons = (*reasons, _shortfall(self.length, events, left_over))
        damage = (*self._label_damage(), *self._damage)
        if damage:
            status = Status.DEGRADED
        self.origin = replace(origin, status=status, reasons=(*reasons, *damage))


def find_end(fd: int, known: int) -> int:
    """The number of events in a file of records, of which the first `known` were seen before.

    Valid records are a prefix (see `EventLog`), so a few of them tell where it ends; the last ones are then
    looked at each, for a file that was damaged may not keep to that.
    """
    records = os.fstat(fd).st_size // RECORD
    low, step = known, 1
    while low + step <= records and _is_event(fd, low + step - 1):
        low += step
        step *= 2
    high = min(low + step - 1, records)  # records low .. high - 1 are not decided yet
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_event(fd, middle) else (low, middle)
    start = max(known, low - LAST_LOOK)
    last = np.frombuffer(os.pread(fd, (low - start) * RECORD, start * RECORD), EVENT)
    bad = (last["kind"] == 0) | (last["seq"] != np.arange(start, start + len(last), dtype=np.uint64))
    return start + int(bad.argmax()) if bad.any() else start + len(last)


def _is_event(fd: int, number: int) -> bool:
    data = os.pread(fd, RECORD, number * RECORD)
    if len(data) < RECORD:
        return False  # the file became shorter
    record = np.frombuffer(data, EVENT)[0]
    return bool(record["kind"] != 0 and record["seq"] == number)


def _left_over(fd: int, start: int) -> int:
    tail = np.frombuffer(os.pread(fd, MAX_TAIL, start), np.uint8)
    used = np.flatnonzero(tail)
    return int(used[-1]) + 1 if len(used) else 0


def _shortfall(found: int, written: int | None, left_over: int) -> str:
    if written is None:
        return f"recording did not end cleanly; {found} complete events read{_rest(left_over)}"
    return f"{written} events were recorded, {found} can be read{_rest(left_over)}"


def _rest(num_bytes: int) -> str:
    return f"; {num_bytes} byte{'s' * (num_bytes > 1)} behind them: no whole event" if num_bytes else ""


class StoredOrigin(NamedTuple):
    """What `origin.json` says: how many events and labels the recording ended with, None if it did not end."""

    origin: Origin
    events: int | None
    labels: int | None  # also None where an older bfcviz recorded


def read_origin(folder: Path) -> StoredOrigin:
    """What the origin of a recording says."""
    path = folder / ORIGIN_FILE
    if not os.path.lexists(path):
        raise FileError(folder, "", f"is not a recording: it has no {ORIGIN_FILE}")
    try:
        origin, rest = origin_from_json(read_small(path, MAX_ORIGIN_BYTES))
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from error
    return StoredOrigin(origin, _number(path, rest, "events"), _number(path, rest, "labels"))


def _number(path: Path, rest: Mapping[str, object], name: str) -> int | None:
    number = rest.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise FileError(path, name, f"is not a number of {name}")
    return number
