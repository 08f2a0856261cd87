"""A copy of a recording that grows elsewhere: `read_increment` reads what is new, `RecordingCopy` appends it.

An increment is bytes of the recording's files, so that it can travel in any message. The reader looks at the events
first and at the labels after them, and the copy writes in the other order: each of its events finds its label.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz._context_manager import Closing
from bfcviz.events.event_file import EventFile
from bfcviz.events.origin import MAX_ORIGIN_BYTES
from bfcviz.events.storage.files import (
    PRIVATE_FILE,
    append,
    open_regular,
    read_small,
    reading_file,
)
from bfcviz.events.storage.folder import (
    EVENTS_FILE,
    LABELS_FILE,
    ORIGIN_FILE,
    RECORD,
    THREADS_FILE,
    claim_folder,
    read_origin,
    write_origin,
)
from bfcviz.events.storage.label_file import LabelFile

MOST_EVENTS: Final = 1 << 17
"""Events in an increment: 8 MiB."""


class CopyPosition(NamedTuple):
    """How much of a recording was copied."""

    events: int = 0
    label_bytes: int = 0
    thread_bytes: int = 0


class Increment(NamedTuple):
    """What a recording has beyond a position.

    Attributes:
        start: where it begins.
        events: whole records.
        labels, threads: whole lines.
        origin: the whole file, as it is now.
        is_last: whether the recording has ended, and this is its end.
        has_more: whether more events were there than fit into an increment.
    """

    start: CopyPosition
    events: bytes
    labels: bytes
    threads: bytes
    origin: bytes
    is_last: bool
    has_more: bool


def read_increment(
    folder: Path, start: CopyPosition, most: int = MOST_EVENTS, *, free: bool = False
) -> Increment:
    """What the recording in `folder` has beyond `start`.

    Args:
        folder: of the recording.
        start: what the copy has.
        most: events of the increment.
        free: let the recording write again to the space of the events before `start`, which no other process reads.

    Raises:
        FileError: the folder is not a recording, or cannot be read.
    """
    is_over = read_origin(folder).events is not None  # looked at first: then the files below are final
    origin = read_small(folder / ORIGIN_FILE, MAX_ORIGIN_BYTES)
    events, has_more = _increment_events(folder / EVENTS_FILE, start.events, most, free=free)
    labels = _whole_lines(b"".join(LabelFile(folder).read(start.label_bytes)))
    threads = b""
    if (folder / THREADS_FILE).exists():
        threads = _increment_lines(folder / THREADS_FILE, start.thread_bytes)
    return Increment(start, events, labels, threads, origin, is_over and not has_more, has_more)


def _increment_events(path: Path, start: int, most: int, *, free: bool) -> tuple[bytes, bool]:
    if not path.exists():
        return b"", False
    with reading_file(path):
        file = EventFile(path)
        end = file.find_end(start)
        stop = min(end, start + most)
        if free:
            file.free(start)
        return file.read(start, stop).tobytes(), stop < end


def _increment_lines(path: Path, start: int) -> bytes:
    with open_regular(path) as file, reading_file(path):
        file.seek(start)
        return _whole_lines(file.readall())


def _whole_lines(new: bytes) -> bytes:
    return new[: new.rfind(b"\n") + 1]


class RecordingCopy(Closing):
    """A copy of a recording, in a folder of its own; `bfcviz.open` reads it at any time, as it reads the original.

    It looks like a recording in progress until its last increment has come, or until `close`.

    Args:
        folder: empty.

    Raises:
        FileError: the folder is not empty, or cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.position = CopyPosition()
        self._origin = b""
        self._labels = claim_folder(folder)  # and locked
        self._events = os.open(
            folder / EVENTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE
        )

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._labels.closed

    def add(self, increment: Increment) -> None:
        """Append an increment; one that does not begin where this copy ends is ignored.

        Raises:
            FileError: the folder was removed.
            OSError: the disk is full.
        """
        if self.closed or increment.start != self.position:
            return
        events, label_bytes, thread_bytes = self.position
        if increment.threads:
            append(self.folder / THREADS_FILE, increment.threads)
        _write_to_copy(self._labels.fileno(), increment.labels, label_bytes)
        if increment.origin != self._origin and not increment.is_last:
            self._write_origin(increment.origin)
        _write_to_copy(self._events, increment.events, events * RECORD)
        self.position = CopyPosition(
            events + len(increment.events) // RECORD,
            label_bytes + len(increment.labels),
            thread_bytes + len(increment.threads),
        )
        if increment.is_last:
            self._write_origin(increment.origin)
            self.close()

    def close(self) -> None:
        """End it; without its last increment it is a recording that did not end cleanly."""
        if self.closed:
            return
        os.close(self._events)
        self._labels.close()
        if not self._origin:  # nothing ever came
            for name in (EVENTS_FILE, LABELS_FILE):
                with suppress(OSError):
                    (self.folder / name).unlink()

    def _write_origin(self, text: bytes) -> None:
        write_origin(self.folder, text)
        self._origin = text


def _write_to_copy(fd: int, data: bytes, place: int) -> None:
    """Write all of `data` at an offset; once more after an error, it replaces what was written before."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, place + len(data) - len(rest))
        rest = rest[written:]
