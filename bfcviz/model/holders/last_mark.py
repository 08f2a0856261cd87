"""What each holder had at the last mark before a step: growth since then is the difference."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import matches
from bfcviz.model.browse.phases import phase_ends
from bfcviz.model.holders.holder_index import HolderIndex
from bfcviz.model.state.model import Model


@dataclass(frozen=True)
class LastMark:
    """A mark.

    Attributes:
        step: the step just after it.
        name: its name; of a phase, what it begins or ends.
    """

    step: int
    name: str


class LastMarks:
    """The marks of one heap, and the bytes of holders at the last one before a step.

    Each event is read once to find marks, and a mark is visited once: a model of its own moves there.

    Attributes:
        phases: how many of the marks begin or end a phase.
    """

    _KEPT = 16
    """Marks whose bytes are kept."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace, self._pool = trace, pool
        self.phases = 0
        self._searched = trace.first
        self._marks: list[LastMark] = []
        self._model: Model | None = None
        self._bytes: dict[tuple[str, int], NDArray[np.int64]] = {}

    def before(self, step: int) -> LastMark | None:
        """The last mark before `step`; None if there is none, or if the trace has dropped it."""
        self.search()
        place = bisect_left(self._marks, step, key=lambda mark: mark.step)
        if not place or self._marks[place - 1].step < self._trace.first:
            return None
        return self._marks[place - 1]

    def bytes_at(self, mark: LastMark, index: HolderIndex) -> NDArray[np.int64]:
        """The bytes of each node of `index` at a mark, shape (nodes,)."""
        key = index.how.by, mark.step
        known = self._bytes.pop(key, None)
        if known is None:
            self._model = self._model or Model(self._trace, self._pool)
            self._model.seek(mark.step)
            known = index.amounts(index.count(self._model.in_use())).bytes
        self._bytes[key] = known  # the newest is the last one
        if len(self._bytes) > self._KEPT:
            del self._bytes[next(iter(self._bytes))]
        return np.pad(known, (0, len(index) - len(known)))

    def forget(self, by: str) -> None:
        """Forget the bytes that were counted with another tree of the same grouping."""
        self._bytes = {key: known for key, known in self._bytes.items() if key[0] != by}

    def search(self) -> None:
        """Find the marks among events that are new."""
        stop = len(self._trace)
        for block in self._trace.blocks(max(self._searched, self._trace.first), stop):
            found = matches(block, [Kind.MARK], self._pool)
            if len(found):
                self._marks += self._named(block[found])
        self._searched = stop

    def _named(self, marks: Events) -> list[LastMark]:
        labels, found = self._trace.labels, []
        ends = phase_ends(marks, labels)
        for seq, label, end in zip(marks["seq"].tolist(), marks["label"].tolist(), ends, strict=True):
            name = labels.name(label) if end is None else f"{end.name} {end.side}"
            found.append(LastMark(seq + 1, name))
        self.phases += len(ends) - ends.count(None)
        return found
