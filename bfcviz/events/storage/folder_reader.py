"""Read a recording's folder: while it grows, after it ended, or after its writer was killed.

`recording_files` says what its files hold. A label is written before the first event that names it, so the reader
looks at the events first and at the labels after them: it then finds the label of every event.
"""

import os
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.event_source import BLOCK, ArraySource, Fault
from bfcviz.events.labels import MAX_LABEL_BYTES, SHORTEST_LINE, Labels
from bfcviz.events.origin import Origin, Status
from bfcviz.events.row_copy import joined
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.blocks import BlockFile
from bfcviz.events.storage.files import OpenFile, open_regular, reading
from bfcviz.events.storage.recording import (
    BLOCKS_FILE,
    EVENTS_FILE,
    LABELS_FILE,
    RECORD,
    find_end,
    is_locked,
    read_origin,
)

MAX_LABELS_BYTES = 1 << 30

MAX_TAIL = 1 << 24
"""Bytes after the last event that are searched for remains of others."""


_GONE = "is lost: the file became shorter"


class FolderSource(ArraySource):
    """The events of a recording's folder, read when requested; `refresh` finds new ones.

    Opening reads the labels and searches the end of the events in a few reads, for any number of them. The events are
    not mapped: if another process truncates the file, reading a mapping would end this process by SIGBUS.

    Raises:
        FileError: the folder is not a recording, or its origin cannot be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(np.zeros(0, EVENT), Labels(), read_origin(path).origin)
        self.path: Path = path
        self._file: OpenFile | None = None  # the events
        self._blocks: BlockFile | None = None  # what a drain has packed of them
        self._last: tuple[int, Events] = (
            0,
            np.zeros(0, EVENT),
        )  # the events read last, and the number of the first
        self._label_bytes = 0  # of labels.jsonl read so far
        self._label_lines = 0
        self._missing_names = 0
        self._bad_line = ""  # the first damaged line, and the damage
        self._labels_broken = False
        self._damage: tuple[str, ...] = ()
        self.following = True
        self.refresh()

    def refresh(self) -> int:
        """Add the events recorded since the last call; returns how many."""
        if not self.following:
            return 0
        # Checked first: if the writer has ended now, the files read below are final. A process that it forked may
        # keep the lock, but an origin with the number of events is final, too.
        locked = is_locked(self.path / LABELS_FILE)
        stored = read_origin(self.path)
        self.following = locked and stored.events is None
        before = self.length
        left_over = self._find_events(self.path / EVENTS_FILE)
        if not self._labels_broken:
            self._read_labels(self.path / LABELS_FILE, killed=stored.labels is None)
        if not self._labels_broken and stored.labels not in (None, len(self.labels)):
            self._give_up_labels(f"holds {len(self.labels)} of {stored.labels} labels")
        # Read again: a heap that was made meanwhile is in the origin before it has an event.
        origin = read_origin(self.path).origin if self.following else stored.origin
        self._update_origin(origin, stored.events, left_over)
        return self.length - before

    def degrade(self, reason: str, status: Status = Status.DEGRADED) -> None:
        """Record in the origin, now and after each refresh, that something is wrong."""
        if reason not in self._damage:
            self._damage = (*self._damage, reason)
        super().degrade(reason, status)

    def _find_events(self, path: Path) -> int:
        """Find the end of the valid events; returns how many bytes after it are in use."""
        packed = self._find_blocks()
        if not os.path.lexists(path):
            self.length = max(self.length, self._find_blocks())
            return 0  # the writer did not create the file yet, or was killed before; or all events are packed
        with reading(path):
            file = OpenFile(path)
            records = os.fstat(file.fd).st_size // RECORD
            if max(records, packed) < self.length:
                self.degrade(f"{EVENTS_FILE} became shorter: of {self.length} events {records} can be read")
            self.length = find_end(file.fd, max(self.length, packed))
            self._file = file
            return 0 if self.following else _left_over(file.fd, self.length * RECORD)

    def _find_blocks(self) -> int:
        """Look for packed events; returns how many there are."""
        if self._blocks is None and (self.path / BLOCKS_FILE).is_file():
            self._blocks = BlockFile(self.path / BLOCKS_FILE)
        elif self._blocks is not None:
            self._blocks.refresh()
        return self._packed

    @property
    def _packed(self) -> int:
        return 0 if self._blocks is None else self._blocks.stop

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last keyframe at or before `step` that is stored with packed events."""
        return None if self._blocks is None else self._blocks.keyframe_before(step)

    def index_entries(self) -> list[bytes] | None:
        """The index of each block, where all events are packed."""
        if self._blocks is None or self._blocks.stop != self.length:
            return None
        return self._blocks.index_entries()

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
        """Events [start, stop), fewer if the file became shorter; from the events read last if it holds them."""
        first, last = self._last
        if first <= start and stop <= first + len(last):
            return last[start - first : stop - first]
        events = self._from_blocks(start, min(stop, self._packed))
        if len(events) < stop - start:
            events = self._from_file(start, stop, events)
        if len(events) <= BLOCK:
            self._last = (start, events)  # each read comes after a check of the same events
        return events

    def _from_blocks(self, start: int, stop: int) -> Events:
        if self._blocks is None or start >= stop:
            return np.zeros(0, EVENT)
        return self._blocks.read(start, stop)

    def _from_file(self, start: int, stop: int, packed: Events) -> Events:
        """The packed events, the first ones of [start, stop), and those after them, which may be packed meanwhile."""
        at = start + len(packed)
        with reading(self.path / EVENTS_FILE):
            data = b"" if self._file is None else self._file.read_at(at * RECORD, (stop - at) * RECORD)
        events = np.frombuffer(data, EVENT, len(data) // RECORD)
        if self._packed < stop and not events["kind"].all() and self._find_blocks() > at:
            return self._part(start, stop)
        return joined([packed, events]) if len(packed) else events

    def _read_labels(self, path: Path, *, killed: bool) -> None:
        """Read the complete lines; after the end of the recording an incomplete one is damage.

        But not if the writer was killed and no event has that label: a name is written before the first event with it.
        """
        try:
            with open_regular(path) as file, reading(path):
                file.seek(self._label_bytes)
                rest = self._take_lines(file)
            if rest and not self.following and not (killed and self._most_label() < len(self.labels)):
                raise ValueError("is cut off")  # noqa: TRY301
        except FileError as error:
            self._give_up_labels(error.cause)
        except ValueError as error:
            self._give_up_labels(f"line {self._label_lines + 1} {error}")

    def _most_label(self) -> int:
        """The highest number of a label in all events."""
        starts = range(0, self.length, BLOCK)
        parts = (self._part(start, min(start + BLOCK, self.length))["label"] for start in starts)
        return max((int(part.max(initial=0)) for part in parts), default=0)

    def _take_lines(self, file: FileIO) -> bytes:
        rest = b""
        while data := file.read(1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take_line(line)
            if len(rest) > MAX_LABEL_BYTES or self._label_bytes > MAX_LABELS_BYTES:
                raise ValueError(
                    "is longer than a label, or the file is longer than a table of labels, may be"
                )
        return rest

    def _take_line(self, line: bytes) -> None:
        """Add a line. A damaged line loses only its own name: later lines have their own numbers."""
        most_missing = self._label_bytes // SHORTEST_LINE  # a wrong number must not create a huge table
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

    def _update_origin(self, origin: Origin, events: int | None, left_over: int) -> None:
        """Set the status of the recording from its origin and from what was found."""
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


def _left_over(fd: int, start: int) -> int:
    tail = np.frombuffer(os.pread(fd, MAX_TAIL, start), np.uint8)
    used = np.flatnonzero(tail)
    return int(used[-1]) + 1 if len(used) else 0


def _shortfall(found: int, written: int | None, left_over: int) -> str:
    if written is None:
        return f"recording did not end cleanly; {found} complete events read{_rest(left_over)}"
    return f"{written} events were recorded, {found} can be read{_rest(left_over)}"


def _rest(num_bytes: int) -> str:
    return (
        f"; {num_bytes} byte{'s' * (num_bytes > 1)} after them are not a complete event" if num_bytes else ""
    )
