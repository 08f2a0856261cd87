"""The folder of a recording: its lock, its files, and how their events are read while it grows or after it ended.

A label is written before the first event that names it, so the reader looks at the events first and at the labels
after them: it then finds the label of every event.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bfcviz.errors import FileError, FolderTaken
from bfcviz.events.event_source import BLOCK, ArraySource, Fault
from bfcviz.events.labels import MAX_LABEL_BYTES, SHORTEST_LINE, Labels
from bfcviz.events.log import EVENTS_FILE as EVENTS_FILE
from bfcviz.events.origin import KEEP_BYTES, MAX_ORIGIN_BYTES, Origin, Status, origin_from_json
from bfcviz.events.process_memory import PROCESS_FILE, read_samples
from bfcviz.events.row_copy import joined
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.files import (
    EARLIER,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    OpenFile,
    end_of_hole,
    open_regular,
    read_small,
    reading,
)
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from bfcviz.events.storage.blocks import BlockFile

# ------------------------------------------------------------------------------
# A file lock that marks a recording in progress; the kernel releases it when the writer ends for any reason.

try:
    import fcntl
except ImportError:  # Windows: readers cannot distinguish a recording in progress from an interrupted one
    fcntl = None  # type: ignore[assignment]


_TRIES = 200
_PAUSE_S = 0.001


def lock(file: FileIO) -> None:
    """Lock the file until it is closed, or this process ends."""
    for _ in range(_TRIES):  # `is_locked` of a reader may hold it for a moment
        if try_lock(file.fileno()):
            return
        time.sleep(_PAUSE_S)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Lock the folder, so that only one process records to it.

    Raises:
        FileError: another process holds it, or it cannot be opened.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(folder, "", f"cannot be opened: {error.strerror}") from error
    try:
        if not try_lock(fd):
            raise FileError(folder, "", "is being recorded to by another process; choose another folder")
        yield
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Lock an open file; False if another process holds the lock."""
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks: readers cannot detect that the recording is in progress
    return True


def claim_folder(folder: Path) -> FileIO:
    """Create the folder and the labels file in it, locked while this process records.

    Raises:
        FileError: the folder is not empty, or cannot be created.
    """
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        if any(path.name != EARLIER for path in folder.iterdir()):
            raise FolderTaken(folder, "", "is not empty; each recording needs a new folder")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = FileIO(os.open(folder / LABELS_FILE, flags, PRIVATE_FILE), "wb")
    except FileExistsError as error:
        if not folder.is_dir():
            raise FileError(folder, "", f"cannot hold a recording: {error.strerror}") from error
        raise FolderTaken(
            folder, "", "is being recorded to by another process; give another folder"
        ) from error
    except OSError as error:
        raise FileError(folder, "", f"cannot hold a recording: {error.strerror}") from error
    lock(file)
    return file


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the file.

    Raises:
        FileError: the file cannot be read.
    """
    try:
        if fcntl is None or not path.is_file():
            return False
    except OSError as error:  # a folder without permission
        raise FileError(path, "", f"cannot be read: {error.strerror or error}") from error
    with open_regular(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
    return False


# ------------------------------------------------------------------------------
# The files of a recording's folder: their names, what the origin says, where the events end, and their removal.

ORIGIN_FILE = "origin.json"
LABELS_FILE = "labels.jsonl"
BLOCKS_FILE = "events.bfc"
"""What a drain has packed of the events, from the first one on; EVENTS_FILE has the others."""
RECORD = EVENT.itemsize

LAST_LOOK = 4096
"""Events before the end that are checked one by one when a folder is opened."""


def files_of(folder: Path) -> list[Path]:
    """The files of a recording in the folder, in the order of their removal: the origin last."""
    parts = folder.glob(f".{ORIGIN_FILE}.*.partial")  # `replacing` was killed
    names = (folder / name for name in (PROCESS_FILE, EVENTS_FILE, BLOCKS_FILE, LABELS_FILE, ORIGIN_FILE))
    return [path for path in (*parts, *names) if path.is_symlink() or path.is_file()]


def remove_files(folder: Path) -> None:
    """Remove the files of a recording from the folder, and nothing else."""
    for path in files_of(folder):
        path.unlink(missing_ok=True)


class StoredOrigin(NamedTuple):
    """The content of `origin.json`: how many events and labels the recording has, None if it did not end."""

    origin: Origin
    events: int | None
    labels: int | None  # also None for a recording of an older bfcviz


def read_origin(folder: Path) -> StoredOrigin:
    """Read the origin of a recording.

    Raises:
        FileError: the folder is not a recording, or its origin is invalid.
    """
    path = folder / ORIGIN_FILE
    if not os.path.lexists(path):
        inside = sorted(place.parent.name for place in folder.glob(f"*/{ORIGIN_FILE}"))
        if inside:
            raise FileError(
                folder,
                "",
                f"holds {len(inside)} recordings: open one of them, such as {folder / inside[0]}, or see them "
                "together with bfcviz attach or bfcviz.follow_workers",
            )
        raise FileError(folder, "", f"is not a recording: it has no {ORIGIN_FILE}")
    try:
        origin, rest = origin_from_json(read_small(path, MAX_ORIGIN_BYTES))
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "", str(error)) from error
    return StoredOrigin(
        origin, _number_in_origin_file(path, rest, "events"), _number_in_origin_file(path, rest, "labels")
    )


def _number_in_origin_file(path: Path, rest: Mapping[str, object], name: str) -> int | None:
    number = rest.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise FileError(path, name, f"is not a number of {name}")
    return number


def find_end(fd: int, known: int) -> int:
    """The number of events in a file of records, of which the first `known` were read before.

    Valid records are a prefix (see `EventLog`), so a search finds its end in a few reads. The last records are then
    checked one by one, because the valid records of a damaged file may not be a prefix. A drain makes a hole of the
    first ones: these are counted, too.
    """
    records = os.fstat(fd).st_size // RECORD
    hole = end_of_hole(fd)
    known = max(known, min(-(-hole // RECORD), records))
    low, step = known, 1
    while low + step <= records and _is_recorded_event(fd, low + step - 1):
        low += step
        step *= 2
    high = min(low + step - 1, records)  # records low .. high - 1 are not known yet
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_recorded_event(fd, middle) else (low, middle)
    if end_of_hole(fd) > hole:  # a drain freed records during the search, which so ended among zeros
        return find_end(fd, known)
    start = max(known, low - LAST_LOOK)
    last = np.frombuffer(os.pread(fd, (low - start) * RECORD, start * RECORD), EVENT)
    bad = (last["kind"] == 0) | (last["seq"] != np.arange(start, start + len(last), dtype=np.uint64))
    return start + int(bad.argmax()) if bad.any() else start + len(last)


def _is_recorded_event(fd: int, number: int) -> bool:
    data = os.pread(fd, RECORD, number * RECORD)
    if len(data) < RECORD:
        return False  # the file became shorter
    record = np.frombuffer(data, EVENT)[0]
    return bool(record["kind"] != 0 and record["seq"] == number)


# ------------------------------------------------------------------------------
# FolderSource: the events of a folder, for a Trace.

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
        self._sampled: tuple[int, dict[str, Any]] = (
            0,
            {},
        )  # bytes of the samples' file, and the detail made of it
        self._label_bytes = 0  # of labels.jsonl read so far
        self._label_lines = 0
        self._missing_names = 0
        self._bad_line = ""  # the first damaged line, and the damage
        self._labels_broken = False
        self._damage: tuple[str, ...] = ()
        self._dropped = (0, "")  # `first` when it was looked at last, and the words for it
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
        # Where old events are dropped, a drain that still packs the last ones drops others for them.
        drops = KEEP_BYTES in stored.origin.details and is_locked(self.path / BLOCKS_FILE)
        self.following = drops or (locked and stored.events is None)
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
            return 0 if self.following else _recording_tail_bytes(file.fd, self.length * RECORD)

    def _find_blocks(self) -> int:
        """Look for packed events; returns how many there are."""
        if self._blocks is None and (self.path / BLOCKS_FILE).is_file():
            # A process that records may run in a Python without zstd, which blocks need.
            from bfcviz.events.storage.blocks import BlockFile  # noqa: PLC0415

            self._blocks = BlockFile(self.path / BLOCKS_FILE)
        elif self._blocks is not None:
            self._blocks.refresh()
        if self._blocks is not None:
            self.first = max(self.first, self._blocks.first)
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
        starts = range(self.first, self.length, BLOCK)
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

    def _samples(self, origin: Origin) -> dict[str, Any]:
        """The samples of the process, read again where there are more."""
        try:
            size = (self.path / PROCESS_FILE).stat().st_size
        except OSError:
            return {}
        if size != self._sampled[0]:
            self._sampled = size, read_samples(self.path, origin.details.get("started_ns"))
        return self._sampled[1]

    def _update_origin(self, origin: Origin, events: int | None, left_over: int) -> None:
        """Set the status of the recording from its origin and from what was found."""
        status, reasons = origin.status, origin.reasons
        if self.following:
            status = Status.RECORDING
        elif events != self.length or left_over:
            status = Status.TRUNCATED
            reasons = (*reasons, _recording_shortfall_text(self.length, events, left_over))
        details = {**origin.details, **self._samples(origin)}
        if self.first:
            status = status if self.following else Status.TRUNCATED
            dropped = self._what_was_dropped(details)
            reasons = (*reasons, dropped)
            gaps = details.get("known_gaps")
            details["known_gaps"] = [*(gaps if isinstance(gaps, list) else []), dropped]
        damage = (*self._label_damage(), *self._damage)
        if damage:
            status = Status.DEGRADED
        self.origin = replace(origin, status=status, reasons=(*reasons, *damage), details=details)

    def _what_was_dropped(self, details: Mapping[str, object]) -> str:
        """Which events at the beginning are not kept, and why."""
        if self.first != self._dropped[0]:
            until = ""
            with suppress(FileError):  # it is damaged, or was dropped this moment
                event = self._part(self.first, min(self.first + 1, self.length))
                until = f", up to {int(event['time'][0]) / 1e9:.3f} s," if len(event) else ""
            self._dropped = self.first, f"the first {self.first:,} events{until} were dropped"
        keep = details.get(KEEP_BYTES)
        why = f": at most {format_bytes(keep)} were to be kept" if isinstance(keep, int) and keep > 0 else ""
        return f"{self._dropped[1]}{why}"


def _recording_tail_bytes(fd: int, start: int) -> int:
    tail = np.frombuffer(os.pread(fd, MAX_TAIL, start), np.uint8)
    used = np.flatnonzero(tail)
    return int(used[-1]) + 1 if len(used) else 0


def _recording_shortfall_text(found: int, written: int | None, left_over: int) -> str:
    if written is None:
        return f"recording did not end cleanly; {found} complete events read{_recording_tail_text(left_over)}"
    return f"{written} events were recorded, {found} can be read{_recording_tail_text(left_over)}"


def _recording_tail_text(num_bytes: int) -> str:
    return (
        f"; {num_bytes} byte{'s' * (num_bytes > 1)} after them are not a complete event" if num_bytes else ""
    )
