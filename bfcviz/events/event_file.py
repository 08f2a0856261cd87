"""EventFile: the file of a log, read while the log writes it; where each event lies, and what was freed.

::

    events.bin   [ window 5 | window 6 | free | window 3 | window 4 ... ]      slots of 16,384 records, 1 MiB

Window `n` has the events from `n * SLOT` on, and lies in any slot: the first record says which window it is. A drain
frees a slot when all its events are packed: the kind of the first record becomes 0. The log writes its next window to
a free slot of the first `MAPPED_SLOTS`; their pages stay in memory, and cost nothing more. Where none is free, because
nothing is packed or the drain is slow, the file grows; from later slots the drain gives the space back.

So a reader sees old records in the place of events that are not written yet. Each record has its number: one that has
another is none. A record that was read is right if its event is not packed after the read.
"""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.events.event_record import KIND_OFFSET, RECORD
from bfcviz.events.log_memory import MAPPED_SLOTS, SLOT
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.files import OpenFile

LAST_LOOK: Final = 4096
"""Events before the end that are checked one by one."""

_SLOT_BYTES: Final = SLOT * RECORD
_PUNCH: Final = 3  # FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE of linux/falloc.h


class EventFile:
    """The file of a log, open for reading.

    Raises:
        FileError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = OpenFile(path)
        self._slots: dict[int, int] = {}  # by window

    @property
    def num_records(self) -> int:
        """Records that the file has room for."""
        return os.fstat(self._file.fd).st_size // RECORD

    def find_windows(self) -> None:
        """Find the slot of each window, by the first records of the slots; slots in holes are left out unread.

        Raises:
            OSError: it cannot be read.
        """
        self._slots, slot = {}, 0
        while (slot := self._next_slot(slot)) >= 0:
            data = os.pread(self._file.fd, RECORD, slot * _SLOT_BYTES)
            if len(data) < RECORD:
                break
            record = np.frombuffer(data, EVENT)[0]
            window, rest = divmod(int(record["seq"]), SLOT)
            if record["kind"] and not rest:
                self._slots[window] = slot
            slot += 1

    def find_end(self, known: int) -> int:
        """The number of events in the file, of which the first `known` were read before, or are packed.

        Valid records are a prefix (see `EventLog`), so few are read to find its end. The last ones are then checked one
        by one, because the valid records of a damaged file may not be a prefix.

        Raises:
            OSError: it cannot be read.
        """
        self.find_windows()
        low = known
        while self._is_event((window_end := low - low % SLOT + SLOT) - 1):
            low = window_end
        high = window_end - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_event(middle) else (low, middle)
        start = max(known, low - LAST_LOOK)
        return start + self.copy_into(np.empty(low - start, EVENT), start)

    def read(self, start: int, stop: int) -> Events:
        """The records in the places of the events [start, stop), which `find_end` has found.

        Fewer if the file became shorter.
        """
        events = np.empty(stop - start, EVENT)
        return events[: sum(self._read_parts(events, start, valid=False))]

    def copy_into(self, into: Events, start: int) -> int:
        """Copy the events from `start` on into the array `into`, until it is full or the next one is not there.

        Raises:
            OSError: it cannot be read.
        """
        return sum(self._read_parts(into, start, valid=True))

    def _read_parts(self, into: Events, start: int, *, valid: bool) -> Iterator[int]:
        """Read slot by slot; yields how many records of each were read. What is checked is still in the cache."""
        done = 0
        while done < len(into):
            at = start + done
            part = into[done : done + SLOT - at % SLOT]
            count = self._file.read_into(part.view(np.uint8), self._place_of(at) * RECORD) // RECORD
            if valid:
                count = _num_valid(part[:count], at)
            yield count
            if count < len(part):
                return
            done += count

    def tail_bytes(self, end: int, most: int) -> int:
        """How many of `most` bytes after the last event are in use, by records that were not written to their end."""
        is_new = all(window == slot for window, slot in self._slots.items())
        place = self._place_of(end) * RECORD
        tail = np.frombuffer(self._file.read_at(place, most if is_new else RECORD), np.uint8)
        if not is_new and (end % SLOT == 0 or tail[KIND_OFFSET : KIND_OFFSET + 1].any()):
            return 0  # an old record
        used = np.flatnonzero(tail)
        return int(used[-1]) + 1 if len(used) else 0

    def free(self, stop: int) -> None:
        """Free the slots of the windows whose events are all before `stop`, for a drain that has packed these.

        Raises:
            OSError: the file cannot be written.
        """
        packed = [window for window in self._slots if (window + 1) * SLOT <= stop]
        if not packed:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for window in packed:
                slot = self._slots.pop(window)
                if slot < MAPPED_SLOTS:
                    os.pwrite(fd, b"\0", slot * _SLOT_BYTES + KIND_OFFSET)
                else:
                    free_space(fd, slot * _SLOT_BYTES, _SLOT_BYTES)
        finally:
            os.close(fd)

    def _place_of(self, event: int) -> int:
        """The place of an event in the file, in records; a recording of an older bfcviz has slots in order."""
        window, rest = divmod(event, SLOT)
        return self._slots.get(window, window) * SLOT + rest

    def _is_event(self, number: int) -> bool:
        data = self._file.read_at(self._place_of(number) * RECORD, RECORD)
        if len(data) < RECORD:
            return False  # the file became shorter
        record = np.frombuffer(data, EVENT)[0]
        return bool(record["kind"] != 0 and record["seq"] == number)

    def _next_slot(self, slot: int) -> int:
        """The first slot from `slot` on that has data; below 0 if there is none."""
        if not hasattr(os, "SEEK_DATA"):
            return slot
        try:
            return max(os.lseek(self._file.fd, slot * _SLOT_BYTES, os.SEEK_DATA) // _SLOT_BYTES, slot)
        except OSError:
            return -1


def _num_valid(records: Events, first: int) -> int:
    """How many records are events, from number `first` on, before the first that is not."""
    wrong = (records["kind"] == 0) | (
        records["seq"] != np.arange(first, first + len(records), dtype=np.uint64)
    )
    return int(wrong.argmax()) if wrong.any() else len(records)


def free_space(fd: int, start: int, num_bytes: int) -> bool:
    """Give space of a file back, which becomes a hole of zeros; False where the file system has no holes."""
    punch = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if punch is None:
        return False
    punch.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(punch(fd, _PUNCH, start, num_bytes) == 0)
