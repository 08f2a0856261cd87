"""Recording: writes a heap's events, labels and origin to a folder while the heap works."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from bfcviz._context_manager import Closing
from bfcviz.errors import FileError, system_error_cause
from bfcviz.events.event_file import EventFile
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import KnownGaps, Origin, Pool, RecordedFailure, Status
from bfcviz.events.storage.files import append
from bfcviz.events.storage.folder import (
    BLOCKS_FILE,
    EVENTS_FILE,
    LABELS_FILE,
    THREADS_FILE,
    claim_folder,
    remove_files,
    write_origin,
)
from bfcviz.events.thread_names import name_thread, names_of_threads

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
        self._change_origin(reasons=gaps.reasons, details={**self._origin.details, **gaps.to_details()})

    def add_reason(self, reason: str) -> None:
        """Say in the origin that something was lost during the recording; it then ends as degraded."""
        self._change_origin(reasons=(*self._origin.reasons, reason))

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
            self._change_origin(pools=tuple(pools))

    def add_failure(self, failure: RecordedFailure) -> None:
        """Say in the origin what is known of a failed request beside its event; of the first 1,000."""
        found = self._origin.details.get("failures", [])
        if isinstance(found, list) and len(found) < _MOST_FAILURES and not self._lock.closed:
            self._change_origin(details={**self._origin.details, "failures": [*found, failure.to_json()]})

    def add_detail(self, name: str, value: object) -> None:
        """Keep a further fact about the run, a JSON value; `close` writes it."""
        self._origin = replace(self._origin, details={**self._origin.details, name: value})

    def add_threads(self, names: Mapping[str, str]) -> None:
        """Keep the names of threads by number, for readers from now on; a disk that is full loses them."""
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

    def _count(self) -> int | None:
        """How many events there are; None: what a drain freed of a truncated file is not known here."""
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
