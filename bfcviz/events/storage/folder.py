"""The folder of a recording, or of several: its lock, its files, and how their events are read, also while it grows.

A label is written before the first event that names it, so the reader looks at the events first and at the labels
after them: it then finds the label of every event.

A folder may hold several recordings, one for each process: the workers of a cluster, or the ranks of a program.

::

    run.bfc/               may be a recording itself: of the process that started the others
        rank-0/            origin.json, labels.jsonl, events.bin; of long ones labels.packed, events.bfc
        rank-1/
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bfcviz.errors import BfcvizError, FileError, FolderTaken
from bfcviz.events.event_file import EventFile
from bfcviz.events.event_source import BLOCK, ArraySource
from bfcviz.events.label_table import MAX_LABEL_BYTES, SHORTEST_LINE, Labels, without_surrogates
from bfcviz.events.log import EVENTS_FILE as EVENTS_FILE
from bfcviz.events.log_memory import SLOT
from bfcviz.events.memory_samples import SAMPLE_FILES, read_samples
from bfcviz.events.origin import (
    ENDED_BY_SIGNAL,
    KEEP_BYTES,
    MAX_ORIGIN_BYTES,
    THREADS,
    Origin,
    Status,
    origin_from_json,
    signal_text,
)
from bfcviz.events.schema import EVENT, Events, Fault
from bfcviz.events.storage.files import (
    EARLIER,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    is_locked,
    lock,
    parse_file_json,
    read_small,
    reading_file,
    replacing,
    try_lock,
)
from bfcviz.events.storage.label_file import LABELS_FILE as LABELS_FILE
from bfcviz.events.storage.label_file import PACKED_LABELS_FILE, LabelFile
from bfcviz.events.structured_arrays import joined
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from bfcviz.events.storage.blocks import BlockFile


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of a recording, so that only one process records to it.

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


def claim_folder(folder: Path) -> FileIO:
    """Create the folder of a recording and the labels file in it, locked while this process records.

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


# ------------------------------------------------------------------------------
# The files of a recording's folder: their names, what the origin says, where the events end, and their removal.

ORIGIN_FILE = "origin.json"
THREADS_FILE = "threads.jsonl"
"""The names of the process's threads, a line for each; missing where none has events."""
ENDED_FILE = "ended"
"""The signal that ended the process, where that is known, and how many events its log had then."""
BLOCKS_FILE = "events.bfc"
"""What a drain has packed of the events, from the first one on; EVENTS_FILE has the others."""
RECORD = EVENT.itemsize


def files_of(folder: Path) -> list[Path]:
    """The files of a recording in the folder, in the order of their removal: the origin last."""
    parts = folder.glob(f".{ORIGIN_FILE}.*.partial")  # `replacing` was killed
    names = (
        *SAMPLE_FILES,
        THREADS_FILE,
        ENDED_FILE,
        EVENTS_FILE,
        BLOCKS_FILE,
        PACKED_LABELS_FILE,
        LABELS_FILE,
        ORIGIN_FILE,
    )
    paths = (*parts, *(folder / name for name in names))
    return [path for path in paths if path.is_symlink() or path.is_file()]


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
        origin, _number_in_folder_origin(path, rest, "events"), _number_in_folder_origin(path, rest, "labels")
    )


def write_origin(folder: Path, text: bytes) -> None:
    """Write the origin of a recording; readers see the old one or the new one.

    Raises:
        FileError: it cannot be written.
    """
    with replacing(folder / ORIGIN_FILE, overwrite=True, mode=PRIVATE_FILE) as made:
        made.write_bytes(text)


def _number_in_folder_origin(path: Path, rest: Mapping[str, object], name: str) -> int | None:
    number = rest.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise FileError(path, name, f"is not a number of {name}")
    return number


class _SignalNote(NamedTuple):
    """What a folder says of the signal that ended its process: the signal, and the log's events if it counted them."""

    number: int
    events: int | None


def _read_signal_note(folder: Path) -> _SignalNote | None:
    try:
        found = _SIGNAL_NOTE.fullmatch(read_small(folder / ENDED_FILE, _MOST_NOTE_BYTES))
    except (FileError, ValueError):
        return None
    if found is None:  # the disk was full
        return None
    number, events = found.groups()
    return _SignalNote(int(number), None if events is None else int(events))


def note_signal(folder: Path, number: int) -> None:
    """Note which signal ended the process of a recording that has not ended, unless the process has noted it."""
    if read_origin(folder).events is None and _read_signal_note(folder) is None:
        with replacing(folder / ENDED_FILE, overwrite=True, mode=PRIVATE_FILE) as made:
            made.write_bytes(b"%d\n" % number)


_SIGNAL_NOTE: Final = re.compile(rb"([1-9][0-9]{0,2})(?: ([0-9]{1,19}))?\n")  # sigterm.h writes it, too
_MOST_NOTE_BYTES: Final = 64

MAX_LABELS_BYTES = 1 << 30

_MOST_THREAD_BYTES: Final = 1 << 22

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
        self._file: EventFile | None = None  # the events
        self._blocks: BlockFile | None = None  # what a drain has packed of them
        # The events read last, and the number of the first.
        self._last: tuple[int, Events] = (0, np.zeros(0, EVENT))
        # Of the files beside the events: their bytes, and the details made of them.
        self._sampled: tuple[list[int], dict[str, Any]] = ([], {})
        self._threads: tuple[list[int], dict[str, Any]] = ([], {})
        self._label_file = LabelFile(path)
        self._label_bytes = 0  # of them read so far
        self._label_lines = 0
        self._missing_names = 0
        self._lost = 0  # events that were packed, in blocks with a damaged header
        self._bad_line = ""  # the first damaged line, and the damage
        self._labels_broken = False
        self._damage: tuple[str, ...] = ()
        self._dropped = (0, "")  # `first` when it was looked at last, and the words for it
        self.following = True
        self.refresh()

    def refresh(self) -> int:
        """Add the events that came to the recording's folder since the last call; returns how many."""
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
            self._read_labels(killed=stored.labels is None)
        if not self._labels_broken and stored.labels not in (None, len(self.labels)):
            self._give_up_labels(f"holds {len(self.labels)} of {stored.labels} labels")
        # Read again: a heap that was made meanwhile is in the origin before it has an event.
        origin = read_origin(self.path).origin if self.following else stored.origin
        self._update_origin(origin, stored.events, left_over)
        return self.length - before

    def degrade(self, reason: str, status: Status = Status.DEGRADED) -> None:
        """Record in the origin of a folder, now and after each refresh, that something is wrong."""
        if reason not in self._damage:
            self._damage = (*self._damage, reason)
        super().degrade(reason, status)

    def _find_events(self, path: Path) -> int:
        """Find the end of the valid events in the folder; returns how many bytes after it are in use."""
        packed = self._find_blocks()
        if not os.path.lexists(path):
            self.length = max(self.length, self._find_blocks())
            self._lost = self._lost_of_blocks
            return 0  # the writer did not create the file yet, or was killed before; or all events are packed
        with reading_file(path):
            file = EventFile(path, self._file)
            records = file.num_records
            if packed < self.length and records < file.extent_of(self.length):
                self.degrade(f"{EVENTS_FILE} became shorter: of {self.length} events {records} can be read")
            length = file.find_end(max(self.length, packed), self._most_lost)
            # A drain may have freed slots meanwhile, so that the search ended there.
            while (more := self._find_blocks()) > packed:
                packed = more
                length = file.find_end(max(self.length, packed), self._most_lost)
            self.length = length
            self._lost = self._lost_of_blocks + file.skip_lost(packed, self._most_lost) - packed
            self._file = file
            return 0 if self.following else file.tail_bytes(self.length, MAX_TAIL)

    def _find_blocks(self) -> int:
        """Look for packed events in the folder; returns how many there are."""
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

    @property
    def _lost_of_blocks(self) -> int:
        return 0 if self._blocks is None else self._blocks.lost

    @property
    def _most_lost(self) -> int:
        return 0 if self._blocks is None else self._blocks.most_lost

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The last keyframe at or before `step` that is stored with packed events."""
        return None if self._blocks is None else self._blocks.keyframe_before(step)

    def index_entries(self) -> list[bytes] | None:
        """The index of each block, where all events are packed."""
        if self._blocks is None or self._blocks.stop != self.length:
            return None
        return self._blocks.index_entries()

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of the recording's folder, a copy."""
        events = super().read(start, stop)
        if len(events) < stop - start:
            self._raise(Fault(start + len(events), _GONE))
        return events

    def _fault_in(self, start: int, stop: int) -> Fault | None:
        try:
            return super()._fault_in(start, stop)
        except FileError:
            pass  # it checked whole blocks of events; what is lost begins and ends with a slot
        for at in (start, *range(start - start % SLOT + SLOT, stop, SLOT)):
            try:
                fault = self._check(at, min(at - at % SLOT + SLOT, stop))
            except FileError as error:
                return Fault(at, f"cannot be read: {error.place}: {error.cause}")
            if fault is not None:
                return fault
        return None

    def _check(self, start: int, stop: int) -> Fault | None:
        there = start + len(self._part(start, stop))
        fault = super()._check(start, there)
        return Fault(there, _GONE) if fault is None and there < stop else fault

    def _part(self, start: int, stop: int) -> Events:
        """Events [start, stop) of the folder, fewer if the file became shorter; those read last are kept."""
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
        """The packed events of the folder, the first of [start, stop), and those after, packed meanwhile."""
        at = start + len(packed)
        with reading_file(self.path / EVENTS_FILE):
            events = np.zeros(0, EVENT) if self._file is None else self._file.read(at, stop)
        # What is packed now may have been freed and written over before the read.
        if self._find_blocks() > at:
            return self._part(start, stop)
        return joined([packed, events]) if len(packed) else events

    def _read_labels(self, *, killed: bool) -> None:
        """Read the complete lines of labels in the folder; at its end an incomplete one is damage.

        But not if the writer was killed and no event has that label: a name is written before the first event with it.
        """
        try:
            rest = self._take_lines()
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
        return max((int(part.max()) for part in takewhile(len, parts)), default=0)

    def _take_lines(self) -> bytes:
        rest = b""
        for data in self._label_file.read(self._label_bytes):
            *lines, rest = (rest + data).split(b"\n")
            if self.labels.add_next_lines(lines):
                self._label_bytes += sum(map(len, lines)) + len(lines)
                self._label_lines += len(lines)
            else:
                for line in lines:
                    self._take_line(line)
            if len(rest) > MAX_LABEL_BYTES or self._label_bytes > MAX_LABELS_BYTES:
                raise ValueError(
                    "is longer than a label, or the file is longer than a table of labels, may be"
                )
        return rest

    def _take_line(self, line: bytes) -> None:
        """Add a line of labels in the folder. A damaged line loses only its own name."""
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

    def _beside_events(self, origin: Origin) -> dict[str, Any]:
        """The samples of the process and its devices and the names of its threads, read again where there are more."""
        if (sizes := self._sizes_of(*SAMPLE_FILES)) != self._sampled[0]:
            self._sampled = sizes, read_samples(self.path, origin.details.get("started_ns"))
        if (sizes := self._sizes_of(THREADS_FILE)) != self._threads[0]:
            self._threads = sizes, _read_thread_names(self.path / THREADS_FILE)
        return self._sampled[1] | self._threads[1]

    def _sizes_of(self, *names: str) -> list[int]:
        """The bytes of those of the folder's files that exist."""
        sizes = []
        for name in names:
            with suppress(OSError):
                sizes.append((self.path / name).stat().st_size)
        return sizes

    def _update_origin(self, origin: Origin, events: int | None, left_over: int) -> None:
        """Set the status of the folder's recording from its origin and from what was found."""
        status, reasons = origin.status, origin.reasons
        details = {**origin.details, **self._beside_events(origin)}
        note = None if self.following or events is not None else _read_signal_note(self.path)
        if note is not None:
            details[ENDED_BY_SIGNAL] = note.number
        if self.following:
            status = Status.RECORDING
        elif note is not None and self._has_all_of(note, details) and not left_over:
            status = Status.DEGRADED if reasons else Status.COMPLETE
        elif events != self.length or left_over:
            status = Status.TRUNCATED
            reasons = (*reasons, _folder_shortfall_text(self.length, events, left_over, note))
        dropping = []
        if self.first:
            status = status if self.following else Status.TRUNCATED
            dropping.append(self._what_was_dropped(details))
        if KEEP_BYTES in details and self._blocks is not None and self._blocks.undescribed is not None:
            dropping.append(nothing_dropped_text(self._blocks.undescribed))
        if dropping:
            reasons = (*reasons, *dropping)
            gaps = details.get("known_gaps")
            details["known_gaps"] = [*(gaps if isinstance(gaps, list) else []), *dropping]
        lost = (f"{self._lost:,} events are damaged and cannot be read",) if self._lost else ()
        damage = (*self._label_damage(), *lost, *self._damage)
        if damage:
            status = Status.DEGRADED
        self.origin = replace(origin, status=status, reasons=(*reasons, *damage), details=details)

    def _has_all_of(self, note: _SignalNote, details: Mapping[str, object]) -> bool:
        """Whether the folder has all that happened up to the signal: a served heap writes each event as it happens."""
        return note.events is not None and details.get("way") == "serve" and self.length >= note.events

    def _what_was_dropped(self, details: Mapping[str, object]) -> str:
        """Which events at the beginning of the folder's recording are not kept, and why."""
        if self.first != self._dropped[0]:
            until = ""
            with suppress(FileError):  # it is damaged, or was dropped this moment
                event = self._part(self.first, min(self.first + 1, self.length))
                until = f", up to {int(event['time'][0]) / 1e9:.3f} s," if len(event) else ""
            self._dropped = self.first, f"the first {self.first:,} events{until} were dropped"
        keep = details.get(KEEP_BYTES)
        why = f": at most {format_bytes(keep)} were to be kept" if isinstance(keep, int) and keep > 0 else ""
        return f"{self._dropped[1]}{why}"


def nothing_dropped_text(step: int) -> str:
    """Why a recording that keeps its newest events only grows: what describes blocks gave up at one from `step` on."""
    return f"events after step {step:,} contradict each other: from there on none are dropped, although keep was given"


def _read_thread_names(path: Path) -> dict[str, Any]:
    """The names of the threads in a folder, without damaged lines; empty: there are none."""
    names, data = {}, b""
    with suppress(OSError), path.open("rb") as file:
        data = file.read(_MOST_THREAD_BYTES)
    for line in data.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            found = parse_file_json(line)
            number, name = found["thread"], found["name"]
            if type(number) is int and isinstance(name, str):
                names[str(number)] = without_surrogates(name)
    return {THREADS: names} if names else {}


def _folder_shortfall_text(found: int, written: int | None, left_over: int, note: _SignalNote | None) -> str:
    if written is None:
        ended = "" if note is None else f": {signal_text(note.number)} ended its process"
        if note is not None and signal_text(note.number) == "SIGKILL":
            ended += ", as Linux does when the machine or its container has no memory left, and kill -9"
        return f"recording did not end cleanly{ended}; {found} complete events read{_folder_tail_text(left_over)}"
    return f"{written} events were recorded, {found} can be read{_folder_tail_text(left_over)}"


def _folder_tail_text(num_bytes: int) -> str:
    return (
        f"; {num_bytes} byte{'s' * (num_bytes > 1)} after them are not a complete event" if num_bytes else ""
    )


# ------------------------------------------------------------------------------
# A folder with several recordings, one for each process: the workers of a cluster, or the ranks of a program.

MAIN: Final = "main"
"""The name of the recording that is the folder itself."""

_LONGEST_NAME: Final = 80
_MOST_TRIES: Final = 10_000


def recordings_in(folder: Path) -> dict[str, Path]:
    """The recordings in a folder by their names; `rank-10` comes after `rank-9`. Empty if there is no such folder."""
    found = {MAIN: folder} if (folder / ORIGIN_FILE).is_file() else {}
    for place in sorted(_recording_subfolders(folder), key=folder_order):
        if (place / ORIGIN_FILE).is_file():
            found[place.name] = place
    return found


def has_several(folder: Path) -> bool:
    """Whether a folder has recordings in subfolders."""
    return any((place / ORIGIN_FILE).is_file() for place in _recording_subfolders(folder))


def has_folder_events(folder: Path) -> bool:
    """Whether a recording in the folder has an event; False where none can be read."""
    for place in recordings_in(folder).values():
        with suppress(OSError, FileError):
            if EventFile(place / EVENTS_FILE).find_end(0):
                return True
        if (place / BLOCKS_FILE).is_file():  # looked for last: a drain makes it before it frees an event
            return True
    return False


def files_of_all(folder: Path) -> list[Path]:
    """The files of all recordings in a folder, and their subfolders without other files, in the order of removal."""
    found = files_of(folder) if _is_recording(folder) else []
    for place in filter(_is_recording, _recording_subfolders(folder)):
        own = files_of(place)
        if {*place.iterdir()} == {*own}:
            found += [*own, place]
    return found


def _is_recording(folder: Path) -> bool:
    return (folder / ORIGIN_FILE).is_file() and (folder / LABELS_FILE).is_file()


def safe_folder_name(name: str) -> str:
    """A text as the name of a recording's folder: unsuitable characters become `_`; it is not hidden."""
    return re.sub(r"[^\w.+-]+", "_", name)[:_LONGEST_NAME].strip("._") or "worker"


def claim_subfolder(folder: Path, name: str) -> Path:
    """Make a new subfolder for the recording of one process: `name`, or `name-2`, `name-3` ... if it exists.

    Args:
        folder: the folder of all recordings.
        name: of a worker or rank; `safe_folder_name` is applied to it.

    Raises:
        FileError: the subfolder cannot be made.
    """
    safe = safe_folder_name(name)
    for number in range(1, _MOST_TRIES):
        place = folder / (safe if number == 1 else f"{safe}-{number}")
        try:
            place.mkdir(PRIVATE_FOLDER)
        except FileExistsError:
            continue
        except OSError as error:
            raise FileError(place, "", f"cannot hold a recording: {error.strerror}") from error
        return place
    raise FileError(folder, "", f"has {_MOST_TRIES} recordings of {safe} already; give another folder")


def _recording_subfolders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # it does not exist, or was removed
        for place in folder.iterdir():
            if not place.name.startswith(".") and place.is_dir() and not place.is_symlink():
                yield place


def folder_order(place: Path | str) -> list[tuple[bool, int, str]]:
    """A key that sorts the folders of recordings: numbers in their paths by value."""
    parts = re.split(r"(\d+)", str(place))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


# ------------------------------------------------------------------------------
# Wait until another process starts a recording.

_LOOK_S: Final = 0.05


def await_recording(path: Path, wait_s: float, begun: Callable[[Path], bool] | None = None) -> None:
    """Wait until a folder holds a recording; it may also have ended already.

    Args:
        path: the folder, which may not exist yet.
        wait_s: maximum wait in seconds.
        begun: returns whether the recording has started; by default `has_begun`.

    Raises:
        FileError: the path holds something else.
        BfcvizError: no recording started in that time.
    """
    until = time.monotonic() + wait_s
    begun = begun or has_begun
    while not begun(path):
        left = until - time.monotonic()
        if left <= 0:
            raise BfcvizError(
                f"{path}: no recording started there within {wait_s:g} s; it starts when the recorded program has "
                "imported its framework; with --on-oom when a request fails. Start the program, or wait longer"
            )
        time.sleep(min(_LOOK_S, left))


def has_begun(path: Path) -> bool:
    """Whether a recording in a folder has started, also in a subfolder.

    Raises:
        FileError: the path holds something else, or cannot be read.
    """
    with reading_file(path):
        if not path.is_dir():
            if path.is_symlink() and not path.exists():
                target = path.readlink()
                raise FileError(
                    path, "", f"is a link to {target}, which does not exist; give the folder itself"
                )
            if path.exists() and not path.is_dir():  # checked again: it may have been created meanwhile
                raise FileError(path, "", "is a file, not a recording's folder; bfcviz view shows files")
            return False
        if (path / ORIGIN_FILE).exists() or has_several(path):
            return True
        if (path / LABELS_FILE).exists() or all(_is_being_created(place) for place in path.iterdir()):
            return False
        if (path / ORIGIN_FILE).exists() or has_several(path):  # created meanwhile
            return True
    raise FileError(
        path,
        "",
        f"is not a recording: it has no {ORIGIN_FILE}; give the folder of `bfcviz record -o`, or one that is empty or "
        "does not exist yet",
    )


def _is_being_created(place: Path) -> bool:
    """Whether this is the subfolder of a process that is about to record."""
    return place.is_dir() and all(each.name == LABELS_FILE for each in place.iterdir())
