"""The numbers of the holders pane at one step, kept where a step does not change them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.side.groupings import Groupings
from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import Colouring
from bfcviz.model import Model
from bfcviz.model.holders.holder_choice import HolderChoice
from bfcviz.model.holders.holder_index import ROOT, HolderAmounts, HolderIndex
from bfcviz.model.holders.holders import requested_known
from bfcviz.model.holders.last_mark import LastMark, LastMarks


@dataclass(frozen=True)
class HolderCount:
    """What the holders of one heap hold at a step.

    Attributes:
        index: the holders.
        amounts: what each holds.
        mark: the last mark before the step; None if there is none.
        growth: bytes since then, shape (nodes,); None without a mark.
        fills: the colour of each class of `amounts.main_class`.
        total: all bytes in use.
        waste_known: whether the trace has the requested bytes.
    """

    index: HolderIndex
    amounts: HolderAmounts
    mark: LastMark | None
    growth: NDArray[np.int64] | None
    fills: list[str]
    total: int
    waste_known: bool

    def share(self, num_bytes: int) -> float:
        """A part of all bytes in use, 0..1."""
        return num_bytes / self.total if self.total else 0.0

    def fill(self, node: int) -> str:
        """The colour of a holder: that of most of its bytes."""
        return self.fills[int(self.amounts.main_class[node])]

    def keys(self, column: str) -> NDArray[np.int64]:
        """The numbers of a column, by which holders are sorted; shape (nodes,)."""
        if column == "growth" and self.growth is not None:
            return self.growth
        if column == "waste":
            return self.wastes()
        return self.amounts.chunks if column == "chunks" else self.amounts.bytes

    def wastes(self) -> NDArray[np.int64]:
        """Bytes that were not requested, shape (nodes,)."""
        return self.amounts.bytes - self.amounts.requested

    def choice(self, node: int) -> HolderChoice:
        """The holder, as other views know it."""
        return HolderChoice(self.index.how.by, self.index.path(node))


class HolderCounts:
    """Counts the holders of one heap at any step.

    Attributes:
        groupings: what they can be found by.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self.trace, self.pool = trace, pool
        self._marks = LastMarks(trace, pool)
        self.groupings = Groupings(trace, pool, self._marks)
        self._indices: dict[str, HolderIndex] = {}
        self._waste_known = requested_known(trace, pool)

    def counts(self, model: Model) -> bool:
        """Whether it counts this model's holders."""
        return self.trace is model.trace and self.pool == model.pool

    def count(self, model: Model, by: str | None, colours: Colouring) -> HolderCount:
        """Count at the model's step.

        Args:
            model: the heap; it is not moved.
            by: what holders are found by; None, or a grouping that says nothing here: the most telling one.
            colours: give each holder its colour.
        """
        records = model.in_use()
        mark = self._marks.before(model.step)
        self.groupings.look_at(records)
        names = self.groupings.names
        index = self._index(by if by in names else names[0])
        classes = colours.classes(records, model.step)
        before = (
            None if mark is None else self._marks.bytes_at(mark, index)
        )  # first: the index may get holders
        amounts = index.count(records, classes, len(colours.paints))
        growth = None
        if before is not None:
            growth = amounts.bytes.copy()
            growth[: len(before)] -= before
        fills = [paint.fill for paint in colours.paints]
        return HolderCount(index, amounts, mark, growth, fills, int(amounts.bytes[ROOT]), self._waste_known)

    def _index(self, by: str) -> HolderIndex:
        how, new = self.groupings.get(by)
        if new:
            self._marks.forget(by)
            self._indices[by] = HolderIndex(how)
        return self._indices[by]
