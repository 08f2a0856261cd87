"""The memory that a log writes to, a window of records, in plain Python; log_memory.h is the same in C.

Used when bfcviz runs uncompiled. Internal to `events`.
"""
# ruff: noqa: D103  the comments are in log_memory.h

import errno
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from bfcviz.events.event_record import KIND_OFFSET, RECORD, Event

SLOT = 16_384
"""Records of a slot of the file; see `event_file`."""
MAPPED_SLOTS = 64
"""Slots that are used again, 64 MiB: a drain frees 16 at once while the log fills others."""

Window = Any
"""Consecutive event records: a ctypes array or a `FileWindow` here, a C pointer when compiled."""


def new_window(num_bytes: int) -> Window:
    return (Event * (num_bytes // RECORD))()


def no_window() -> Window:
    return None


def is_no_window(window: Window) -> bool:
    """Whether there is no window of a log's memory."""
    return window is None


class FileWindow:
    """Records of a log's file, written by system calls: a mapping of a truncated file would end the process."""

    def __init__(self, fd: int, offset: int) -> None:
        self.fd = fd
        self.offset = offset
        self.cut = False

    def write(self, index: int, record: Event) -> None:
        """Write a record of a log, unless the file became shorter: the write would leave a hole."""
        place = self.offset + index * RECORD
        try:
            if os.fstat(self.fd).st_size < place + RECORD:
                self.cut = True
            else:
                os.pwrite(self.fd, record, place)
        except OSError:
            self.cut = True


def write_record(window: Window, index: int, *fields: int) -> None:
    """Write a record of a window of a log's memory; its fields in their order."""
    record = Event(*fields)
    if isinstance(window, FileWindow):
        window.write(index, record)
    else:
        window[index] = record


def copy_records(into: Any, ring: Window, first: int, count: int) -> None:
    """Copy records [first, first + count) of a ring that a log writes to into memory."""
    begin, size = first * RECORD, count * RECORD
    memoryview(into)[:size] = memoryview(ring).cast("B")[begin : begin + size]


_errors = threading.local()


def map_slots(fd: int) -> Window:  # noqa: ARG001
    """No mapping of a log's first slots in Python: a file is written by system calls."""
    return None


def unmap_slots(slots: Window) -> None:
    """Unmap nothing of a log in Python."""


def is_in_slots(slots: Window, window: Window) -> bool:  # noqa: ARG001
    """Whether a window of a log's memory is part of the mapping of slots."""
    return False


def free_slot(slots: Window, fd: int, extent: int) -> int:  # noqa: ARG001  C looks at the mapping
    for place in range(0, min(extent, MAPPED_SLOTS * SLOT), SLOT):
        if os.pread(fd, 1, place * RECORD + KIND_OFFSET) == b"\0":
            return place
    return extent


def map_window(slots: Window, fd: int, place: int, records: int) -> Window:  # noqa: ARG001
    offset, num_bytes = place * RECORD, records * RECORD
    try:
        if sys.platform == "linux":
            os.posix_fallocate(fd, offset, num_bytes)
        else:
            os.truncate(fd, offset + num_bytes)
    except OSError as error:
        _errors.last = error.errno
        return None
    return FileWindow(fd, offset)


def unmap_window(window: Window, num_bytes: int) -> None:
    """Leave the memory of a log's window to Python, which frees it with its last reference."""


def is_cut(window: Window) -> bool:
    """Whether the file of a log became shorter than the window of its memory."""
    return isinstance(window, FileWindow) and window.cut


def file_size(fd: int) -> int:
    """The bytes of the file that a log writes to."""
    return os.fstat(fd).st_size


def cut_file(fd: int, num_bytes: int) -> None:
    """Cut the file of a log after so many bytes, to whole records; it never grows."""
    with suppress(OSError):
        os.ftruncate(fd, min(file_size(fd), num_bytes) // RECORD * RECORD)


def close_file(fd: int) -> None:
    """Close the file that a log writes to."""
    os.close(fd)


def last_error() -> int:
    """The errno of the last window of a log's memory that could not be mapped; 0 if there is none."""
    return getattr(_errors, "last", 0)


def is_limit() -> bool:
    """Whether the memory of a log could not be mapped because its file may not be larger."""
    return last_error() == errno.EFBIG


def note_term(path: bytes, count: int) -> bool:  # noqa: ARG001  C reads the count when the signal comes
    """No note of SIGTERM in Python: a handler would run between two instructions of the program."""
    return False


def forget_term(count: int) -> None:
    """Leave SIGTERM to the process that writes a log, as it was."""
