"""Sources read the events of a trace: the base class, and the source for an array in memory."""

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import Labels, has_unknown_label, without_unknown_labels
from bfcviz.events.origin import Origin, Status
from bfcviz.events.schema import EVENT, Events, Fault, first_fault
from bfcviz.events.structured_arrays import move

# ------------------------------------------------------------------------------
# Sources: the base class, the one for an array in memory, and the base of those that decode groups.

BLOCK = 65_536
"""Events that are checked, decoded and returned together: 4 MiB."""


class Source:
    """A source of events in order, checked block by block when they are first read.

    An invalid event is an error that names its position. An unknown label is only replaced by none, because a heap
    without names is still useful.

    Attributes:
        labels: the table of labels; events hold numbers of it.
        length: how many events there are.
        path: of the file or folder, None in memory.
        following: more events may come.
        of_process: the events are those of a heap of this process, in memory.
        first: the first step that is kept; 0 for sources that keep everything.
        slack: events that may arrive between two calls of `fetch` without loss; None: no event is ever lost.
        block: events stored together, a power of two; `Trace.blocks` returns this many at a time, without a copy.
    """

    path: Path | None = None
    following = False
    of_process = False
    first = 0
    slack: int | None = None
    block = BLOCK

    def __init__(self, labels: Labels, origin: Origin, length: int) -> None:
        self.labels = labels
        self.origin = origin
        self.length = length

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of a source; the caller checks the range."""
        raise NotImplementedError

    def refresh(self) -> int:
        """Look for new events of a source; returns how many there are."""
        return 0

    def fetch(self) -> int:
        """Copy new events of a source before they are lost; returns how many. Any thread may call it."""
        return 0

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:  # noqa: ARG002  most sources have none
        """The last keyframe that a source has stored at or before `step`."""
        return None

    def index_entries(self) -> list[bytes] | None:
        """What a source has stored for the index of all events, by block; None where some of it is missing."""
        return None

    def cut_at_damage(self) -> None:
        """Read all of a source once; end the trace before the first event that is invalid or unreadable."""
        for start in range(self.first, self.length, BLOCK):
            fault = self._fault_in(start, min(start + BLOCK, self.length))
            if fault is not None:
                lost = self.length - fault.event
                self.length = fault.event
                self.following = False
                self.degrade(
                    f"event {fault.event} {fault.why}; it and all later events ({lost}) are left out"
                )
                return

    def degrade(self, reason: str, status: Status = Status.DEGRADED) -> None:
        """Record in the origin of a source that something is wrong."""
        if reason not in self.origin.reasons:
            self.origin = replace(self.origin, status=status, reasons=(*self.origin.reasons, reason))

    def _fault_in(self, start: int, stop: int) -> Fault | None:
        raise NotImplementedError

    def _raise(self, fault: Fault) -> None:
        if self.path is None:
            raise TraceError(f"event {fault.event} {fault.why}")
        advice = f"Trace.open(..., check=True) opens the {fault.event} events before it"
        raise FileError(self.path, f"event {fault.event}", f"{fault.why}; {advice}")


class ArraySource(Source):
    """A source of events in one array in memory.

    Args:
        events: shape (n,), dtype EVENT; they must not change afterwards.
        labels: the table of their labels.
        origin: where they come from.
    """

    def __init__(self, events: Events, labels: Labels, origin: Origin) -> None:
        if events.dtype != EVENT or events.ndim != 1:
            raise TraceError(
                f"events must be a one-dimensional array of dtype EVENT; got {events.dtype} of shape {events.shape}"
            )
        super().__init__(labels, origin, len(events))
        self._events = events.view(np.ndarray)
        self._checked: dict[int, int] = {}  # block -> number of its events that were checked
        self._unknown_labels = False

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of the array, without a copy."""
        fault = self._fault_in(start, stop)
        if fault is not None:
            self._raise(fault)
        events = self._part(start, stop)
        if self._unknown_labels:
            events = without_unknown_labels(events, len(self.labels))
        events.flags.writeable = False
        return events

    def _fault_in(self, start: int, stop: int) -> Fault | None:
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            done = max(block * BLOCK + self._checked.get(block, 0), self.first)
            end = min((block + 1) * BLOCK, self.length)
            if done < min(end, stop):
                fault = self._check(done, end)
                if fault is not None and fault.event < stop:
                    return fault
                if fault is None:
                    self._checked[block] = end - block * BLOCK
        return None

    def _part(self, start: int, stop: int) -> Events:
        return self._events[start:stop]

    def _check(self, start: int, stop: int) -> Fault | None:
        events = self._part(start, stop)
        if has_unknown_label(events, len(self.labels)):
            self._unknown_labels = True
            self.degrade("some events name a missing label: they are shown without one")
        return first_fault(events, start, len(self.origin.pools))


CACHED_BYTES = 1 << 26
"""Memory for decoded groups that are kept, beside the last one read; those that we write have 4 or 16 MiB."""


class GroupSource(Source):
    """A source of events in groups that are decoded whole; the groups read last are kept.

    Args:
        starts: ascending, shape (groups + 1,): the first event of each group, and the end of the last one.

    Attributes:
        cached_bytes: memory of the decoded groups that are kept.
    """

    def __init__(self, labels: Labels, origin: Origin, starts: NDArray[np.int64]) -> None:
        super().__init__(labels, origin, int(starts[-1]))
        self._starts = starts
        self._lock = RLock()
        self._decoded: OrderedDict[int, Events] = OrderedDict()
        self.cached_bytes = 0

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of a source of groups: a view of one decoded group, or a copy from several."""
        if start == stop:
            return np.zeros(0, EVENT)
        first, last = self._group_of(start), self._group_of(stop - 1)
        if first == last:
            offset = int(self._starts[first])
            return self._checked_group(first)[start - offset : stop - offset]
        events = np.empty(stop - start, EVENT)
        for group in range(first, last + 1):
            low, high = max(start, int(self._starts[group])), min(stop, int(self._starts[group + 1]))
            offset = int(self._starts[group])
            move(self._checked_group(group)[low - offset : high - offset], events[low - start : high - start])
        events.flags.writeable = False
        return events

    def _decode(self, group: int) -> Events:
        """The events of a group of a source, as many as `starts` says. Raises FileError."""
        raise NotImplementedError

    def _group_of(self, step: int) -> int:
        return int(np.searchsorted(self._starts, step, "right")) - 1

    def _checked_group(self, group: int) -> Events:
        with self._lock:
            events = self._decoded.get(group)
            if events is None:
                events = self._decode(group)
                fault = first_fault(events, int(self._starts[group]), len(self.origin.pools))
                if fault is not None:
                    self._raise(fault)
                if has_unknown_label(events, len(self.labels)):
                    events = without_unknown_labels(events, len(self.labels))
                    self.degrade("some events name a missing label: they are shown without one")
                events.flags.writeable = False
                self._decoded[group] = events
                self.cached_bytes += events.nbytes
                while self.cached_bytes > CACHED_BYTES and len(self._decoded) > 1:
                    self.cached_bytes -= self._decoded.popitem(last=False)[1].nbytes
            self._decoded.move_to_end(group)
            return events

    def _fault_in(self, start: int, stop: int) -> Fault | None:
        for group in range(self._group_of(start), self._group_of(stop - 1) + 1):
            low = int(self._starts[group])
            try:
                events = self._decode(group)
            except FileError as error:
                return Fault(low, f"cannot be read: {error.place}: {error.cause}")
            fault = first_fault(events, low, len(self.origin.pools))
            if fault is not None:
                return fault
        return None
