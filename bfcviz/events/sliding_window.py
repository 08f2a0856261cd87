"""The newest events of a heap's log in this process: a window that moves forward as the heap works.

::

    step    0 . . . . . . . . first                                     length
            (dropped          )[ piece ][ piece ][ piece ][ piece  room )
                              ^ keyframe: the state before the first event that is kept

A ring overwrites events that were not read in time. Events after such a gap do not describe the older chunks, so the
window then restarts with the current state of the heap.
"""

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from bfcviz.errors import Lapped, TraceError
from bfcviz.events.event_source import BLOCK, Source
from bfcviz.events.label_table import Labels, forget_unknown_labels, has_unknown_label
from bfcviz.events.log import EventLog, Reader, names_of_threads
from bfcviz.events.origin import THREADS, Origin, Status
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.structured_arrays import joined, move
from bfcviz.events.trace import Keyframes, Trace

KEEP: Final = 1 << 20
"""Default number of events to keep: 64 MiB."""

LEAST_KEEP: Final = 512


class Beginning(NamedTuple):
    """Where a sliding window can begin if its log has lost its first events.

    Attributes:
        first: the first step.
        keyframe: the state at that step.
        events: those known from `first` on, as `Reader` returns them; the window continues after the last.
    """

    first: int
    keyframe: bytes
    events: Events


Begin = Callable[[], Beginning | None]
"""Asks a heap for its state; returns None if there is none, for example if the heap was deleted."""


class WindowSource(Source):
    """The newest events of a log in this process, in pieces: between half of `keep` and `keep` of them.

    The visible events change only in `refresh`. Callers that read the trace from several threads must hold one lock
    while they read and refresh. Events are not checked: a heap of this process wrote them, and a model checks what it
    applies.

    Args:
        log: a heap may write to it at the same time.
        labels: the table of the labels of its events.
        origin: of the trace, with one pool: the heap.
        keyframes: `bfcviz.model.keyframe_bytes`, as in `Trace.save`.
        begin: called when the log has lost events that were not read yet.
        keep: maximum number of events to keep, 512 or more (64 bytes each).

    Attributes:
        missed: events that were overwritten before they were read.
        gaps: how often that happened.

    Raises:
        TraceError: the log has lost its first events and the state is unknown, or `keep` is too small.
    """

    following = of_process = True

    def __init__(  # noqa: PLR0913  a log and its metadata
        self,
        log: EventLog,
        labels: Labels,
        origin: Origin,
        keyframes: Keyframes,
        *,
        begin: Begin | None = None,
        keep: int = KEEP,
    ) -> None:
        if keep < LEAST_KEEP:
            raise TraceError(f"keep={keep} events were requested; keep at least {LEAST_KEEP}")
        self._gaps_known = origin.reasons
        status = Status.DEGRADED if origin.reasons else Status.RECORDING
        super().__init__(labels, replace(origin, status=status), 0)
        self.keep = keep
        self.missed = 0
        self.gaps = 0
        self.block = 1 << min(keep // 8, BLOCK).bit_length() - 1
        self._log = log
        self._reader = Reader(log, 0)
        self.slack = log.capacity if log.path is None else None
        self._fetching = Lock()  # guards the reader, and the records it wrote after `length`
        self._lapped = False  # nothing is fetched until the window restarts
        self._keyframes = keyframes
        self._begin = begin
        self._keyframe: bytes | None = None
        self._pieces: dict[int, Events] = {}
        if log.oldest > 0 and not self._restart():
            raise TraceError(
                f"the first {log.oldest} events of this log were overwritten, and the other events need them; "
                "pass the heap itself, which knows its state, or give its log more capacity"
            )
        self.refresh()

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop) of the sliding window, copied only if they lie in several pieces."""
        if start == stop:
            return np.empty(0, EVENT)  # the piece may not exist yet
        parts = [
            self._pieces[number][max(start - number * self.block, 0) : stop - number * self.block]
            for number in range(start // self.block, -(-stop // self.block))
        ]
        if len(parts) != 1:
            parts = [joined(parts)]
        parts[0].flags.writeable = False
        return parts[0]

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The state at the first step of the sliding window, unless the heap is empty there."""
        return None if self._keyframe is None or step < self.first else (self.first, self._keyframe)

    def refresh(self) -> int:
        """Move the sliding window on: add the new events; returns how many steps longer the trace is."""
        before, goal = self.length, self._log.head
        recovered = False
        while self.following and self.length < goal:
            self.fetch()
            with self._fetching:
                fetched, lapped = self._reader.position, self._lapped
            self._show(fetched)
            if lapped:
                if recovered:  # lapped twice: the heap is too fast, the next refresh tries again
                    break
                recovered = True
                self._recover()
        names = names_of_threads()
        if names and names != self.origin.details.get(THREADS):
            self.origin = replace(self.origin, details={**self.origin.details, THREADS: names})
        return self.length - before

    def fetch(self) -> int:
        """Read the log into the sliding window, at most `keep` events beyond the visible ones."""
        with self._fetching:
            before, goal = self._reader.position, self._log.head
            while not self._lapped and self._reader.position < min(goal, self.length + self.keep):
                room = self._room(self._reader.position)[: self.length + self.keep - self._reader.position]
                try:
                    if not self._reader.read_into(room):
                        break  # a drain has freed them: the folder of the recording has all
                except Lapped:
                    self._lapped = True
            return self._reader.position - before

    def _room(self, step: int) -> Events:
        """The records of the window's piece that holds `step`, from `step` on."""
        number, place = divmod(step, self.block)
        if number not in self._pieces:
            self._pieces[number] = np.empty(self.block, EVENT)
        return self._pieces[number][place:]

    def _put(self, events: Events) -> None:
        """Copy `events` into the pieces of the sliding window, as if the reader had read them."""
        while len(events):
            room = self._room(self._reader.position)
            move(events[: len(room)], into=room[: len(events)])
            self._reader.position += min(len(room), len(events))
            events = events[len(room) :]

    def _show(self, stop: int) -> None:
        """Make the events before `stop` visible in the sliding window; they are in the pieces already."""
        while self.length < stop:
            events = self._room(self.length)[: stop - self.length]
            if has_unknown_label(events, len(self.labels)):
                forget_unknown_labels(events, len(self.labels))
            self.length += len(events)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """If there are more than `keep` events, drop a quarter at once, because each drop costs a keyframe."""
        if self.length - self.first <= self.keep:
            return
        first = -(-(self.length - self.keep * 3 // 4) // self.block) * self.block
        self._keyframe = next(iter(self._keyframes(Trace(self), [first])))
        for number in range(self.first // self.block, first // self.block):
            del self._pieces[number]
        self.first = first
        self._update_origin()

    def _recover(self) -> None:
        """Continue a sliding window whose events were lost: restart, or end here."""
        read = self.length
        if self._restart():
            self.missed += self.first - read
            self.gaps += 1
            self._update_origin()
        else:
            self.following = False
            lost = self._log.oldest - read
            self.degrade(
                f"{lost} events after step {read} were overwritten before they were read, and the heap "
                "can no longer return its state: later events are not shown"
            )

    def _restart(self) -> bool:
        """Restart the sliding window at the heap's current state; False if the heap does not return it."""
        found = None if self._begin is None else self._begin()
        if found is None:
            return False
        with self._fetching:
            self._pieces.clear()
            self._keyframe = found.keyframe
            self.first = self.length = self._reader.position = found.first
            self._put(found.events)
            self._lapped = False
        self._show(found.first + len(found.events))
        self._update_origin()
        return True

    def _update_origin(self) -> None:
        reasons = [*self._gaps_known]
        if self.first:
            reasons.append(f"steps before {self.first:,} are no longer kept")
        if self.gaps:
            reasons.append(
                f"{self.missed:,} events were overwritten before they were read (in {self.gaps:,} gaps): give "
                "the heap a log of more capacity, such as EventLog(1 << 20), or record to a folder"
            )
        status = Status.DEGRADED if self.gaps or self._gaps_known else Status.RECORDING
        self.origin = replace(self.origin, status=status, reasons=tuple(reasons))
