"""A session's heaps, which record to rings in memory or to a folder, and the steps in which it made its devices."""

import html
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.errors import DevicesError
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes


class SessionHeap(NamedTuple):
    """A heap, and its recording if there is one."""

    heap: BFCAllocator
    recording: Recording | None
    details: Mapping[str, object]

    def trace(self) -> Trace:
        """The events of the heap so far.

        Raises:
            DevicesError: the ring was too small for all events.
        """
        if self.recording is not None:
            return self.recording.trace()
        log, head = self.heap.log, self.heap.log.head
        self._expect_all_events(head)
        events = log.copy(0, head)
        self._expect_all_events(head)  # the heap may have overwritten the oldest ones during the copy
        pool = Pool(self.heap.name, self.heap.limit, vars(self.heap.options))
        return Trace.from_events(
            events, self.heap.labels, Origin(pools=(pool,), details=self.details, source=self.heap.name)
        )

    def _expect_all_events(self, head: int) -> None:
        log = self.heap.log
        if log.oldest > 0:
            raise DevicesError(
                f"{head:,} events happened in {self.heap.name}; its ring keeps {log.capacity:,}: pass a folder as "
                "record=, or a larger capacity= to the session"
            )

    def close(self) -> None:
        """Close the heap, then the recording."""
        try:
            self.heap.close()
        finally:
            if self.recording is not None:
                self.recording.close()


class SessionHeaps:
    """Creates the heaps of a session.

    Args:
        record: a folder for one recording per heap; None = rings in memory.
        capacity: events in each ring.
    """

    def __init__(self, record: str | os.PathLike[str] | None = None, capacity: int = 1 << 16) -> None:
        self.folder = None if record is None else Path(record)
        self.capacity = capacity
        self._recordings: list[Recording] = []

    def discard(self) -> None:
        """Delete the recordings because the session failed to start; close the heaps first."""
        while self._recordings:
            self._recordings.pop().discard()

    def create(
        self,
        name: str,
        source: SubAllocator,
        limit: int,
        options: AllocatorOptions,
        details: Mapping[str, object],
    ) -> SessionHeap:
        """Create a heap that records its events."""
        if self.folder is None:
            log, labels = EventLog(self.capacity), Labels()
            return SessionHeap(
                BFCAllocator(source, limit, options, name=name, log=log, labels=labels), None, details
            )
        folder = self.folder / re.sub(r"\W+", "_", name).strip("_")
        recording = Recording(folder, [Pool(name, limit, vars(options))], details=details)
        self._recordings.append(recording)
        try:
            heap = BFCAllocator(source, limit, options, name=name, log=recording.log, labels=recording.labels)
        except BaseException:
            recording.close()
            raise
        return SessionHeap(heap, recording, details)


class Step(NamedTuple):
    """One step. `stage` is session, settings, factory, device or manager; `num_bytes` is 0 if it has no size."""

    time_ns: int
    stage: str
    words: str
    num_bytes: int

    @property
    def label(self) -> str:
        """The label of its MARK."""
        return f"{self.stage}: {self.words}"


class Journey:
    """The steps of a session as MARK events: settings, factories, devices, manager, in order; prints as a list."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.labels = Labels()
        self._steps: list[tuple[str, str]] = []

    def note(self, stage: str, words: str, num_bytes: int = 0) -> None:
        """Record one step."""
        self._steps.append((stage, words))
        number = self.labels.intern(f"{stage}: {words}")
        thread = self.log.begin_operation(-1)
        self.log.put(Kind.MARK, 0, 0, 0, num_bytes, 0, 0, number, thread, 0, -1, 0)

    @property
    def steps(self) -> list[Step]:
        """All steps so far."""
        marks = self.log.copy(0, self.log.head)
        return [
            Step(int(mark["time"]), stage, words, int(mark["size"]))
            for mark, (stage, words) in zip(marks, self._steps, strict=True)
        ]

    def trace(self) -> Trace:
        """The steps as a trace, to view or to save next to the traces of the heaps."""
        origin = Origin(pools=(Pool("journey of a session"),))
        return Trace.from_events(self.log.copy(0, self.log.head), self.labels, origin)

    def __str__(self) -> str:
        return "\n".join(
            f"{_session_step_time(step)}  {step.stage:<8}  {_session_step_text(step)}" for step in self.steps
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_session_step_time(step)}</td><td>{html.escape(step.stage)}</td>"
            f"<td style='text-align:left'>{html.escape(_session_step_text(step))}</td></tr>"
            for step in self.steps
        )
        return f"<table><tr><th>time</th><th>stage</th><th>what happened</th></tr>{rows}</table>"


def _session_step_text(step: Step) -> str:
    return f"{step.words} ({format_bytes(step.num_bytes)})" if step.num_bytes else step.words


def _session_step_time(step: Step) -> str:
    return f"{step.time_ns / 1e6:9.3f} ms"
