"""Where the events of a session's heaps go: rings in memory, or a folder with a recording of each heap."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.errors import DevicesError
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace


class Recorded(NamedTuple):
    """A heap, and the recording of it where there is one."""

    heap: BFCAllocator
    recording: Recording | None
    details: Mapping[str, object]

    def trace(self) -> Trace:
        """What happened in the heap so far.

        Raises:
            DevicesError: its ring was too small for all of it.
        """
        if self.recording is not None:
            return self.recording.trace()
        log, head = self.heap.log, self.heap.log.head
        events = log.copy(0, head)
        if log.oldest > 0:
            raise DevicesError(
                f"{head:,} events happened in {self.heap.name}, and its ring keeps {log.capacity:,}: give the session "
                "a folder with record=, or a larger capacity="
            )
        pool = Pool(self.heap.name, self.heap.limit, vars(self.heap.options))
        return Trace.from_events(
            events, self.heap.labels, Origin(pools=(pool,), details=self.details, source=self.heap.name)
        )

    def close(self) -> None:
        """Give the heap's memory back, and end the recording."""
        try:
            self.heap.close()
        finally:
            if self.recording is not None:
                self.recording.close()


class Logs:
    """Makes the heaps of a session.

    Args:
        record: a folder that gets a folder for each heap; None = rings in memory.
        capacity: events such a ring keeps.
    """

    def __init__(self, record: str | os.PathLike[str] | None = None, capacity: int = 1 << 16) -> None:
        self.folder = None if record is None else Path(record)
        self.capacity = capacity
        self._recordings: list[Recording] = []

    def discard(self) -> None:
        """Take away what was recorded, for the session could not be made; the heaps are closed before."""
        while self._recordings:
            self._recordings.pop().discard()

    def heap(
        self,
        name: str,
        source: SubAllocator,
        limit: int,
        options: AllocatorOptions,
        details: Mapping[str, object],
    ) -> Recorded:
        """A new heap that writes down what happens to it."""
        if self.folder is None:
            log, labels = EventLog(self.capacity), Labels()
            return Recorded(
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
        return Recorded(heap, recording, details)
