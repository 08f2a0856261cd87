"""Which holders to show: a few rows of the largest ones, with the largest inside them, and the rest together.

::

    gradient_tape                  52 %      a row holds all that its path holds
      conv2d_4/Conv2DBackprop      36 %      the rows below it are its largest parts, not all of them
    functional_1                   44 %
    other (6 holders)               4 %      with it, the rows at the left have all bytes in use
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin import requested_bytes_known
from bfcviz.events.row_copy import taken
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Colouring
from bfcviz.model import Model
from bfcviz.model.grouping import Grouping, HolderChoice, Path, grouping
from bfcviz.model.holder_index import ROOT, HolderAmounts, HolderIndex, RunningCount
from bfcviz.model.mark_growth import MarkGrowth, MarkPair
from bfcviz.model.row_storage import CHUNK_ROW

# ------------------------------------------------------------------------------
# What holders of a trace can be found by: only what tells its allocations apart.

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


# ------------------------------------------------------------------------------
# The numbers of the holders pane at one step, kept where a step does not change them.


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


# ------------------------------------------------------------------------------
# Which holders to show: a few rows of the largest ones, with the largest inside them, and the rest together.

MOST: Final = 24
"""Rows at the left."""

_MOST_INSIDE: Final = 8  # rows below one row
_LEAST: Final = 0.004  # of all bytes in use: smaller holders are shown together
_LEAST_INSIDE: Final = 0.02
_LEAST_OPEN: Final = 0.08  # a smaller holder shows no rows below it
_TRUNK: Final = 0.98  # a holder with this part of the bytes around it is the only one that matters


@dataclass(frozen=True)
class HolderRow:
    """One row.

    Attributes:
        node: of the `HolderIndex`; -1 for all small holders together.
        name: its path without those of the rows around it.
        depth: 0 or 1.
        holders: how many different paths it has.
    """

    node: int
    name: str
    depth: int
    holders: int


@dataclass(frozen=True)
class RowOrder:
    """How rows are chosen and sorted.

    Attributes:
        key: the number of each node; rows are those with the largest, shape (nodes,).
        by_name: sort these rows by their names.
        ascending: the smallest first.
    """

    key: NDArray[np.int64]
    by_name: bool = False
    ascending: bool = False

    def sorted(self, rows: list[HolderRow]) -> list[HolderRow]:
        """Rows, which are sorted by the key, in the order wanted."""
        if self.by_name:
            rows = sorted(rows, key=lambda row: row.name.casefold(), reverse=True)
        return rows[::-1] if self.ascending else rows


def holder_rows(index: HolderIndex, amounts: HolderAmounts, order: RowOrder) -> list[HolderRow]:
    """The rows in order; no rows where nothing is in use."""
    return _Chooser(index, amounts, order).rows()


@dataclass(frozen=True)
class _Chooser:
    index: HolderIndex
    amounts: HolderAmounts
    order: RowOrder

    def rows(self) -> list[HolderRow]:
        trunk = self.fork(ROOT)
        start = len(self.index.path(trunk))
        top = self.named(self.largest(trunk, _LEAST)[:MOST], 0, start)
        rows: list[HolderRow] = []
        for row in self.order.sorted(top):
            rows += [row, *self.order.sorted(self.inside(row.node, start))]
        outside = int(self.amounts.holders[ROOT]) - sum(row.holders for row in top)
        return [*rows, HolderRow(-1, "", 0, outside)] if outside else rows

    def inside(self, node: int, start: int) -> list[HolderRow]:
        """The rows below a row; none where it is small, or has only one large part."""
        if self.amounts.bytes[node] < _LEAST_OPEN * self.amounts.bytes[ROOT]:
            return []
        children = self.largest(self.fork(node), _LEAST_INSIDE)[:_MOST_INSIDE]
        return self.named(children, 1, max(start, len(self.name_path(node)))) if len(children) > 1 else []

    def largest(self, node: int, least: float) -> list[int]:
        """The nodes below with the largest keys, of those with at least this part of all bytes in use."""
        bytes_in_use, key = self.amounts.bytes, self.order.key
        children = np.array(self.index.children[node], np.intp)
        children = children[self.amounts.chunks[children] > 0]
        bound = least * int(bytes_in_use[ROOT])
        wanted = children[(bytes_in_use[children] >= bound) | (key[children] > bound)]
        found: list[int] = wanted[np.lexsort((wanted, -bytes_in_use[wanted], -key[wanted]))].tolist()
        return found

    def fork(self, node: int) -> int:
        """The first node, from this one down, that has no child with nearly all of its memory."""
        bytes_in_use = self.amounts.bytes
        while self.index.children[node]:
            largest = max(self.index.children[node], key=lambda child: int(bytes_in_use[child]))
            if not self.index.children[largest] or bytes_in_use[largest] < _TRUNK * bytes_in_use[node]:
                break
            node = largest
        return node

    def name_path(self, node: int) -> Path:
        """The path of a node, with the parts below it that alone hold all of its memory."""
        while (only := self.amounts.only_child(self.index, node)) is not None:
            node = only
        return self.index.path(node)

    def named(self, nodes: list[int], depth: int, start: int) -> list[HolderRow]:
        """A row for each node, named by its path from part `start` on."""
        holders = self.amounts.holders
        return [
            HolderRow(node, self.index.text(self.name_path(node)[start:]), depth, int(holders[node]))
            for node in nodes
        ]
