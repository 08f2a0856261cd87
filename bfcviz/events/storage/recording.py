"""Recording writes a heap's events, labels and origin to a folder while the heap works; RecordingCopy follows one."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet

from bfcviz._context_manager import Closing
from bfcviz.errors import FileError, system_error_cause
from bfcviz.events.event_file import EventFile
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog, name_thread, names_of_threads
from bfcviz.events.origin import MAX_ORIGIN_BYTES, KnownGaps, Origin, Pool, RecordedFailure, Status
from bfcviz.events.storage.files import (
    PRIVATE_FILE,
    append,
    open_regular,
    read_small,
    reading_file,
)
from bfcviz.events.storage.folder import (
    BLOCKS_FILE,
    EVENTS_FILE,
    LABELS_FILE,
    ORIGIN_FILE,
    RECORD,
    THREADS_FILE,
    claim_folder,
    read_origin,
    remove_files,
    write_origin,
)
from bfcviz.events.storage.label_file import LabelFile

if TYPE_CHECKING:
    from bfcviz.events.trace import Trace

_MOST_FAILURES: Final = 1000  # each one writes the origin again


class Recording(Closing):
    """A recording: a folder that receives events and labels; they can be read even if this process is killed.

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
        text = self._origin.to_json().encode()
        self._lock = claim_folder(self.folder)
        try:
            self.labels.append_to(self._lock)
            write_origin(self.folder, text)
            _UNDER_WAY.add(self)
        except BaseException:
            self.labels.append_to(None)
            self._lock.close()
            remove_files(self.folder)
            raise

    @property
    def log(self) -> EventLog:
        """The log in the recording's folder, created on first use; closed with it."""
        if self._log is None:
            self._log = EventLog(folder=self.folder)
        return self._log

    @property
    def events_path(self) -> Path:
        """The file of the recording's events: for writers that have their own log."""
        return self.folder / EVENTS_FILE

    def declare(self, gaps: KnownGaps) -> None:
        """Say in the recording's origin what its events cannot hold; it then ends as degraded, not complete."""
        self._change_origin(reasons=gaps.reasons, details={**self._origin.details, **gaps.to_details()})

    def add_reason(self, reason: str) -> None:
        """Say in the origin that the recording lost something; it then ends as degraded."""
        self._change_origin(reasons=(*self._origin.reasons, reason))

    def describe(self, number: int, heap: Pool) -> None:
        """Say in the recording's origin what heap is pool `number`: all of it, or what `pools` left open."""
        pools = list(self._origin.pools)
        if number < len(pools):
            said = pools[number]
            name = heap.name if heap.name.startswith(said.name) else said.name  # such as the framework's only
            limit = heap.limit if said.limit is None else said.limit
            pools[number] = Pool(name, limit, said.options or heap.options)
        else:
            pools.append(heap)
        if tuple(pools) != self._origin.pools and not self._lock.closed:
            self._change_origin(pools=tuple(pools))

    def add_failure(self, failure: RecordedFailure) -> None:
        """Say in the recording's origin what is known of a failed request beside its event; the first 1,000."""
        found = self._origin.details.get("failures", [])
        if isinstance(found, list) and len(found) < _MOST_FAILURES and not self._lock.closed:
            self._change_origin(details={**self._origin.details, "failures": [*found, failure.to_json()]})

    def add_detail(self, name: str, value: object) -> None:
        """Keep a further fact about the recorded run, a JSON value; `close` writes it."""
        self._origin = replace(self._origin, details={**self._origin.details, name: value})

    def add_threads(self, names: Mapping[str, str]) -> None:
        """Keep the names of threads in the recording by number, for readers from now on; a full disk loses them."""
        lines = [json.dumps({"thread": int(number), "name": name}) + "\n" for number, name in names.items()]
        if lines and not self._lock.closed:
            with suppress(OSError):
                append(self.folder / THREADS_FILE, "".join(lines).encode())

    def trace(self) -> "Trace":
        """The trace of what was recorded so far, as another process would read it."""
        # A process that records may run in a Python without zstd, which traces need.
        from bfcviz.events.trace import Trace  # noqa: PLC0415

        return Trace.open(self.folder)

    def close(self) -> None:
        """End the recording and mark it as complete. The caller closes a log of its own before.

        Raises:
            FileError: the folder was removed, or its origin cannot be written. The recording has ended anyway.
        """
        if self._lock.closed:
            return
        self.add_threads(names_of_threads())  # those of C++ are known now
        error = 0
        if self._log is not None:
            self._log.close()
            error = self._log.error
        self.labels.append_to(None)
        reasons = [*self._origin.reasons]
        status = Status.DEGRADED if reasons else Status.COMPLETE
        if error:
            status = Status.TRUNCATED
            reasons.append(f"later events were not recorded: {system_error_cause(error)}")
        if self._log is not None and self._log.truncated:
            status, many = Status.TRUNCATED, self._log.head
            reasons.append(f"{EVENTS_FILE} was truncated by another process: some of {many} events are lost")
        if self.labels.error is not None:
            status = Status.DEGRADED
            reasons.append(f"later names were not recorded: {system_error_cause(self.labels.error)}")
        # Without the last heaps that have no event: PyTorch's next stream has a heap ready.
        used = 0 if self._log is None else self._log.used_pools
        pools = self._origin.pools[: max(used, self._declared)]
        origin = replace(self._origin, status=status, reasons=tuple(reasons), pools=pools)
        try:
            if not self._is_there():
                raise FileError(self.folder, "", "was removed, or replaced, during the recording")
            text = origin.to_json(events=self._count(), labels=len(self.labels))
            write_origin(self.folder, text.encode())
        finally:
            self._lock.close()

    def discard(self) -> None:
        """End the recording and remove its files, because the program could not start."""
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

    def _count(self) -> int | None:
        """How many events the recording has; None: what a drain freed of a truncated file is not known."""
        if not self.events_path.exists():
            return 0
        if self._log is not None and self._log.truncated and (self.folder / BLOCKS_FILE).exists():
            return None
        # A drain may have freed the first ones, so those of the own log are not searched for.
        known = 0 if self._log is None or self._log.truncated else self._log.on_disk
        return EventFile(self.events_path).find_end(known)

    def _change_origin(self, **changes: Any) -> None:
        self._origin = replace(self._origin, **changes)
        write_origin(self.folder, self._origin.to_json().encode())


_UNDER_WAY: WeakSet[Recording] = WeakSet()


def recording_of(log: EventLog) -> Recording | None:
    """The recording of this process that a log belongs to."""
    if log.path is None:
        return None
    return next((each for each in list(_UNDER_WAY) if each._log is log), None)  # noqa: SLF001


def name_thread_in_recordings() -> None:
    """Keep the name of this thread for the events of this process, also in the recordings under way."""
    if named := name_thread():
        for recording in list(_UNDER_WAY):
            recording.add_threads(dict([named]))


def add_threads_to_recordings() -> None:
    """Keep the names of all threads that are known in the recordings under way, and that of this one."""
    name_thread()
    for recording in list(_UNDER_WAY):
        recording.add_threads(names_of_threads())


def join_recorded_log(log: EventLog, heap: Pool) -> tuple[int, bool]:
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


def _leave_recordings_to_parent() -> None:
    """In a forked process: the recording belongs to the parent, and must look ended when the parent has ended."""
    for recording in _UNDER_WAY:
        recording.labels.after_fork()
        if recording._log is not None:  # noqa: SLF001
            recording._log.leave_to_parent()  # noqa: SLF001
        recording._lock.close()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_recordings_to_parent)


# ------------------------------------------------------------------------------
# A copy of a recording that grows elsewhere: `read_increment` reads what is new, `RecordingCopy` appends it.
#
# An increment is bytes of the recording's files, so that it can travel in any message. The reader looks at the events
# first and at the labels after them, and the copy writes in the other order: each of its events finds its label.


MOST_EVENTS: Final = 1 << 17
"""Events in an increment: 8 MiB."""


class CopyPosition(NamedTuple):
    """How much of a recording was copied."""

    events: int = 0
    label_bytes: int = 0
    thread_bytes: int = 0


class Increment(NamedTuple):
    """What a recording has beyond a position, for its copy.

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
        """Whether the copy of a recording has ended."""
        return self._labels.closed

    def add(self, increment: Increment) -> None:
        """Append an increment to the copy; one that does not begin where it ends is ignored.

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
        """End the copy; without its last increment it is a recording that did not end cleanly."""
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
    """Write all of `data` at an offset of a recording's copy; once more after an error, over what was written."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, place + len(data) - len(rest))
        rest = rest[written:]
