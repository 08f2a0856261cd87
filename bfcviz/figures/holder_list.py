"""Who holds the memory of one heap at a step: what holders are found by, their numbers and colours, a list of rows."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin import holds_only_states, requested_bytes_known
from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import OTHER, Classify, Colouring
from bfcviz.model import Model
from bfcviz.model.grouping import Grouping, HolderChoice, grouping
from bfcviz.model.holders import (
    ROOT,
    HolderAmounts,
    HolderIndex,
    HolderMarkGrowth,
    HolderMarkPair,
    RunningCount,
)
from bfcviz.model.row_storage import CHUNK_ROW
from bfcviz.model.trace_index import known_index
from bfcviz.units import counted

# ------------------------------------------------------------------------------
# What holders of a trace can be found by: only what tells its allocations apart.

_KINDS_LAST: Final = 1 << 16
"""Events after which the lifetimes are found again, and the kinds, which depend on them."""

_DETAILS: Final = ("stack", "shape", "data_type")
_NUMBERS: Final = ("thread", "stream")


class HolderGroupings:
    """The groupings that the pane of holders offers for one heap; each is made once.

    Labels and events are looked at once: a growing trace may get more groupings.

    Attributes:
        mostly_unnamed: whether most memory has no label, of a history none at any step that was shown: then a list by
            label is one row that says nothing.
    """

    def __init__(self, trace: Trace, pool: int, marks: HolderMarkGrowth) -> None:
        self._trace, self._pool, self._marks = trace, pool, marks
        self._labels_seen, self._events_seen = 1, 0  # label 0 is no label
        self._first: dict[str, int] = {}  # the thread and the stream of the first allocation
        self._found: set[str] = set()
        self._made: dict[str, tuple[int, Grouping]] = {}
        self.mostly_unnamed = False
        self._of_torch = trace.origin.details.get("framework") == "torch"

    def update(self) -> None:
        """For the pane of holders: take in new labels, and the threads and streams of new events."""
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
        index = known_index(self._trace, self._pool)
        if index is not None:
            self._found.update(index.varied)
        elif not self._found.issuperset(_NUMBERS):
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
        """The groupings of holders that say something, the most telling first; never empty."""
        if "stack" in self._found and self._of_torch:
            self._found.add("kind")
        order = ("op", "kind", "stack", "phase", "shape", "data_type", "thread", "stream")
        found = [name for name in order if name in self._found]
        if self.has_names and not self.mostly_unnamed:
            return found
        lifetime = [] if holds_only_states(self._trace.origin.details) else ["lifetime"]
        return ["size", *lifetime, *found]

    @property
    def has_names(self) -> bool:
        """Whether any memory has the name of a holder."""
        return bool(self._found & {"op", "stack"})

    def get(self, by: str) -> tuple[Grouping, bool]:
        """A grouping of holders, and whether it is new: later phases need one, others come again by `_KINDS_LAST`."""
        later = len(self._trace) // _KINDS_LAST
        versions = {"phase": self._marks.phases, "kind": later, "lifetime": later}
        version = versions.get(by, 0)
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
    """What the pane counts of the holders of one heap at a step."""

    index: HolderIndex  # the holders
    amounts: HolderAmounts  # what each holds
    marks: HolderMarkPair | None  # the marks that `growth` compares; None: there are no two of one name
    # bytes gained from the first of them to the last, shape (nodes,); None without them
    growth: NDArray[np.int64] | None
    # the class of the colouring with most of its bytes, by holder at the first step with any; shape (nodes,); -1: none
    classes: NDArray[np.intp]
    fills: list[str]  # the colour of each class
    total: int  # all bytes in use
    waste_known: bool  # whether the trace has the requested bytes

    def share(self, num_bytes: int) -> float:
        """The part of all bytes in use, 0..1, that these bytes of holders are."""
        return num_bytes / self.total if self.total else 0.0

    def fill(self, node: int) -> str:
        """The colour of a holder."""
        return self.fills[int(self.classes[node])]

    def keys(self, column: str) -> NDArray[np.int64]:
        """The numbers of a column, by which holders are sorted; shape (nodes,)."""
        if column == "growth" and self.growth is not None:
            return self.growth
        if column == "waste":
            return self.wastes()
        return self.amounts.chunks if column == "chunks" else self.amounts.bytes

    def wastes(self) -> NDArray[np.int64]:
        """Bytes of each holder that were not requested, shape (nodes,)."""
        return self.amounts.bytes - self.amounts.requested

    def choice(self, node: int) -> HolderChoice:
        """The chosen holder, as other views know it."""
        return HolderChoice(self.index.how.by, self.index.path(node))


class HolderCounts:
    """Counts the holders of one heap for the pane, at any step."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self.trace, self.pool = trace, pool
        self._marks = HolderMarkGrowth(trace, pool)
        self.groupings = HolderGroupings(trace, pool, self._marks)  # what they can be found by
        self._indices: dict[str, tuple[HolderIndex, RunningCount]] = {}
        # by grouping: how labels had classes, and the class of each holder at the first step with any
        self._first_classes: dict[str, tuple[Classify, NDArray[np.intp]]] = {}
        self._names_read = 0  # the step up to which labels that had memory were looked for
        self._names_seen: set[int] = set()  # these labels
        self.named = False  # whether any memory had a name at a step that was counted
        self._waste_known = requested_bytes_known(trace.origin.details, pool)

    def counts(self, model: Model) -> bool:
        """Whether it counts this model's holders."""
        return self.trace is model.trace and self.pool == model.pool

    def count(
        self, model: Model, by: str | None, colours: Colouring, *, growth_wanted: bool = True
    ) -> HolderCount:
        """Count the holders at the model's step.

        Args:
            model: the heap; it is not moved.
            by: what holders are found by; None, or a grouping that says nothing here: the most telling one.
            colours: give each holder its colour.
            growth_wanted: whether to count what holders gained from mark to mark, which reads all marks.
        """
        marks = self._marks.pair(model.step) if growth_wanted else None
        self.groupings.update()
        is_state = holds_only_states(self.trace.origin.details)
        # A history that has shown a name has names: a share of them would differ at each step.
        if is_state or not self.named:
            bytes_by_label = self._index("op")[1].at(model)[0]
            unnamed, total = int(bytes_by_label[:1].sum()), int(bytes_by_label.sum())
            self.named |= total > unnamed
            self.groupings.mostly_unnamed = 2 * unnamed > total if is_state else total > 0 and not self.named
        names = self.groupings.names
        index, running = self._index(by if by in names else names[0])
        self._see_other_names(index)
        by_code = running.at(model)
        growth = None if marks is None else self._marks.growth(marks, index)
        amounts = index.amounts(by_code)  # after both, which may add holders
        classes = _holder_classes(index, by_code[0], model, colours)
        if colours.name == "holder":
            classes = self._first_seen(index, classes, colours)
        fills = [paint.fill for paint in colours.paints]
        total = int(amounts.bytes[ROOT])
        return HolderCount(index, amounts, marks, growth, classes, fills, total, self._waste_known)

    def _first_seen(
        self, index: HolderIndex, classes: NDArray[np.intp], colours: Colouring
    ) -> NDArray[np.intp]:
        """The class of each holder when it was first seen: it keeps its colour while the step moves."""
        classify, known = self._first_classes.get(index.how.by, (colours.classify, classes[:0]))
        if classify is not colours.classify:
            known = _still_first_classes(index, known, colours)
        found = classes.copy()
        found[: len(known)] = np.where(known >= 0, known, classes[: len(known)])
        self._first_classes[index.how.by] = colours.classify, found
        return found

    def _see_other_names(self, index: HolderIndex) -> None:
        """Add to an index those holders of the trace that tell what all of them share, whatever the step shows."""
        if index.how.by != "op" or not index.shared or self._names_read == len(self.trace):
            return
        known, stop, found = known_index(self.trace, self.pool), len(self.trace), set[int]()
        if known is not None:
            found.update(np.flatnonzero(known.byte_steps).tolist())
        else:
            for block in self.trace.blocks(max(self._names_read, self.trace.first), stop):
                mine = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self.pool)
                found.update(np.flatnonzero(np.bincount(block["label"][mine])).tolist())
        for label in found - self._names_seen:  # once each: what all share only gets shorter
            index.see_what_differs(label)
        self._names_read, self._names_seen = stop, self._names_seen | found

    def _index(self, by: str) -> tuple[HolderIndex, RunningCount]:
        how, new = self.groupings.get(by)
        if new:
            self._first_classes.pop(by, None)
            self._marks.forget(by)
            index = HolderIndex(how)
            self._indices[by] = index, RunningCount(index)
        return self._indices[by]


def _holder_classes(
    index: HolderIndex, bytes_by_code: NDArray[np.int64], model: Model, colours: Colouring
) -> NDArray[np.intp]:
    """The class of most bytes of each holder, whose colour the pane gives it."""
    by = "label" if index.how.by in _BY_LABEL else index.how.by
    if by == (_BY_FIELD.get(colours.name) or colours.name):
        # All chunks of a code have the same class.
        codes = np.flatnonzero(bytes_by_code)
        records = np.zeros(len(codes), CHUNK_ROW)
        records[by] = codes
        return index.main_class(codes, colours.classes(records, model.step), bytes_by_code[codes])
    chunks = model.chunks()
    every = max(len(chunks) // _SAMPLE, 1)
    looked_at = np.arange(0, len(chunks), every)
    if every > 1:  # with the largest, which may be the only ones of their holder
        looked_at = np.union1d(looked_at, np.argpartition(chunks["size"], -_LARGEST)[-_LARGEST:])
    records = taken(chunks, looked_at[chunks["in_use"][looked_at]])
    return index.main_class(index.codes(records), colours.classes(records, model.step), records["size"])


def _still_first_classes(index: HolderIndex, known: NDArray[np.intp], colours: Colouring) -> NDArray[np.intp]:
    """The `known` classes of holders that labels in them still have; -1: none, or the grey one of the others.

    As a trace grows, labels that were grey get a colour, and others a colour apart from that of the holder around them.
    """
    known = np.where(known == OTHER, -1, known)
    if index.how.by not in _BY_LABEL:
        return known
    codes = np.flatnonzero(index.leaves >= 0)
    records = np.zeros(len(codes), CHUNK_ROW)
    records["label"] = codes
    return np.where(index.any_of_class(codes, colours.classes(records, 0), known), known, -1)


_BY_LABEL: Final = frozenset({"op", "line", "stack", "shape", "data_type"})
"""Groupings whose codes are the numbers of labels."""

_BY_FIELD: Final = {"holder": "label"}
"""Colouring -> the field of a chunk that its classes depend on, where it has another name."""

_LARGEST: Final = 1_000  # chunks that are looked at in any case
_SAMPLE: Final = 100_000  # chunks whose colours are looked at; of more chunks every second, third, ... one.


# ------------------------------------------------------------------------------
# Which holders to show: a few rows of the largest ones, with the largest inside them, and the rest together.

MOST: Final = 24
"""Rows at the left."""


def other_holders_name(holders: int) -> str:
    """The name of the row of all small holders together."""
    return f"other ({counted(holders, 'holder')})"


_MOST_INSIDE: Final = 8  # rows below one row
_LEAST_ROW: Final = 0.004  # of all bytes in use: smaller holders are shown together
_LEAST_INSIDE: Final = 0.02
_LEAST_OPEN_ROW: Final = 0.08  # a smaller holder shows no rows below it
_TRUNK: Final = 0.98  # a holder with this part of the bytes around it is the only one that matters


@dataclass(frozen=True)
class HolderRow:
    """One row of the list of holders."""

    # of the `HolderIndex`, the innermost with all its chunks: its colour and growth are of what it is called;
    # -1 for all small holders together
    node: int
    name: str  # its path without those of the rows around it
    depth: int  # 0 or 1
    holders: int  # how many different paths it has


@dataclass(frozen=True)
class HolderRowChooser:
    """Chooses and sorts the rows that the pane of holders shows."""

    # index, amounts: the holders, and what each holds
    index: HolderIndex
    amounts: HolderAmounts
    key: NDArray[np.int64]  # the number of each node; rows are those with the largest, shape (nodes,)
    by_name: bool = False  # sort these rows by their names
    ascending: bool = False  # the smallest first

    def rows(self) -> list[HolderRow]:
        """The rows of the list of holders, in order; no rows where nothing is in use."""
        trunk = self.fork(ROOT)
        # The map has the names of ops: the list leaves out no more of them than what says nothing at any step.
        start = self.index.shared if self.index.how.by == "op" else len(self.index.path(trunk))
        top = self.named(self.largest(trunk, _LEAST_ROW)[:MOST], 0, start)
        rows: list[HolderRow] = []
        for row in self.sorted(top):
            rows += [row, *self.sorted(self.inside(row.node, start))]
        outside = int(self.amounts.holders[ROOT]) - sum(row.holders for row in top)
        return [*rows, HolderRow(-1, "", 0, outside)] if outside else rows

    def sorted(self, rows: list[HolderRow]) -> list[HolderRow]:
        """Rows of holders, which are sorted by the key, in the order wanted."""
        if self.by_name:
            rows = sorted(rows, key=lambda row: row.name.casefold(), reverse=True)
        return rows[::-1] if self.ascending else rows

    def inside(self, node: int, start: int) -> list[HolderRow]:
        """The rows below a row of holders; none where it is small, or has only one large part."""
        if self.amounts.bytes[node] < _LEAST_OPEN_ROW * self.amounts.bytes[ROOT]:
            return []
        children = self.largest(self.fork(node), _LEAST_INSIDE)[:_MOST_INSIDE]
        return self.named(children, 1, max(start, len(self.index.path(node)))) if len(children) > 1 else []

    def largest(self, node: int, least: float) -> list[int]:
        """The holders below with the largest keys, of those with at least this part of all bytes in use."""
        bytes_in_use, key = self.amounts.bytes, self.key
        children = np.array(self.index.children[node], np.intp)
        in_use = children[self.amounts.chunks[children] > 0].tolist()
        children = np.array([self.amounts.innermost(self.index, child) for child in in_use], np.intp)
        bound = least * int(bytes_in_use[ROOT])
        wanted = children[(bytes_in_use[children] >= bound) | (key[children] > bound)]
        found: list[int] = wanted[np.lexsort((wanted, -bytes_in_use[wanted], -key[wanted]))].tolist()
        return found

    def fork(self, node: int) -> int:
        """The first holder, from this one down, that has no child with nearly all of its memory."""
        bytes_in_use = self.amounts.bytes
        while self.index.children[node]:
            largest = max(self.index.children[node], key=lambda child: int(bytes_in_use[child]))
            if not self.index.children[largest] or bytes_in_use[largest] < _TRUNK * bytes_in_use[node]:
                break
            node = largest
        return node

    def named(self, nodes: list[int], depth: int, start: int) -> list[HolderRow]:
        """A row for each holder, named by its path from part `start` on."""
        holders = self.amounts.holders
        return [
            HolderRow(node, self.index.how.text(self.index.path(node)[start:]), depth, int(holders[node]))
            for node in nodes
        ]
