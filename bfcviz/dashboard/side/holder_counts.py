"""The numbers of the holders pane at one step, kept where a step does not change them."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.side.groupings import Groupings
from bfcviz.events.origin_details import requested_bytes_known
from bfcviz.events.row_copy import taken
from bfcviz.events.trace import Trace
from bfcviz.figures.style.colouring import Colouring
from bfcviz.model import Model
from bfcviz.model.holders.holder_choice import HolderChoice
from bfcviz.model.holders.holder_index import ROOT, HolderAmounts, HolderIndex
from bfcviz.model.holders.mark_growth import MarkGrowth, MarkPair
from bfcviz.model.holders.running_count import RunningCount
from bfcviz.model.state.row_storage import CHUNK_ROW


@dataclass(frozen=True)
class HolderCount:
    """What the holders of one heap hold at a step.

    Attributes:
        index: the holders.
        amounts: what each holds.
        marks: the marks that `growth` compares; None: there are no two of one name.
        growth: bytes gained from the first of them to the last, shape (nodes,); None without them.
        classes: the class of the colouring with most of its bytes, shape (nodes,); -1: none is known.
        fills: the colour of each class.
        total: all bytes in use.
        waste_known: whether the trace has the requested bytes.
    """

    index: HolderIndex
    amounts: HolderAmounts
    marks: MarkPair | None
    growth: NDArray[np.int64] | None
    classes: NDArray[np.intp]
    fills: list[str]
    total: int
    waste_known: bool

    def share(self, num_bytes: int) -> float:
        """A part of all bytes in use, 0..1."""
        return num_bytes / self.total if self.total else 0.0

    def fill(self, node: int) -> str:
        """The colour of a holder: that of most of its bytes."""
        return self.fills[int(self.classes[node])]

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
        self._marks = MarkGrowth(trace, pool)
        self.groupings = Groupings(trace, pool, self._marks)
        self._indices: dict[str, tuple[HolderIndex, RunningCount]] = {}
        self._waste_known = requested_bytes_known(trace.origin.details, pool)

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
        marks = self._marks.pair(model.step)
        self.groupings.update()
        names = self.groupings.names
        index, running = self._index(by if by in names else names[0])
        by_code = running.at(model)
        growth = None if marks is None else self._marks.growth(marks, index)
        amounts = index.amounts(by_code)  # after both, which may add holders
        classes = _main_class(index, by_code[0], model, colours)
        fills = [paint.fill for paint in colours.paints]
        total = int(amounts.bytes[ROOT])
        return HolderCount(index, amounts, marks, growth, classes, fills, total, self._waste_known)

    def _index(self, by: str) -> tuple[HolderIndex, RunningCount]:
        how, new = self.groupings.get(by)
        if new:
            self._marks.forget(by)
            index = HolderIndex(how)
            self._indices[by] = index, RunningCount(index)
        return self._indices[by]


def _main_class(
    index: HolderIndex, bytes_by_code: NDArray[np.int64], model: Model, colours: Colouring
) -> NDArray[np.intp]:
    """The class of most bytes of each node."""
    by = "label" if index.how.by in _BY_LABEL else index.how.by
    if by == (_BY_FIELD.get(colours.name) or colours.name):
        # All chunks of a code have the same class.
        codes = np.flatnonzero(bytes_by_code)
        records = np.zeros(len(codes), CHUNK_ROW)
        records[by] = codes
        return index.main_class(codes, colours.classes(records, model.step), bytes_by_code[codes])
    chunks = model.chunks()
    every = max(len(chunks) // _SAMPLE, 1)
    records = taken(chunks, np.flatnonzero(chunks["in_use"][::every]) * every)
    return index.main_class(index.codes(records), colours.classes(records, model.step), records["size"])


_BY_LABEL: Final = frozenset({"op", "stack", "shape", "data_type"})
"""Groupings whose codes are the numbers of labels."""

_BY_FIELD: Final = {"holder": "label"}
"""Colouring -> the field of a chunk that its classes depend on, where it has another name."""

_SAMPLE: Final = 100_000
"""Chunks whose colours are looked at; of more chunks every second, third, ... one."""
