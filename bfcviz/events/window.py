"""The newest events of a heap's log in this process: a window that moves on as the heap works.

::

    step    0 . . . . . . . . first                                     length
            (gone             )[ piece ][ piece ][ piece ][ piece  room )
                              ^ keyframe: the state before the first event that is still here

A ring overwrites what was not read in time. Events behind such a gap say nothing about the chunks that are
older, so the window then begins anew, where the heap itself tells its state.
"""

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from bfcviz.errors import Lapped, TraceError
from bfcviz.events.check import has_unknown_label, without_unknown_labels
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Status
from bfcviz.events.packing import Keyframes
from bfcviz.events.reader import Reader
from bfcviz.events.rows import joined, move
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.source import BLOCK, Source
from bfcviz.events.trace import Trace

KEEP: Final = 1 << 20
"""Events kept unless told otherwise: 64 MiB."""

LEAST_KEEP: Final = 512


class Beginning(NamedTuple):
    """Where a window can begin whose log has lost its own beginning.

    Attributes:
        first: the step to begin at.
        keyframe: the state there.
        events: what is known of those from `first` on, as `Reader` gives them; the window goes on behind the last.
    """

    first: int
    keyframe: bytes
    events: Events


Begin = Callable[[], Beginning | None]
"""Asks a heap for its state; None where it has no answer, as when it is gone."""


def follow(  # noqa: PLR0913  one log, and all that is known of it
    log: EventLog,
    labels: Labels,
    origin: Origin,
    keyframes: Keyframes,
    *,
    begin: Begin | None = None,
    keep: int = KEEP,
) -> Trace:
    """A trace of the newest events of a log in this process; `Trace.refresh` takes over what is new.

    Only what is visible changes, and only in `refresh`: whoever reads the trace from several threads calls it
    under the same lock.

    Args:
        log: what a heap writes to, meanwhile and without noticing.
        labels: the table that its events name.
        origin: of the trace, with one pool: the heap.
        keyframes: `bfcviz.model.keyframes`, as in `Trace.save`.
        begin: asked when the log has lost events that were not read yet.
        keep: events to keep at most, 512 or more (64 bytes each).

    Raises:
        TraceError: the log has lost its beginning and nobody knows the state, or `keep` is too small.
    """
    return Trace(WindowSource(log, labels, origin, keyframes, begin=begin, keep=keep))


class WindowSource(Source):
    """At most `keep` of a log's newest events, and half as many at least, in pieces; see `follow`.

    Events are not checked: a heap of this process wrote them, and a model checks what it applies.
    """

    following = True

    def __init__(  # noqa: PLR0913  `follow` is its public face
        self,
        log: EventLog,
        labels: Labels,
        origin: Origin,
        keyframes: Keyframes,
        *,
        begin: Begin | None,
        keep: int,
    ) -> None:
        if keep < LEAST_KEEP:
            raise TraceError(f"a window of {keep} events was asked for; keep at least {LEAST_KEEP}")
        super().__init__(labels, replace(origin, status=Status.RECORDING), 0)
        self.keep = keep
        self.missed = 0  # events that were overwritten before they were read
        self.gaps = 0
        self._piece = 1 << min(keep // 8, BLOCK).bit_length() - 1
        self._log = log
        self._reader = Reader(log, 0)
        self.slack = log.capacity if log.path is None else None
        self._fetching = Lock()  # guards the reader, and what it read that cannot be seen yet
        self._fetched: list[Events] = []
        self._lapped = False  # nothing is fetched until the window begins anew
        self._keyframes = keyframes
        self._begin = begin
        self._keyframe: bytes | None = None
        self._pieces: dict[int, Events] = {}
        if log.oldest > 0 and not self._begin_anew():
            raise TraceError(
                f"the first {log.oldest} events of this log are overwritten, and without them the rest cannot "
                "be understood; give the heap itself, which knows its state, or a log of more capacity"
            )
        self.refresh()

    def read(self, start: int, stop: int) -> Events:
        """Events [start, stop), copied only where they lie in several pieces."""
        parts = [
            self._pieces[number][max(start - number * self._piece, 0) : stop - number * self._piece]
            for number in range(start // self._piece, -(-stop // self._piece))
        ]
        if len(parts) != 1:
            parts = [joined(parts) if parts else np.empty(0, EVENT)]
        parts[0].flags.writeable = False
        return parts[0]

    def keyframe_before(self, step: int) -> tuple[int, bytes] | None:
        """The state at `first`, unless that is the empty heap."""
        return None if self._keyframe is None or step < self.first else (self.first, self._keyframe)

    def refresh(self) -> int:
        """Take over the events up to now; returns how many steps further the trace goes."""
        before, goal = self.length, self._log.head
        mended = False
        while self.following and self.length < goal:
            self.fetch()
            with self._fetching:
                fetched, self._fetched = self._fetched, []
                lapped = self._lapped
            for events in fetched:
                self._take(events)
            if lapped:
                if mended:  # again, at once: the heap is too fast, the next refresh will try
                    break
                mended = True
                self._mend()
        return self.length - before

    def fetch(self) -> int:
        """Read the log, at most `keep` events ahead of what can be seen; see `Trace.fetch`."""
        with self._fetching:
            before, goal = self._reader.position, self._log.head
            ahead = sum(map(len, self._fetched))
            while not self._lapped and self._reader.position < goal and ahead < self.keep:
                try:
                    self._fetched.append(self._reader.read(min(BLOCK, self.keep - ahead)))
                except Lapped:
                    self._lapped = True
                    break
                ahead += len(self._fetched[-1])
            return self._reader.position - before

    def _take(self, events: Events) -> None:
        if self._log.pool:
            events["pool"] = 0  # a copy, and the heap is the only one in this trace
        if has_unknown_label(events, len(self.labels)):
            events = without_unknown_labels(events, len(self.labels))
        taken = 0
        while taken < len(events):
            number, place = divmod(self.length, self._piece)
            part = events[taken : taken + self._piece - place]
            piece = self._pieces.get(number)
            if piece is None:
                piece = self._pieces[number] = np.empty(self._piece, EVENT)
            move(part, into=piece[place : place + len(part)])
            self.length += len(part)
            taken += len(part)
            self._let_go()

    def _let_go(self) -> None:
        """Drop a quarter, the oldest pieces, where there are more than `keep` events: the keyframe has its price."""
        if self.length - self.first <= self.keep:
            return
        first = -(-(self.length - self.keep * 3 // 4) // self._piece) * self._piece
        self._keyframe = next(iter(self._keyframes(Trace(self), [first])))
        for number in range(self.first // self._piece, first // self._piece):
            del self._pieces[number]
        self.first = first
        self._tell()

    def _mend(self) -> None:
        """Events were lost: begin anew, or end here."""
        read = self.length
        if self._begin_anew():
            self.missed += self.first - read
            self.gaps += 1
            self._tell()
        else:
            self.following = False
            lost = self._log.oldest - read
            self.degrade(
                f"{lost} events after step {read} were overwritten before they were read, and the heap "
                "can no longer be asked for its state: nothing later is shown"
            )

    def _begin_anew(self) -> bool:
        """Begin again where the heap tells its state; False where it does not."""
        found = None if self._begin is None else self._begin()
        if found is None:
            return False
        self._pieces.clear()
        self._keyframe = found.keyframe
        self.first = self.length = found.first
        self._take(found.events)
        with self._fetching:
            self._fetched, self._lapped = [], False
            self._reader.position = self.length
        self._tell()
        return True

    def _tell(self) -> None:
        reasons = []
        if self.first:
            reasons.append(f"steps before {self.first:,} are no longer kept")
        if self.gaps:
            reasons.append(
                f"{self.missed:,} events were overwritten before they were read (at {self.gaps:,} places): give "
                "the heap a log of more capacity, such as EventLog(1 << 20), or record to a folder"
            )
        status = Status.DEGRADED if self.gaps else Status.RECORDING
        self.origin = replace(self.origin, status=status, reasons=tuple(reasons))
