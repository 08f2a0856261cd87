"""Recording: a folder that the events and labels of a heap are written to; its files and their removal."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

import numpy as np

from bfcviz._context_manager import Closing
from bfcviz.errors import FileError, FolderTaken
from bfcviz.events.labels import Labels
from bfcviz.events.log import EVENTS_FILE as EVENTS_FILE
from bfcviz.events.log import EventLog
from bfcviz.events.origin import (
    MAX_ORIGIN_BYTES,
    KnownGaps,
    Origin,
    Pool,
    RecordedFailure,
    Status,
    origin_from_json,
)
from bfcviz.events.schema import EVENT
from bfcviz.events.storage.files import (
    EARLIER,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    open_regular,
    read_small,
    replacing,
    why,
)

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
    names = (folder / name for name in (EVENTS_FILE, BLOCKS_FILE, LABELS_FILE, ORIGIN_FILE))
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
    checked one by one, because the valid records of a damaged file may not be a prefix. A drain makes a hole of the
    first ones: these are counted, too.
    """
    records = os.fstat(fd).st_size // RECORD
    known = max(known, min(_end_of_hole(fd), records))
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


def _end_of_hole(fd: int) -> int:
    """The first record that is not in a hole at the beginning of the file."""
    try:
        return -(-os.lseek(fd, 0, os.SEEK_DATA) // RECORD)
    except (OSError, AttributeError):  # no data at all; or a system without holes
        return 0


def _is_event(fd: int, number: int) -> bool:
    data = os.pread(fd, RECORD, number * RECORD)
    if len(data) < RECORD:
        return False  # the file became shorter
    record = np.frombuffer(data, EVENT)[0]
    return bool(record["kind"] != 0 and record["seq"] == number)


# ------------------------------------------------------------------------------
# Recording: writes a heap's events, labels and origin to a folder while the heap works.


if TYPE_CHECKING:
    from bfcviz.events.trace import Trace

_MOST_FAILURES: Final = 1000  # each one writes the origin again


class Recording(Closing):
    """A folder that receives events and labels; they can be read even if this process is killed.

    Only the user who records can read a new folder and its files.

    ::

        with Recording("run1", [Pool("gpu", limit)]) as recording:
            heap = BFCAllocator(..., log=recording.log, labels=recording.labels)

    Args:
        folder: a new or empty folder.
        pools: the recorded heaps.
        labels: an existing table to continue; a new one by default.
        details: further facts about the run, as JSON values.

    Raises:
        FileError: the folder is not empty, or cannot be created.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        pools: Sequence[Pool] = (Pool("bfc"),),
        *,
        labels: Labels | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.labels = Labels() if labels is None else labels
        self._declared = len(pools)
        self._origin = Origin(
            source=self.folder.name, status=Status.RECORDING, pools=tuple(pools), details=dict(details or {})
        )
        self._log: EventLog | None = None
        text = self._origin.to_json()
        self._lock = claim_folder(self.folder)
        try:
            self.labels.append_to(self._lock)
            self._write_origin(text)
            _UNDER_WAY.add(self)
        except BaseException:
            self.labels.append_to(None)
            self._lock.close()
            remove_files(self.folder)
            raise

    @property
    def log(self) -> EventLog:
        """The log in this folder, created on first use; closed with the recording."""
        if self._log is None:
            self._log = EventLog(folder=self.folder)
        return self._log

    @property
    def events_path(self) -> Path:
        """The file of the events: for writers that have their own log."""
        return self.folder / EVENTS_FILE

    def declare(self, gaps: KnownGaps) -> None:
        """Say in the origin what the events cannot hold; the recording then ends as degraded, not as complete."""
        details = {**self._origin.details, **gaps.to_details()}
        self._origin = replace(self._origin, reasons=gaps.reasons, details=details)
        self._write_origin(self._origin.to_json())

    def add_reason(self, reason: str) -> None:
        """Say in the origin that something was lost during the recording; it then ends as degraded."""
        self._origin = replace(self._origin, reasons=(*self._origin.reasons, reason))
        self._write_origin(self._origin.to_json())

    def describe(self, number: int, heap: Pool) -> None:
        """Say in the origin what heap writes the events of pool `number`: all of it, or what `pools` left open."""
        pools = list(self._origin.pools)
        if number < len(pools):
            said = pools[number]
            name = heap.name if heap.name.startswith(said.name) else said.name  # such as the framework's only
            limit = heap.limit if said.limit is None else said.limit
            pools[number] = Pool(name, limit, said.options or heap.options)
        else:
            pools.append(heap)
        if tuple(pools) != self._origin.pools and not self._lock.closed:
            self._origin = replace(self._origin, pools=tuple(pools))
            self._write_origin(self._origin.to_json())

    def add_failure(self, failure: RecordedFailure) -> None:
        """Say in the origin what is known of a failed request beside its event; of the first 1,000."""
        found = self._origin.details.get("failures", [])
        if isinstance(found, list) and len(found) < _MOST_FAILURES and not self._lock.closed:
            details = {**self._origin.details, "failures": [*found, failure.to_json()]}
            self._origin = replace(self._origin, details=details)
            self._write_origin(self._origin.to_json())

    def add_detail(self, name: str, value: object) -> None:
        """Keep a further fact about the run, a JSON value; `close` writes it."""
        self._origin = replace(self._origin, details={**self._origin.details, name: value})

    def trace(self) -> "Trace":
        """The trace of what was recorded so far, as another process would read it."""
        from bfcviz.events.trace import Trace  # noqa: PLC0415  imports pyarrow, which a recorder does not need

        return Trace.open(self.folder)

    def close(self) -> None:
        """End the recording and mark it as complete. The caller closes a log of its own before.

        Raises:
            FileError: the folder was removed, or its origin cannot be written. The recording has ended anyway.
        """
        if self._lock.closed:
            return
        error = 0
        if self._log is not None:
            self._log.close()
            error = self._log.error
        self.labels.append_to(None)
        origin = self._without_unused(self._origin)
        origin = replace(origin, status=Status.DEGRADED if origin.reasons else Status.COMPLETE)
        if error:
            reason = f"later events were not recorded: {why(error)}"
            origin = replace(origin, status=Status.TRUNCATED, reasons=(*origin.reasons, reason))
        if self._log is not None and self._log.truncated:
            reason = (
                f"{EVENTS_FILE} was truncated by another process: some of {self._log.head} events are lost"
            )
            origin = replace(origin, status=Status.TRUNCATED, reasons=(*origin.reasons, reason))
        if self.labels.error is not None:
            reason = f"later names were not recorded: {why(self.labels.error)}"
            origin = replace(origin, status=Status.DEGRADED, reasons=(*origin.reasons, reason))
        try:
            if not self._is_there():
                raise FileError(self.folder, "", "was removed, or replaced, during the recording")
            self._write_origin(origin.to_json(events=self._count(), labels=len(self.labels)))
        finally:
            self._lock.close()

    def _without_unused(self, origin: Origin) -> Origin:
        """The origin without the last heaps that have no event: PyTorch's next stream has a heap ready."""
        used = 0 if self._log is None else self._log.used_pools
        return replace(origin, pools=origin.pools[: max(used, self._declared)])

    def discard(self) -> None:
        """End the recording and remove its files, because the recorded program could not start."""
        with suppress(FileError):
            self.close()
        remove_files(self.folder)
        with suppress(OSError):  # an existing folder may not be removable, or may hold more
            self.folder.rmdir()

    def _is_there(self) -> bool:
        """Whether the folder still holds this recording; another one may have replaced it."""
        try:
            found = (self.folder / LABELS_FILE).stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._lock.fileno()))

    def _count(self) -> int:
        if not self.events_path.exists():
            return 0
        with open_regular(self.events_path) as file:
            return find_end(file.fileno(), 0)

    def _write_origin(self, text: str) -> None:
        with replacing(self.folder / ORIGIN_FILE, overwrite=True, mode=PRIVATE_FILE) as made:
            made.write_text(text, "utf-8")


_UNDER_WAY: WeakSet[Recording] = WeakSet()


def recording_of(log: EventLog) -> Recording | None:
    """The recording of this process that a log belongs to."""
    if log.path is None:
        return None
    return next((each for each in list(_UNDER_WAY) if each._log is log), None)  # noqa: SLF001


def join_log(log: EventLog, heap: Pool) -> tuple[int, bool]:
    """Let one more heap write to a log; the origin of its recording names the heap before the heap has an event.

    Returns:
        Its pool, and whether the log belongs to a recording, which closes it.

    Raises:
        BfcvizError: the log has 256 heaps already.
        FileError: the origin cannot be written.
    """
    recording = recording_of(log)
    pool = log.join()
    if recording is not None:
        recording.describe(pool, heap)
    return pool, recording is not None


def _leave_to_parent() -> None:
    """In a forked process: the recording belongs to the parent, and must look ended when the parent has ended."""
    for recording in _UNDER_WAY:
        recording.labels.after_fork()
        if recording._log is not None:  # noqa: SLF001
            recording._log.leave_to_parent()  # noqa: SLF001
        recording._lock.close()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


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
