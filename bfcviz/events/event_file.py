"""EventFile: the file of a log, read while the log writes it; where each event lies, and what was freed.

::

    events.bin   [ window 5 | window 6 | free | window 3 | window 4 ... ]      slots of 16,384 records, 1 MiB

Window `n` has the events from `n * SLOT` on, and lies in any slot: the first record says which window it is. A drain
frees a slot when all its events are packed: the kind of the first record becomes 0. The log writes its next window to
a free slot of the first `MAPPED_SLOTS`; their pages stay in memory, and cost nothing more. Where none is free, because
nothing is packed or the drain is slow, the file grows; from later slots the drain gives the space back.

Only the first record of a freed slot is cleared: the others still look like events, and so does what stands before the
end of a window that is being written. So a record is the event of its place only if it has the number of it. A drain
frees a slot after its events are packed: if an event is not packed after its record was read, the record was right.

One process frees slots: the drain of the recording, which holds its lock, or the worker whose client copies it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bfcviz.events.event_record import KIND_OFFSET, RECORD
from bfcviz.events.log_memory import MAPPED_SLOTS, SLOT
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage.files import OpenFile, free_space

LAST_LOOK: Final = 4096
"""Events before the end that are checked one by one."""

_MOST_SLOTS: Final = 1 << 23  # 8 TiB: a file with holes can claim any size for nothing
_SLOT_BYTES: Final = SLOT * RECORD


class EventFile:
    """The file of a log's events, open for reading.

    Args:
        path: of the file.
        before: what was known of it, so that only new slots are looked at.

    Attributes:
        file: the open file.
        slots: of the windows that `find_windows` found, the slot.

    Raises:
        FileError: it cannot be opened.
    """

    def __init__(self, path: Path, before: "EventFile | None" = None) -> None:
        self.path = path
        self.file = OpenFile(path)
        self.slots: dict[int, int] = {}
        if before is not None and os.path.sameopenfile(before.file.fd, self.file.fd):
            self.slots = before.slots

    @property
    def num_records(self) -> int:
        """Records that the file of a log has room for."""
        return os.fstat(self.file.fd).st_size // RECORD

    def extent_of(self, events: int) -> int:
        """Records that the file must have, if it has the last one of so many events where `find_windows` saw it."""
        return self._place_of(events - 1) + 1 if events else 0

    def find_windows(self) -> None:
        """Find the slot of each window in a log's file, by first records; slots in holes are left out unread.

        Raises:
            OSError: it cannot be read.
        """
        # Slots behind the mapped ones are written once.
        self.slots = {window: slot for window, slot in self.slots.items() if slot >= MAPPED_SLOTS}
        behind = max(self.slots.values(), default=MAPPED_SLOTS - 1) + 1
        slot = 0
        while 0 <= (slot := self._next_slot(slot)) < _MOST_SLOTS:
            if MAPPED_SLOTS <= slot < behind:
                slot = behind
                continue
            window = self._window_in(slot)
            if window is not None:
                self.slots[window] = slot
            slot += 1

    def note_window(self, window: int, slot: int) -> None:
        """Take it that a window of a log's file lies in a slot; a wrong place shows no event."""
        self.slots[window] = slot

    def find_end(self, known: int, most_lost: int = 0) -> int:
        """The number of events in a log's file, of which the first `known` were read before, or are packed.

        Up to `most_lost` after them may be lost. Valid records are a prefix (see `EventLog`), so few are read to find
        its end. The last ones are then checked one by one, because the valid records of a damaged file may not be a
        prefix.

        Raises:
            OSError: it cannot be read.
        """
        self.find_windows()
        low = known = self.skip_lost(known, most_lost)
        while self._is_there((window_end := low - low % SLOT + SLOT) - 1):
            low = window_end
        high = window_end - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_there(middle) else (low, middle)
        start = max(known, low - LAST_LOOK)
        return start + self.copy_into(np.empty(low - start, EVENT), start)

    def skip_lost(self, known: int, most: int) -> int:
        """The first event from `known` on in a window that `find_windows` found, if up to `most` before it are lost.

        A drain frees the windows that it has packed, and what it packed may be damaged. Else `known`.
        """
        window, last = known // SLOT, (known + most) // SLOT
        later = [each for each in self.slots if window < each <= last]
        if not later or window in self.slots or self._is_there(known):
            return known
        return min(later) * SLOT

    def read(self, start: int, stop: int) -> Events:
        """The records of a log's file in the places of the events [start, stop), which `find_end` has found.

        Fewer if the file became shorter.
        """
        events = np.empty(stop - start, EVENT)
        return events[: sum(self._read_parts(events, start, valid=False))]

    def copy_into(self, into: Events, start: int) -> int:
        """Copy a log file's events from `start` on into the array `into`, until it is full or one is missing.

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
            count = self.file.read_into(part.view(np.uint8), self._place_of(at) * RECORD) // RECORD
            if valid:
                count = _num_valid(part[:count], at)
            yield count
            if count < len(part):
                return
            done += count

    def tail_bytes(self, end: int, most: int) -> int:
        """How many of `most` bytes after the last event are in use, by records that were not written to their end."""
        is_new = all(window == slot for window, slot in self.slots.items())
        place = self._place_of(end) * RECORD
        tail = np.frombuffer(self.file.read_at(place, most if is_new else RECORD), np.uint8)
        if not is_new and (end % SLOT == 0 or tail[KIND_OFFSET : KIND_OFFSET + 1].any()):
            return 0  # an old record
        used = np.flatnonzero(tail)
        return int(used[-1]) + 1 if len(used) else 0

    def free(self, stop: int) -> None:
        """Free the slots of a log's file whose events are all before `stop`, for a drain that has packed these.

        Raises:
            OSError: the file cannot be written.
        """
        packed = [window for window in self.slots if (window + 1) * SLOT <= stop]
        if not packed:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for window in packed:
                slot = self.slots.pop(window)
                if self._window_in(slot) != window:
                    continue  # it was freed before, and the log wrote to it again
                if slot < MAPPED_SLOTS:
                    os.pwrite(fd, b"\0", slot * _SLOT_BYTES + KIND_OFFSET)
                else:
                    free_space(fd, slot * _SLOT_BYTES, _SLOT_BYTES)
        finally:
            os.close(fd)

    def _place_of(self, event: int) -> int:
        """The place of an event in a log's file, in records.

        A window that was not found is looked for in the slot of its number, as an older bfcviz wrote it; another window
        there has other numbers.
        """
        window, rest = divmod(event, SLOT)
        return self.slots.get(window, window) * SLOT + rest

    def _is_there(self, event: int) -> bool:
        return self._number_at(self._place_of(event)) == event

    def _window_in(self, slot: int) -> int | None:
        """The window whose first record is at the beginning of a slot of a log's file; None: there is none."""
        number = self._number_at(slot * SLOT)
        return None if number is None or number % SLOT else number // SLOT

    def _number_at(self, place: int) -> int | None:
        """The number of the event in a place of the file, in records; None: there is none."""
        data = self.file.read_at(place * RECORD, RECORD)
        if len(data) < RECORD:
            return None
        record = np.frombuffer(data, EVENT)[0]
        return int(record["seq"]) if record["kind"] else None

    def _next_slot(self, slot: int) -> int:
        """The first slot of a log's file from `slot` on that has data; below 0 if there is none."""
        if not hasattr(os, "SEEK_DATA"):
            return slot if slot * _SLOT_BYTES < os.fstat(self.file.fd).st_size else -1
        try:
            return max(os.lseek(self.file.fd, slot * _SLOT_BYTES, os.SEEK_DATA) // _SLOT_BYTES, slot)
        except OSError:
            return -1


def _num_valid(records: Events, first: int) -> int:
    """How many records of a log's file are events, from number `first` on, before the first that is not."""
    wrong = (records["kind"] == 0) | (
        records["seq"] != np.arange(first, first + len(records), dtype=np.uint64)
    )
    return int(wrong.argmax()) if wrong.any() else len(records)
