"""What holders of a trace can be found by: only what tells its allocations apart."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.holders.last_mark import LastMarks

_DETAILS: Final = ("stack", "shape", "data_type")


class Groupings:
    """The groupings of one heap that say something; each is made once.

    Labels and chunks are looked at once: a growing trace may get more groupings.
    """

    def __init__(self, trace: Trace, pool: int, marks: LastMarks) -> None:
        self._trace, self._pool, self._marks = trace, pool, marks
        self._labels_seen = 1  # 0 is no label
        self._found: set[str] = set()
        self._made: dict[str, tuple[int, Grouping]] = {}

    def look_at(self, records: NDArray[np.void]) -> None:
        """Take in new labels, and the threads and streams of these records."""
        labels = self._trace.labels
        for number in range(self._labels_seen, len(labels)):
            label = labels[number]
            if label.name:
                self._found.add("op")
            self._found.update(name for name in _DETAILS if label.details.get(name))
        self._labels_seen = len(labels)
        for name in ("thread", "stream"):
            if name not in self._found and len(records) and int(np.ptp(records[name])):
                self._found.add(name)
        if self._marks.phases:
            self._found.add("phase")

    @property
    def names(self) -> list[str]:
        """Those that say something, the most telling first; never empty."""
        order = ("op", "stack", "phase", "shape", "data_type", "thread", "stream")
        return [name for name in order if name in self._found] or ["op"]

    def get(self, by: str) -> tuple[Grouping, bool]:
        """A grouping, and whether it is a new one: phases that begin later need a new one."""
        version = self._marks.phases if by == "phase" else 0
        known = self._made.get(by)
        if known is not None and known[0] == version:
            return known[1], False
        made = grouping(self._trace, self._pool, by)
        self._made[by] = version, made
        return made, True
