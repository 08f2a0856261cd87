"""What holders of a trace can be found by: only what tells its allocations apart."""

from typing import Final

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.holders.mark_growth import MarkGrowth

_DETAILS: Final = ("stack", "shape", "data_type")
_NUMBERS: Final = ("thread", "stream")


class Groupings:
    """The groupings of one heap that say something; each is made once.

    Labels and events are looked at once: a growing trace may get more groupings.
    """

    def __init__(self, trace: Trace, pool: int, marks: MarkGrowth) -> None:
        self._trace, self._pool, self._marks = trace, pool, marks
        self._labels_seen, self._events_seen = 1, 0  # label 0 is no label
        self._first: dict[str, int] = {}  # the thread and the stream of the first allocation
        self._found: set[str] = set()
        self._made: dict[str, tuple[int, Grouping]] = {}

    def update(self) -> None:
        """Take in new labels, and the threads and streams of new events."""
        labels = self._trace.labels
        for number in range(self._labels_seen, len(labels)):
            label = labels[number]
            if label.name:
                self._found.add("op")
            self._found.update(name for name in _DETAILS if label.details.get(name))
        self._labels_seen = len(labels)
        if self._marks.phases:
            self._found.add("phase")
        stop = len(self._trace)
        if not self._found.issuperset(_NUMBERS):
            for block in self._trace.blocks(max(self._events_seen, self._trace.first), stop):
                self._look_at(block)
        self._events_seen = stop

    def _look_at(self, block: Events) -> None:
        allocations = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self._pool)
        for name in _NUMBERS:
            values = block[name][allocations]
            if name not in self._found and len(values):
                first = self._first.setdefault(name, int(values[0]))
                if (values != first).any():
                    self._found.add(name)

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
