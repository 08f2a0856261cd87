"""RecordedHistory: the events of one heap, from the allocations and frees that a file recorded."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.inconsistencies import Inconsistencies
from bfcviz.events.ledger import Ledger
from bfcviz.events.log import EventLog
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.native import MAX_REGIONS

REPORT = np.dtype(
    [
        ("time", "<i8"),  # nanoseconds
        ("kind", "u1"),  # a `Kind`, or a number of the importer's
        ("address", "<u8"),
        ("size", "<u8"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("label", "<u4"),
        ("in_use", "<i8"),  # what the file itself says after the report: bytes in use; -1: it says nothing
        ("pool_bytes", "<i8"),  # bytes of the pool; -1: it says nothing
    ]
)
"""One allocation, free or failed request in a file."""

Reports = NDArray[np.void]
"""An array of `REPORT`."""


def numbers_of(names: dict[str, int], name: str, most: int = 0xFFFF) -> int:
    """The number of a name, in order of first use from 1; 0 once `most` names have numbers."""
    known = names.get(name)
    if known is None:
        known = names[name] = len(names) + 1 if len(names) < most else 0
    return known


_MOST: Final = 4 * MAX_REGIONS  # events of one report: an allocation may cross every region
_CAPACITY: Final = 2 * (_MOST + 64) // 64 * 64


class RecordedHistory:
    """Writes the events of one heap in the order in which its file recorded them; not thread-safe.

    A `Ledger` derives regions, splits and merges. It leaves out and counts impossible reports: the importer turns
    `inconsistencies` into reasons of the trace's origin.

    ::

        history = RecordedHistory()
        history.at(time_ns, thread=1)  # before each report
        history.ledger.allocate(0x7000, 512, requested=400, label=3)
        history.at(later_ns)
        history.ledger.free(0x7000)
        events = history.events()

    Attributes:
        ledger: takes the reports.
    """

    def __init__(self) -> None:
        self._log = EventLog(_CAPACITY)
        self.ledger = Ledger(self._log)
        self._events: Events = np.empty(0, EVENT)
        self._copied = 0

    @property
    def inconsistencies(self) -> Inconsistencies:
        """Counts of reports that were left out, and of inferred events."""
        return self.ledger.inconsistencies

    def at(self, time: int, thread: int = 0) -> None:
        """Set the time, in nanoseconds from 0 up, and the thread of the next report. Earlier times are raised."""
        if self._log.head - self._copied > _CAPACITY - _MOST:
            self._copy(spare=True)
        self._log.begin_operation(time, thread)
        self.ledger.thread = thread

    def mark(self, label: int, value: int = 0) -> None:
        """Write a mark."""
        self._log.put(Kind.MARK, 0, 0, 0, value, 0, 0, label, self.ledger.thread, 0, -1, 0)

    def events(self) -> Events:
        """All events; nothing may be reported afterwards."""
        self._copy(spare=False)
        return self._events

    def _copy(self, *, spare: bool) -> None:
        """Copy the new events from the ring."""
        head = self._log.head
        if head > len(self._events) or not spare:
            # In place where the system can: a large history is never in memory twice.
            self._events.resize(head + head // 2 * spare, refcheck=False)
        self._log.copy_into(self._events[self._copied : head], self._copied)
        self._copied = head
