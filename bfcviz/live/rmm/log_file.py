"""LogFile: read the CSV log of RMM's logging adaptor as it grows, and write its events to an ObservedHeap."""

from pathlib import Path

from bfcviz.errors import OutOfMemory
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.rmm.log_lines import ALLOCATE, FREE, DayCount, LogLines, RmmRequest


class LogFile:
    """One device's log, a CSV file that grows; its times have no date.

    Args:
        path: the file that RMM writes.
        heap: receives the events.
        offset_ns: the time of day plus this is the heap's time.

    Attributes:
        out_of_memory: the last failure; None: there was none.
        unreadable: number of lines that could not be parsed.
    """

    def __init__(self, path: Path, heap: ObservedHeap, offset_ns: int) -> None:
        self.heap = heap
        self.out_of_memory: OutOfMemory | None = None
        self.unreadable = 0
        self._path = path
        self._offset_ns = offset_ns
        self._lines = LogLines()
        self._days = DayCount()
        self._place = 0
        self._rest = b""
        self._streams: dict[int, int] = {0: 0}

    def read(self) -> None:
        """Read the lines written since the last call, except for an incomplete one."""
        with self._path.open("rb") as file:
            file.seek(self._place)
            found = file.read()
        self._place += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            text = line.decode("ascii", "replace").strip()
            if text and not self._lines.take_header(text):
                self._take(text)

    def _take(self, line: str) -> None:
        try:
            request = self._lines.parse(line)
            when = self._days.time(request.time) + self._offset_ns
            self._report(request, when)
        except ValueError:
            self.unreadable += 1

    def _report(self, request: RmmRequest, when: int) -> None:
        stream = self._streams.setdefault(request.stream, min(len(self._streams), 0xFFFF))
        if request.action == FREE:
            self.heap.free(request.pointer, when)
        elif request.action == ALLOCATE:
            if request.size:
                self.heap.allocate(request.pointer, request.size, request.size, 0, stream, when)
        else:
            self.heap.oom(request.size, 0, stream, when)
            self.out_of_memory = OutOfMemory.of(request.size, self.heap.stats())
