"""EventLog: heaps write their events into it, 64 bytes each; readers copy them.

::

    in memory   [ ring of `capacity` records, the oldest overwritten ]        readers may be lapped
    on disk     events.bin [ .... written .... | zeros, allocated ahead ]     `event_file` says what is used again

The writer fills a *window* of consecutive records. When the window is full, a ring starts again at its beginning; in a
file the window moves behind its end, or to a slot that a drain has freed: its pages are in memory already, and a record
in them costs a tenth. The file is mapped, so a record survives a SIGKILL of this process as soon as it is written. Its
`kind` byte is cleared first and written last, so a half-written record is never read as an event. Compiled, the
functions that a heap calls here do not need the GIL.

Another process may truncate the file, and a write behind its end would end this process by SIGBUS. A signal handler
(sigbus.h) replaces the lost pages by memory; the log detects that at the end of the window, and continues in a ring.

A log has one writer at a time: a heap, under `lock`, which is also the lock of the heap. So a log can be closed while
its heap works. Several heaps of one recording share a log, and so a lock; each has a number, its pool.
"""

# ruff: noqa: D102  schema describes the fields

import os
import threading
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.errors import BfcvizError, Lapped
from bfcviz.events import event_record, log_memory
from bfcviz.events.event_file import EventFile
from bfcviz.events.schema import EVENT, MAX_POOLS, Events

EVENTS_FILE = "events.bin"


class EventLog:
    """The event log of one or more heaps, in a ring or in a file.

    Args:
        capacity: records in the ring, or allocated ahead in the file; a multiple of 64. The default is 1 MiB, which
            stays in the processor's cache beside the heap.
        folder: an existing folder; the log is then a new `events.bin` in it, which grows where nothing is freed.

    Attributes:
        error: 0, or the errno that ended recording to disk (such as ENOSPC). The heap continues, later events go to a
            ring in memory, and `on_disk` stays below `written`: `Recording.close` reports it.
        truncated: whether another process cut the file short. Later events go to a ring; some before it are lost.
        pools: heaps that have joined it.
        used_pools: the number of the last heap with an event, plus 1.
    """

    def __init__(self, capacity: int = 16_384, folder: str | os.PathLike[str] | None = None) -> None:
        self.on_file = False
        self.lock = native.spinlock_new()
        self.path: Path | None = None
        if capacity < 64 or capacity % 64:
            raise BfcvizError(
                f"a log of {capacity} records was requested; give a multiple of 64, at least 64"
            )
        self.capacity = capacity
        self.pool = 0
        self.pools = 0
        self.used_pools = 0
        self.written = 0
        self.on_disk = 0
        self.base = 0
        self.error = 0
        self.truncated = False
        self.time = 0
        self.thread = 0
        self.replaying = False
        self.window = log_memory.no_window()
        # Of the file: its first slots, mapped at once; the record where the window begins; the records that all windows
        # so far take up.
        self.slots = log_memory.no_window()
        self.place = 0
        self.extent = 0
        self.has_ring = False
        self.clock = native.clock_new()
        if folder is None:
            self.use_ring()
            if log_memory.is_no_window(self.window):
                raise MemoryError(f"no memory for a log of {capacity} records")
            return
        self.path = Path(folder) / EVENTS_FILE
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.on_file = True
        self.end = 0  # the first event maps the first window

    def __del__(self) -> None:
        if self.on_file:
            self.close()

    def __dealloc__(self) -> None:
        # Compiled, this closes a forgotten file: the limited C API does not call __del__.
        log_memory.forget_term(self.written)  # its handler would read freed memory
        native.clock_delete(self.clock)
        native.spinlock_delete(self.lock)
        if self.on_file:
            extent = self.used_extent()
            self.unmap()
            log_memory.cut_file(self.fd, extent * event_record.RECORD)
            log_memory.close_file(self.fd)
        if self.has_ring:
            log_memory.unmap_window(self.window, self.capacity * event_record.RECORD)

    def join(self) -> int:
        """The pool of one more heap that writes to this log.

        Raises:
            BfcvizError: there are 256 heaps already.
        """
        if self.pools == MAX_POOLS:
            raise BfcvizError(f"a log has at most {MAX_POOLS} heaps: give this one a log of its own")
        self.pools += 1
        return self.pools - 1

    def use_ring(self) -> None:
        """Let the log use a ring in memory as window, from record number `written` on. It stays in use."""
        # No Python object, and no array: the heap whose lock is held may serve NumPy.
        self.window = log_memory.new_window(self.capacity * event_record.RECORD)
        self.has_ring = True
        self.base = self.written
        self.end = self.written + self.capacity

    # -- for the writer: called by the heap; the first takes its lock, the others need it ---------------------

    def lock_and_tick(self, pool: int) -> None:
        """Lock the log, and set pool, time and thread of the next events; a replay sets the recorded ones."""
        ticks = native.spin_lock_timed(self.lock)
        self.pool = pool
        if not self.replaying:
            # Not before the last one: that of an observer may be ahead of the clock.
            self.time = native.clock_at(self.clock, ticks, self.time)
            self.thread = native.thread_number()

    def at(self, time: int, thread: int) -> None:
        """The time and thread of the operation that is replayed into the log."""
        self.time = time
        self.thread = thread

    def roll(self) -> None:
        """Make room in the log for the next record: the window is full."""
        native.clock_anchor(self.clock)
        if not self.on_file:
            if log_memory.is_no_window(self.window):
                self.use_ring()
            else:
                self.base = self.end
                self.end += self.capacity
            return
        if log_memory.is_no_window(self.slots):
            self.slots = log_memory.map_slots(self.fd)
        self.truncated = self.is_short()
        self.unmap_window()
        self.place += self.end - self.base
        if self.written % log_memory.SLOT == 0:
            self.place = log_memory.free_slot(self.slots, self.fd, self.extent)
        records = min(self.capacity, log_memory.SLOT - self.written % log_memory.SLOT)
        if not self.truncated:
            self.window = log_memory.map_window(self.slots, self.fd, self.place, records)
            # Up to a limit of file sizes, all is used. A full disk keeps the rest: the origin is yet to be written.
            while log_memory.is_no_window(self.window) and log_memory.is_limit() and records > 64:
                records = records // 128 * 64
                self.window = log_memory.map_window(self.slots, self.fd, self.place, records)
        self.base = self.written
        self.end = self.written + records
        if not log_memory.is_no_window(self.window):
            self.extent = max(self.extent, self.place + records)
            return
        self.error = 0 if self.truncated else log_memory.last_error()
        self.unmap()
        log_memory.cut_file(self.fd, self.extent * event_record.RECORD)  # the space allocated for a window
        self.leave_file()
        self.use_ring()

    def used_extent(self) -> int:
        """Records of the log's file up to the last one in use: its last window may be full in part only."""
        if self.place + (self.end - self.base) < self.extent:
            return self.extent
        return self.place + (self.written - self.base)

    def is_short(self) -> bool:
        """Whether another process made the log's file shorter than what was written."""
        if log_memory.is_cut(self.window) or log_memory.is_cut(self.slots):
            return True
        return log_memory.file_size(self.fd) < self.used_extent() * event_record.RECORD

    def unmap_window(self) -> None:
        """End the log's access to the window's memory; slots that were mapped at once stay mapped."""
        if not log_memory.is_in_slots(self.slots, self.window):
            log_memory.unmap_window(self.window, (self.end - self.base) * event_record.RECORD)
        self.window = log_memory.no_window()

    def unmap(self) -> None:
        """End the log's access to all of the file's memory."""
        self.unmap_window()
        log_memory.unmap_slots(self.slots)
        self.slots = log_memory.no_window()

    def leave_file(self) -> None:
        """Write no more records of the log to the file. The next record starts a ring in memory."""
        log_memory.close_file(self.fd)
        self.detach()

    def detach(self) -> None:
        """Let the log forget its file, which is not mapped any more."""
        self.on_file = False
        self.on_disk = self.written
        self.end = self.written

    def write(
        self, kind: int, chunk: int, region: int, address: int, size: int, requested: int, other: int,
        label: int, thread: int, stream: int, bin: int, flags: int,
    ) -> None:  # fmt: skip
        """Write the next record of the log."""
        if self.written == self.end:
            self.roll()
        log_memory.write_record(
            self.window, self.written - self.base, self.written, self.time, address, size, requested, chunk, other,
            label, thread, stream, region, self.thread, kind, bin, flags, self.pool,
        )  # fmt: skip
        self.written += 1

    def note_pool(self) -> None:
        """Note in the log that the pool of this operation has an event."""
        if self.pool >= self.used_pools:
            self.used_pools = self.pool + 1

    # One method per kind; the table in `schema` says what each field means.

    def extend(
        self, chunk: int, region: int, address: int, size: int, requested: int, bin: int, flags: int
    ) -> None:
        self.note_pool()  # a heap without a region has no other events
        self.write(
            event_record.EXTEND, chunk, region, address, size, requested, 0, 0, self.thread, 0, bin, flags
        )

    def split(
        self, chunk: int, region: int, other: int, address: int, size: int, bin: int, flags: int
    ) -> None:
        self.write(event_record.SPLIT, chunk, region, address, size, 0, other, 0, self.thread, 0, bin, flags)

    def allocate(
        self, chunk: int, region: int, address: int, size: int, requested: int,
        allocation_id: int, label: int, stream: int, bin: int,
    ) -> None:  # fmt: skip
        self.write(
            event_record.ALLOCATE, chunk, region, address, size, requested, allocation_id & native.LOW_32,
            label, self.thread, stream, bin, 0,
        )  # fmt: skip

    def free(
        self, chunk: int, region: int, address: int, size: int, requested: int,
        born: int, label: int, thread: int, stream: int, bin: int, flags: int,
    ) -> None:  # fmt: skip
        self.write(
            event_record.FREE, chunk, region, address, size, requested, born & native.LOW_32,
            label, thread, stream, bin, flags,
        )  # fmt: skip

    def merge(self, chunk: int, region: int, other: int, address: int, size: int, bin: int) -> None:
        self.write(event_record.MERGE, chunk, region, address, size, 0, other, 0, self.thread, 0, bin, 0)

    def release(self, chunk: int, region: int, address: int, size: int, bin: int) -> None:
        self.write(event_record.RELEASE, chunk, region, address, size, 0, 0, 0, self.thread, 0, bin, 0)

    def oom(self, requested: int, free_bytes: int, largest: int, label: int, stream: int, bin: int) -> None:
        self.note_pool()
        self.write(
            event_record.OOM, 0, 0, free_bytes, largest, requested, 0, label, self.thread, stream, bin, 0
        )

    def mark(self, label: int, value: int) -> None:
        self.note_pool()
        self.write(event_record.MARK, 0, 0, 0, value, 0, 0, label, self.thread, 0, -1, 0)

    # -- for writers in Python that observe another allocator -----------------------------------------------------

    def begin_operation(self, time: int, thread: int = -1) -> int:
        """Set time and thread of the events that `put` writes next: `time` in ns, never decreasing; below 0: now.

        Returns the number of the thread: `thread`, or if that is below 0 the number of this thread.
        """
        if time < 0:
            self.lock_and_tick(0)
        else:
            native.spin_lock(self.lock)
            self.time = time if time > self.time else self.time
            self.thread = native.thread_number()
        if thread >= 0:
            self.thread = thread
        thread = self.thread
        native.spin_unlock(self.lock)
        return thread

    def put(
        self, kind: int, chunk: int, region: int, address: int, size: int, requested: int, other: int,
        label: int, thread: int, stream: int, bin: int, flags: int, pool: int = 0, by: int = -1,
    ) -> int:  # fmt: skip
        """Write one event to the log; returns its `seq`. `by`: the thread that acts; below 0: of the last operation."""
        native.spin_lock(self.lock)
        self.pool = pool
        if by >= 0:  # another heap may have begun an operation meanwhile
            self.thread = by
        self.note_pool()
        seq = self.written
        self.write(kind, chunk, region, address, size, requested, other, label, thread, stream, bin, flags)
        native.spin_unlock(self.lock)
        return seq

    # -- for readers -------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """Events written to the log so far."""
        native.spin_lock(self.lock)
        written = self.written
        native.spin_unlock(self.lock)
        return written

    @property
    def oldest(self) -> int:
        """Number of the oldest event that can be read from the log."""
        native.spin_lock(self.lock)
        if self.has_ring and self.written - self.on_disk >= self.capacity:
            first = self.written - self.capacity + 1  # the slot before it may be half overwritten
        else:
            first = self.on_disk if self.truncated else 0
        native.spin_unlock(self.lock)
        return first

    def copy(self, start: int, stop: int) -> Events:
        """A copy of the log's events [start, stop); see `copy_into`."""
        events = np.empty(max(stop - start, 0), EVENT)
        return events[: self.copy_into(events, start)]

    def copy_into(self, into: Events, start: int) -> int:
        """Copy the log's events from `start` on into the array `into`, until it is full.

        The caller must check `oldest` afterwards: the writer may have overwritten the ring during the copy.

        Returns:
            How many were copied: fewer than requested if the file was truncated.
        """
        native.spin_lock(self.lock)
        has_ring, on_disk = self.has_ring, self.on_disk
        native.spin_unlock(self.lock)
        in_file = into[: max(on_disk - start, 0)] if has_ring else into
        copied = self._copy_from_file(in_file, start)
        if copied == len(into) or copied < len(in_file):
            return copied
        rest = into[copied:]
        first = (start + copied - on_disk) % self.capacity
        while len(rest):  # more than once around where more is asked for than the ring keeps
            lap = min(self.capacity - first, len(rest))
            log_memory.copy_records(rest.view(np.uint8), self.window, first, lap)
            rest, first = rest[lap:], 0
        return len(into)

    def _copy_from_file(self, into: Events, start: int) -> int:
        """Copy the log's events that are in the file; a drain may have freed the first ones."""
        if len(into) == 0:
            return 0
        copied, is_lost = 0, False
        try:
            file = EventFile(Path(str(self.path)))
            native.spin_lock(self.lock)
            window, slot = self.base // log_memory.SLOT, self.place // log_memory.SLOT
            native.spin_unlock(self.lock)
            if start // log_memory.SLOT == window:
                file.note_window(window, slot)  # most callers want the newest events
            else:
                file.find_windows()
            copied = file.copy_into(into, start)
        except (BfcvizError, OSError):  # the folder was removed
            is_lost = True
        if is_lost or (copied < len(into) and self._became_short()):
            self._end_file(lost=True)  # all events of the file are lost: `oldest` says so
        return copied

    def _became_short(self) -> bool:
        native.spin_lock(self.lock)
        is_short = self.on_file and self.is_short()
        native.spin_unlock(self.lock)
        return bool(is_short)

    def close(self) -> None:
        """End the log's file after the last event; later events go to a ring. In memory it needs no closing."""
        self._end_file(lost=False)

    def _end_file(self, lost: bool) -> None:
        native.spin_lock(self.lock)
        was_on_file = self.on_file
        if was_on_file:
            self.truncated = lost or self.is_short()
            extent = self.used_extent()
            self.unmap()
            self.detach()
        native.spin_unlock(self.lock)
        if was_on_file:
            log_memory.cut_file(self.fd, extent * event_record.RECORD)
            log_memory.close_file(self.fd)
        if lost:
            self.truncated = True

    def note_term(self, path: bytes) -> bool:
        """Write a file with the number of events when SIGTERM ends this process, if that has its default action.

        Of one log at a time, the last one, until its `forget_term`; see sigterm.h. Returns whether it will.
        """
        return bool(log_memory.note_term(path, self.written))

    def forget_term(self) -> None:
        """Note no SIGTERM for this log any more, as when it is freed; another log that is noted stays noted."""
        log_memory.forget_term(self.written)

    def leave_to_parent(self) -> None:
        """Let the log write to a ring instead of the file, in a forked process: the file is the parent's."""
        if not self.on_file:
            return
        self.unmap()
        self.leave_file()


# ------------------------------------------------------------------------------
# Reader: reads an EventLog. A log can have any number of readers, each with its own position.


class Reader:
    """Reads a log's events in order, each once.

    Args:
        log: the log to follow.
        start: number of the first event to read; by default the oldest there is.

    Attributes:
        position: number of the next event it will read.
    """

    def __init__(self, log: EventLog, start: int | None = None) -> None:
        self._log = log
        self.position = log.oldest if start is None else start

    def read(self, max_events: int = 65_536) -> Events:
        """The next events of the log, at most `max_events`, as a copy; empty if there are no new ones.

        Raises:
            Lapped: the writer overtook this reader; `resync()` continues after the gap.
        """
        events = np.empty(max(min(self._log.head - self.position, max_events), 0), EVENT)
        return events[: self.read_into(events)]

    def read_into(self, events: Events) -> int:
        """Copy the log's next events over the rows of `events`; returns how many. Raises as `read`.

        The content of the other rows is undefined; if it raises, that of all rows.
        """
        count = max(min(self._log.head - self.position, len(events)), 0)
        self._raise_if_lapped()
        copied = self._log.copy_into(events[:count], self.position)
        self._raise_if_lapped()  # the writer may have overwritten the rows during the copy
        self.position += copied
        return copied

    def resync(self) -> int:
        """Continue at the oldest event that the log keeps; returns how many were missed."""
        missed = max(self._log.oldest - self.position, 0)
        self.position += missed
        return missed

    def _raise_if_lapped(self) -> None:
        oldest = self._log.oldest
        if oldest > self.position:
            raise Lapped(oldest - self.position, oldest)


# ------------------------------------------------------------------------------
# The names of this process's threads, by the numbers that events carry; these are those of all its logs.
#
# Events cannot hold a name, and most of them are written without the GIL. So the thread that begins to watch a
# framework is named here, and each thread that `threading` starts while one is watched, before its own code runs.
# Others, such as those of C++, have the name that the system had for them at their first event (Linux, compiled).


_thread_names: dict[str, str] = {}


@cache
def _thread_numbers() -> EventLog:
    """A log without events: only a log knows the number that the events of a thread have."""
    return EventLog(64)


def number_of_thread() -> int:
    """The number that the events of this thread have in a log."""
    return _thread_numbers().begin_operation(-1)


def name_thread() -> tuple[str, str] | None:
    """Keep the name of this thread for logs; returns its number and name, None where the number has one."""
    number, name = str(number_of_thread()), threading.current_thread().name
    if number in _thread_names:
        return None
    _thread_names[number] = name
    return number, name


def names_of_threads() -> dict[str, str]:
    """The names of threads in logs so far, by number: a copy."""
    names = dict(_thread_names)
    for i in range(1, native.named_threads()):
        number = str(i)
        if number not in names:
            name: bytes = native.thread_name(i)
            text = name.decode("utf-8", "replace")
            if text:  # of the name itself Cython would ask whether its pointer is null
                names[number] = text
    return names


# ------------------------------------------------------------------------------
# The highest of many labels, found without releasing the interpreter's lock.
#
# NumPy releases the lock for more than 500 numbers. A renderer beside a busy thread then waits 5 ms to get it back,
# but the search takes only some microseconds.


def highest_label(labels: NDArray[np.uint32]) -> int:
    """The highest label of events in a log, of `labels`, shape (n,); -1 if there are none."""
    found = -1
    for i in range(len(labels)):
        found = max(found, labels[i])
    return found
