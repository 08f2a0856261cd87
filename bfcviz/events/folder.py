"""A recording's folder, read: while it grows, after it ended, or after its writer was killed.

::

    origin.json     written first and, when the recording ends, once more with `events`: replaced as a whole
    labels.jsonl    one label a line, written before the first event that names it; locked while recording
    events.bin      [ events: kind != 0, seq = 0, 1, 2 ... | a half-written one | zeros, allocated ahead ]

So the events are looked at first and the labels after them: every label an event names is there.
"""

import mmap
import os
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.files import open_regular, read_small
from bfcviz.events.labels import MAX_LABEL_BYTES, Labels
from bfcviz.events.lock import is_locked
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, Status, origin_from_json
from bfcviz.events.schema import EVENT
from bfcviz.events.source import ArraySource

ORIGIN_FILE = "origin.json"
LABELS_FILE = "labels.jsonl"
EVENTS_FILE = "events.bin"
RECORD = EVENT.itemsize
MAX_LABELS_BYTES = 1 << 30

LAST_LOOK = 4096
"""Events before the end that are looked at one by one when a folder is opened."""

MAX_TAIL = 1 << 24
"""Bytes behind the last event that are searched for what is left of others."""


class FolderSource(ArraySource):
    """The events of a recording's folder, mapped; more of them after each `refresh`.

    Opening reads the labels and looks for the end of the events: a few records, whatever their number.

    Raises:
        FileError: the folder is not a recording, or its origin cannot be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(np.zeros(0, EVENT), Labels(), _read_origin(path)[0])
        self.path: Path = path
        self._label_bytes = 0  # of labels.jsonl read so far
        self._labels_broken = False
        self._damage: tuple[str, ...] = ()
        self.following = True
        self.refresh()

    def refresh(self) -> int:
        """Map events that came since the last look; returns how many."""
        if not self.following:
            return 0
        # Asked first: if the writer is gone now, what is read below is all there will ever be. A process it
        # forked may keep the lock, but an origin that tells the number of events is the end all the same.
        locked = is_locked(self.path / LABELS_FILE)
        origin, events = _read_origin(self.path)
        self.following = locked and events is None
        before = self.length
        left_over = self._map_events(self.path / EVENTS_FILE)
        if not self._labels_broken:
            self._read_labels(self.path / LABELS_FILE)
        self._settle(origin, events, left_over)
        return self.length - before

    def degrade(self, reason: str, status: Status = Status.DEGRADED) -> None:
        """Say in the origin, now and after each refresh, that something is wrong."""
        if reason not in self._damage:
            self._damage = (*self._damage, reason)
        super().degrade(reason, status)

    def _map_events(self, path: Path) -> int:
        """Map what is valid; returns how many bytes behind it are not zero."""
        if not path.exists():
            return 0  # the writer was killed, or we came, before it made the file
        with open_regular(path) as file:
            end = find_end(file.fileno(), self.length)
            if end > self.length:
                # Only what is valid is mapped: when the writer cuts the file behind it, nothing is touched.
                mapped = mmap.mmap(file.fileno(), end * RECORD, access=mmap.ACCESS_READ)
                self._events = np.frombuffer(mapped, EVENT)
                self.length = end
            return 0 if self.following else _left_over(file.fileno(), end * RECORD)

    def _read_labels(self, path: Path) -> None:
        """Take over the lines that are complete; at the end of the recording the rest is damage."""
        try:
            with open_regular(path) as file:
                file.seek(self._label_bytes)
                rest = self._take_lines(file)
            if rest and not self.following:
                raise ValueError("is cut off")  # noqa: TRY301
        except FileError as error:
            self._give_up_labels(error.cause)
        except ValueError as error:
            self._give_up_labels(f"line {len(self.labels)} {error}")

    def _take_lines(self, file: FileIO) -> bytes:
        rest = b""
        while data := file.read(1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.labels.add_line(line)
                self._label_bytes += len(line) + 1
            if len(rest) > MAX_LABEL_BYTES or self._label_bytes > MAX_LABELS_BYTES:
                raise ValueError("is longer, or stands further down, than makes sense")
        return rest

    def _give_up_labels(self, why: str) -> None:
        self._labels_broken = True
        self.degrade(f"{LABELS_FILE} {why}: names from there on are missing")

    def _settle(self, origin: Origin, events: int | None, left_over: int) -> None:
        """Tell from the origin and from what is there how the recording stands."""
        status, reasons = origin.status, origin.reasons
        if self.following:
            status = Status.RECORDING
        elif events != self.length or left_over:
            status = Status.TRUNCATED
            reasons = (*reasons, _shortfall(self.length, events, left_over))
        if self._damage:
            status = Status.DEGRADED
        self.origin = replace(origin, status=status, reasons=(*reasons, *self._damage))


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


def _read_origin(folder: Path) -> tuple[Origin, int | None]:
    """The origin, and how many events the recording ended with: None if it did not end."""
    path = folder / ORIGIN_FILE
    if not path.exists():
        raise FileError(folder, "", f"is not a recording: it has no {ORIGIN_FILE}")
    try:
        origin, rest = origin_from_json(read_small(path, MAX_ORIGIN_BYTES))
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from error
    events = rest.get("events")
    if events is not None and type(events) is not int:
        raise FileError(path, "events", "is not a number")
    return origin, events
