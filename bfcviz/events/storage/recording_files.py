"""The files of a recording's folder: their names, what the origin says, where the events end, and their removal.

::

    origin.json     written first and, when the recording ends, once more with `events`: replaced as a whole
    labels.jsonl    one label a line, written before the first event that names it; locked while recording
    events.bin      [ events: kind != 0, seq = 0, 1, 2 ... | a half-written one | zeros, allocated ahead ]
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.log import EVENTS_FILE as EVENTS_FILE
from bfcviz.events.origin import MAX_ORIGIN_BYTES, Origin, origin_from_json
from bfcviz.events.schema import EVENT
from bfcviz.events.storage.files import open_regular, read_small

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
        if _try_lock(file.fileno()):
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
        if not _try_lock(fd):
            raise FileError(folder, "", "is being recorded to by another process; choose another folder")
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    """Lock an open file; False if another process holds the lock."""
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks: readers cannot detect that the recording is in progress
    return True


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
RECORD = EVENT.itemsize

LAST_LOOK = 4096
"""Events before the end that are checked one by one when a folder is opened."""


def files_of(folder: Path) -> list[Path]:
    """The files of a recording in the folder, in the order of their removal: the origin last."""
    parts = folder.glob(f".{ORIGIN_FILE}.*.partial")  # `replacing` was killed
    names = (folder / name for name in (EVENTS_FILE, LABELS_FILE, ORIGIN_FILE))
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
    return StoredOrigin(origin, _number(path, rest, "events"), _number(path, rest, "labels"))


def _number(path: Path, rest: Mapping[str, object], name: str) -> int | None:
    number = rest.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise FileError(path, name, f"is not a number of {name}")
    return number


def find_end(fd: int, known: int) -> int:
    """The number of events in a file of records, of which the first `known` were read before.

    Valid records are a prefix (see `EventLog`), so a search finds its end in a few reads. The last records are then
    checked one by one, because the valid records of a damaged file may not be a prefix.
    """
    records = os.fstat(fd).st_size // RECORD
    low, step = known, 1
    while low + step <= records and _is_event(fd, low + step - 1):
        low += step
        step *= 2
    high = min(low + step - 1, records)  # records low .. high - 1 are not known yet
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
