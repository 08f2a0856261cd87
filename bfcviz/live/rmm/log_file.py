"""LogFile: read the CSV log of RMM's logging adaptor as it grows, and write its events to an ObservedHeap."""

from pathlib import Path
from typing import Final

from bfcviz.errors import OutOfMemory
from bfcviz.live.common.observed_heap import ObservedHeap

UNIT: Final = 256
"""RMM's alignment: sizes are rounded up to it."""

_DAY_NS: Final = 86_400_000_000_000


class LogFile:
    """One device's log, a CSV file that grows: `Thread,Time,Action,Pointer,Size,Stream`, without a date.

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
        self._last_ns = -1
        self._place = 0
        self._rest = b""
        self._streams: dict[str, int] = {"0": 0, "0x0": 0}

    def read(self) -> None:
        """Read the lines written since the last call, except for an incomplete one."""
        with self._path.open("rb") as file:
            file.seek(self._place)
            found = file.read()
        self._place += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            if line.strip() and not line.startswith(b"Thread,"):
                self._take(line.decode("ascii", "replace").strip())

    def _take(self, line: str) -> None:
        try:
            _, clock, action, pointer, size, stream = line.split(",")
            when, number = self._time(clock), self._stream(stream)
            if action == "allocate":
                if int(size):
                    self.heap.allocate(int(pointer, 16), int(size), int(size), 0, number, when)
            elif action in ("free", "deallocate"):
                self.heap.free(0 if pointer == "(nil)" else int(pointer, 16), when)
            elif action == "allocate failure":
                self._fail(int(size), number, when)
            else:
                self.unreadable += 1
        except ValueError:
            self.unreadable += 1

    def _fail(self, requested: int, stream: int, when: int) -> None:
        self.heap.oom(requested, 0, stream, when)
        self.out_of_memory = OutOfMemory.of(requested, self.heap.stats())

    def _time(self, clock: str) -> int:
        """Nanoseconds of the heap's clock; RMM's clock restarts at midnight."""
        hours, minutes, seconds = clock.replace(".", ":").split(":", 2)
        whole, _, micros = seconds.partition(":")
        found = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000_000 + int(micros or 0) * 1000
        if found < self._last_ns - _DAY_NS // 2:
            self._offset_ns += _DAY_NS
        self._last_ns = found
        return found + self._offset_ns

    def _stream(self, handle: str) -> int:
        """The number of a stream, in order of first use; 0: the default stream."""
        return self._streams.setdefault(handle, min(len(self._streams) - 1, 0xFFFF))
