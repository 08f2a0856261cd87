"""Growth of holders from mark to mark: what a holder had at two marks of one name, never between marks.

::

    marks "step"    |  1  |  2  |  3  |  4  |  here     a step's own memory comes and goes between the marks
    growth                ^ first           ^ last      what is kept is there at the last mark, and not at the first

A program does the same in each step, so it is at the same point of its work at all marks of one name. The first step
is its warm-up, where it has three marks or more.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.equal_steps import ALERT, chosen_name, plain_name
from bfcviz.model.holders import HolderIndex
from bfcviz.model.model import Model
from bfcviz.model.navigation import events_of, phase_ends


@dataclass(frozen=True)
class NamedMark:
    """A mark.

    Attributes:
        step: the step just after it.
        name: its name; of a phase, what it begins or ends.
    """

    step: int
    name: str


@dataclass(frozen=True)
class MarkPair:
    """Two marks that are compared.

    Attributes:
        first: the earlier one.
        last: the later one.
        apart: how many steps of the program lie between them: marks of this name, the last one included.
    """

    first: NamedMark
    last: NamedMark
    apart: int


class MarkGrowth:
    """The marks of one heap, and the growth of holders from one of them to another of the same name.

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
        self._marks: dict[str, list[NamedMark]] = defaultdict(list)  # by name without a number at its end
        self._model: Model | None = None
        self._bytes: dict[tuple[str, int], NDArray[np.int64]] = {}

    def pair(self, step: int) -> MarkPair | None:
        """The marks to compare at a step: those that separate the steps of the program, else the most frequent ones.

        None: up to this step no name has two marks, or the trace has dropped them.
        """
        self.search()
        there = {name: _between(marks, self._trace.first, step) for name, marks in self._marks.items()}
        repeated = {name: places for name, places in there.items() if len(places) > 1}
        if not repeated:
            return None
        name = chosen_name(repeated, None) or max(repeated, key=lambda each: len(repeated[each]))
        marks, places = self._marks[name], repeated[name]
        first, last = places[len(places) > 2], places[-1]
        return MarkPair(marks[first], marks[last], last - first)

    def growth(self, pair: MarkPair, index: HolderIndex) -> NDArray[np.int64]:
        """The bytes that each node of `index` gained from the first mark to the last, shape (nodes,)."""
        first, last = self._bytes_at(pair.first, index), self._bytes_at(pair.last, index)
        grown = np.zeros(len(index), np.int64)
        grown[: len(last)] += last
        grown[: len(first)] -= first
        return grown

    def _bytes_at(self, mark: NamedMark, index: HolderIndex) -> NDArray[np.int64]:
        """The bytes of each node at a mark; nodes that came later are left out."""
        key = index.how.by, mark.step
        known = self._bytes.pop(key, None)
        if known is None:
            self._model = self._model or Model(self._trace, self._pool)
            self._model.seek(mark.step)
            known = index.amounts(index.count(self._model.in_use())).bytes
        self._bytes[key] = known  # the newest is the last one
        if len(self._bytes) > self._KEPT:
            del self._bytes[next(iter(self._bytes))]
        return known

    def forget(self, by: str) -> None:
        """Forget the bytes that were counted with another tree of the same grouping."""
        self._bytes = {key: known for key, known in self._bytes.items() if key[0] != by}

    def search(self) -> None:
        """Find the marks among events that are new."""
        stop = len(self._trace)
        self._take(
            events_of(self._trace, [Kind.MARK], self._pool, max(self._searched, self._trace.first), stop)
        )
        self._searched = stop

    def _take(self, marks: Events) -> None:
        labels = self._trace.labels
        ends = phase_ends(marks, labels)
        for seq, label, end in zip(marks["seq"].tolist(), marks["label"].tolist(), ends, strict=True):
            name = plain = labels.name(label)
            if name.startswith(ALERT):
                continue
            if end is not None:
                name, plain = (f"{each} {end.side}" for each in (end.name, plain_name(end.name)))
            self._marks[plain_name(plain)].append(NamedMark(seq + 1, name))
        self.phases += len(ends) - ends.count(None)


def _between(marks: list[NamedMark], first: int, last: int) -> range:
    """The places of the marks at these steps, or between them."""

    def step_of(mark: NamedMark) -> int:
        return mark.step

    return range(bisect_left(marks, first, key=step_of), bisect_right(marks, last, key=step_of))
