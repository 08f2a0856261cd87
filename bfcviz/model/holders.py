"""Holders: who holds the memory in use at one step, and what they gain from mark to mark."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import AnswerTable, TableAnswer
from bfcviz.errors import TraceError
from bfcviz.events.marks import ALERT, phase_ends
from bfcviz.events.origin import chunks_known, requested_bytes_known
from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace
from bfcviz.extras import arrow
from bfcviz.model.equal_steps import plain_step_name, step_marks_name
from bfcviz.model.find_steps import events_of
from bfcviz.model.grouping import UNNAMED, Grouping, Path, grouping
from bfcviz.model.model import Model
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from pyarrow import Table


# ------------------------------------------------------------------------------
# The holders of one heap as a tree that grows: the bytes of each holder at any step, in time that few chunks take.
#
# `holders` builds a new tree for each step; this keeps the tree, so that a view can count again at every step.

ROOT = 0
"""The node of all memory in use."""


@dataclass(frozen=True)
class HolderAmounts:
    """What each node of a `HolderIndex` holds at one step, with the nodes below it; arrays of shape (nodes,).

    Attributes:
        bytes: bytes of its chunks.
        requested: bytes that were requested for them.
        chunks: number of chunks.
        holders: different paths that have chunks.
    """

    bytes: NDArray[np.int64]
    requested: NDArray[np.int64]
    chunks: NDArray[np.int64]
    holders: NDArray[np.int64]

    def innermost(self, index: "HolderIndex", node: int) -> int:
        """The innermost of a holder and those inside it that holds all its chunks."""
        held = int(self.chunks[node])
        while held:
            below = (child for child in index.children[node] if self.chunks[child] == held)
            child = next(below, None)
            if child is None:
                break
            node = child
        return node


class HolderIndex:
    """All holders seen so far; a node keeps its number.

    Attributes:
        how: the grouping.
        parents: the node around each node; -1 for the first.
        names: the last part of its path; None: memory without a name, and the first node.
        children: the nodes directly below.
        leaves: the node of each code; -1: the code was not seen yet.
    """

    def __init__(self, how: Grouping) -> None:
        self.how = how
        self.parents, self.names, self.children = [-1], [None], [[]]  # type: list[int], list[str | None], list[list[int]]
        self._known: dict[tuple[int, str | None], int] = {}
        self.leaves = np.zeros(0, np.intp)
        self._own: dict[int, None] = {}  # the nodes that are the leaf of a code
        self._paired = 0  # of `_own`, those in `_pairs`
        self._pairs = np.zeros((2, 0), np.intp)  # each leaf with itself and every node around it

    def __len__(self) -> int:
        return len(self.names)

    def path(self, node: int) -> Path:
        """The names from the outermost holder to a node of the index; empty for the first node."""
        found = []
        while node > ROOT:
            found.append(self.names[node])
            node = self.parents[node]
        return tuple(reversed(found))

    @property
    def shared(self) -> int:
        """How many first parts of the paths are the same for all holders seen so far; each has one more part."""
        node, length = ROOT, 0
        while len(self.children[node]) == 1 and self.children[node][0] not in self._own:
            node, length = self.children[node][0], length + 1
        return length

    def see_what_differs(self, code: int) -> None:
        """Add the holder of a code to the index if it does not share the first parts of the others' paths."""
        node, path = ROOT, self.how.path(code)
        for part in path[: self.shared]:
            child = self._known.get((node, part))
            if child is None:
                break
            node = child
        else:
            if len(path) > self.shared:
                return
        self._node(path)

    def count(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Sums of records by the index's code, for `amounts`: bytes, requested bytes and number, shape (3, codes).

        Args:
            records: chunks in use, or events of allocations, with `size`, `requested` and what the grouping needs.
        """
        codes = self.codes(records)
        found = np.zeros((3, len(self.leaves)), np.int64)
        # bincount's weights would be float64, exact only to 8 PiB.
        np.add.at(found[0], codes, records["size"].astype(np.int64))
        np.add.at(found[1], codes, records["requested"].astype(np.int64))
        found[2] = np.bincount(codes, minlength=len(self.leaves))
        return found

    def amounts(self, by_code: NDArray[np.int64]) -> HolderAmounts:
        """What each node of the index of holders holds; `by_code` as `count` gives it."""
        own = np.zeros((4, len(self)), np.int64)
        present = np.flatnonzero(by_code[2])
        for row in range(3):
            np.add.at(own[row], self.leaves[present], by_code[row, present])
        own[3] = own[2] > 0
        return HolderAmounts(*self._summed(own))

    def gone(self, amounts: HolderAmounts, growth: NDArray[np.int64]) -> NDArray[np.int64]:
        """The part of the growth of each holder that is of paths without chunks, and how many: shape (2, nodes)."""
        parents = np.array(self.parents[1:], np.intp)
        own = np.stack([growth, amounts.chunks])
        for row in own:
            np.subtract.at(row, parents, row[1:].copy())
        grown = np.where(own[1], 0, own[0])
        return self._summed(np.stack([grown, grown != 0]))

    def main_class(
        self, codes: NDArray[np.intp], classes: NDArray[np.integer], weights: NDArray[np.integer]
    ) -> NDArray[np.intp]:
        """Of each holder the class with the largest sum of weights, shape (nodes,); -1 where it has none.

        Args:
            codes: of records, as `codes` gives them, or of which each occurs once, shape (n,).
            classes: the class of each, shape (n,).
            weights: the weight of each, shape (n,).
        """
        number = int(classes.max(initial=0)) + 1
        length = len(self.leaves)
        by_code = np.bincount(classes.astype(np.intp) * length + codes, weights, number * length)
        by_code = by_code.reshape(number, length)
        present = np.flatnonzero(by_code.any(axis=0))
        own = np.zeros((number, len(self)))
        for row in range(number):
            np.add.at(own[row], self.leaves[present], by_code[row, present])
        summed = self._summed(own)
        found: NDArray[np.intp] = np.where(summed.any(axis=0), summed.argmax(axis=0), -1)
        return found

    def any_of_class(
        self, codes: NDArray[np.intp], classes: NDArray[np.integer], wanted: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Whether any code in each of the first holders has the class `wanted` of it, shape of `wanted`; -1 is none.

        Args:
            codes: that were seen, shape (n,).
            classes: the class of each, shape (n,).
            wanted: of the first nodes.
        """
        own = np.zeros((max(classes.max(initial=0), wanted.max(initial=0)) + 1, len(self)), np.bool_)
        own[classes, self.leaves[codes]] = True
        leaves, nodes = self._ancestors()
        old = nodes < len(wanted)
        leaves, nodes = leaves[old], nodes[old]
        found = np.zeros(len(wanted), np.bool_)
        found[nodes[own[wanted[nodes], leaves]]] = True
        return found & (wanted >= 0)

    def _summed(self, own: NDArray[Any]) -> NDArray[Any]:
        """The sums of each node and all nodes below it, shape (rows, nodes); `own`: those of leaves."""
        leaves, nodes = self._ancestors()
        found = np.zeros_like(own)
        for row in range(len(own)):
            np.add.at(found[row], nodes, own[row, leaves])
        return found

    def codes(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The codes of records in the index of holders; each has a leaf afterwards."""
        codes = self.how.codes(records).astype(np.intp)
        highest = int(codes.max(initial=-1))
        if highest >= len(self.leaves):
            more = np.full(highest + 1 - len(self.leaves), -1, np.intp)
            self.leaves = np.concatenate([self.leaves, more])
        unknown = codes[self.leaves[codes] < 0]
        for code in np.flatnonzero(np.bincount(unknown)).tolist():  # np.unique takes ten times as long
            self.leaves[code] = self._node(self.how.path(code))
        return codes

    def _node(self, path: Path) -> int:
        node = ROOT
        for part in path:
            key = node, part
            child = self._known.get(key)
            if child is None:
                child = self._known[key] = len(self.names)
                self.parents.append(node)
                self.names.append(part)
                self.children.append([])
                self.children[node].append(child)
            node = child
        self._own[node] = None
        return node

    def _ancestors(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each leaf of the index as often as it has holders around it, itself included; and these."""
        new = []
        for leaf in islice(self._own, self._paired, None):
            node = leaf
            while node >= ROOT:
                new.append((leaf, node))
                node = self.parents[node]
        if new:
            self._pairs = np.concatenate([self._pairs, np.array(new, np.intp).T], axis=1)
            self._paired = len(self._own)
        return self._pairs[0], self._pairs[1]


# ------------------------------------------------------------------------------
# Sums of the chunks in use by holder, from step to step: only the events between two near steps are read.

_NEAR: Final = 8192
"""Events between two steps: to read more takes longer than to count 70,000 chunks."""


class RunningCount:
    """What each holder of one index holds at the step of a model, kept up to date as it moves."""

    def __init__(self, index: HolderIndex) -> None:
        self._index = index
        self._step: int | None = None
        self._sums = np.zeros((3, 0), np.int64)

    def at(self, model: Model) -> NDArray[np.int64]:
        """What each holder has at the model's step, as `HolderIndex.count` gives it; for one heap of one trace."""
        step, before = model.step, self._step
        # A FREE does not tell when its chunk was allocated, on which phase, kind and lifetime depend.
        is_counted_anew = self._index.how.by in {"phase", "kind", "lifetime"}
        if before is None or is_counted_anew or before < model.trace.first or abs(step - before) > _NEAR:
            self._sums = self._index.count(model.in_use())
        elif step != before:
            self._move(model, before)
        self._step = step
        return self._sums

    def _move(self, model: Model, before: int) -> None:
        """Take the events between the step `before` and the model's into the sums by holder."""
        step = model.step
        events = model.trace.read(min(step, before), max(step, before))
        kinds = np.where(events["pool"] == model.pool, events["kind"], 0)
        for kind, sign in ((Kind.ALLOCATE, 1), (Kind.FREE, -1)):
            change = self._index.count(events[kinds == kind])
            sums = np.pad(self._sums, ((0, 0), (0, change.shape[1] - self._sums.shape[1])))
            self._sums = sums + change * (sign if step > before else -sign)


# ------------------------------------------------------------------------------
# The tree of holders: one row a holder, parents before children, siblings by their bytes.
#
# ::
#
#     row  parent  depth   own_bytes  bytes  name
#      0     -1      0         0       12    in use
#      1      0      1         0       10    layer_1
#      2      1      2         8        8    MatMul
#      3      1      2         2        2    Relu
#      4      0      1         2        2    no label

HOLDER: Final = np.dtype(
    [
        ("parent", "<i8"),  # row; -1 for the first
        ("depth", "<u4"),
        ("children", "<u4"),
        ("rows", "<u8"),  # of the holder and of all below it: they follow it
        ("own_bytes", "<u8"),  # of chunks that belong to no holder below
        ("own_requested", "<u8"),
        ("own_chunks", "<u8"),
        ("bytes", "<u8"),  # with the holders below, as the two next ones
        ("requested", "<u8"),
        ("chunks", "<u8"),
    ]
)
"""One holder."""

_SUMS: Final = ("bytes", "requested", "chunks")


def holder_tree(how: Grouping, records: NDArray[np.void]) -> tuple[NDArray[np.void], list[str | None]]:
    """The tree of holders of some records, of HOLDER, and the name of each row; the first row is all of them.

    The records have the fields `size` and `requested`, and what the grouping needs. A name is None for memory without a
    name and for the first row.
    """
    index = HolderIndex(how)
    codes = index.codes(records)
    at = index.leaves[codes]
    rows = np.zeros(len(index), HOLDER)
    rows["parent"] = index.parents
    # bincount's weights would be float64, exact only to 8 PiB.
    np.add.at(rows["own_bytes"], at, records["size"])
    np.add.at(rows["own_requested"], at, records["requested"])
    rows["own_chunks"] = np.bincount(at, minlength=len(rows))
    levels = _holder_tree_levels(rows)
    _sum_up_holder_tree(rows, levels)
    return _in_order(rows, index.names, levels)


def _holder_tree_levels(rows: NDArray[np.void]) -> list[NDArray[np.intp]]:
    """The rows of each depth; sets `depth`."""
    levels = [np.zeros(1, np.intp)]
    order = np.argsort(rows["parent"], kind="stable")
    parents = rows["parent"][order]
    while True:
        here = levels[-1]
        first, last = np.searchsorted(parents, here), np.searchsorted(parents, here, side="right")
        rows["children"][here] = counts = last - first
        if not counts.any():
            return levels
        # Every child of every row of this level: the runs [first, last) after each other.
        starts = np.repeat(first - np.append(0, np.cumsum(counts)[:-1]), counts)
        children = order[starts + np.arange(len(starts))]
        rows["depth"][children] = len(levels)
        levels.append(children)


def _sum_up_holder_tree(rows: NDArray[np.void], levels: Sequence[NDArray[np.intp]]) -> None:
    rows["rows"] = 1
    for name in _SUMS:
        rows[name] = rows[f"own_{name}"]
    for level in reversed(levels[1:]):
        for name in (*_SUMS, "rows"):
            np.add.at(rows[name], rows["parent"][level], rows[name][level])


def _in_order(
    rows: NDArray[np.void], names: Sequence[str | None], levels: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.void], list[str | None]]:
    """Holders and their names, each before those below it, siblings by bytes (of equal ones, the first found)."""
    place = np.zeros(len(rows), np.intp)
    for unordered in levels[1:]:
        keys = [unordered, ~rows["bytes"][unordered], rows["parent"][unordered]]
        level = unordered[np.lexsort(keys)]
        parent = rows["parent"][level]
        before = np.cumsum(rows["rows"][level]) - rows["rows"][level]
        first = np.searchsorted(parent, parent)
        place[level] = place[parent] + 1 + (before - before[first]).astype(np.intp)
    order = np.argsort(place)
    found = taken(rows, order)
    found["parent"][1:] = place[found["parent"][1:]]
    return found, [names[node] for node in order.tolist()]


# ------------------------------------------------------------------------------
# Holders: who holds the memory in use at one step.

ALL: Final = "in use"
"""The name of the first row: all memory in use."""


@dataclass(frozen=True, repr=False)
class Holders(TableAnswer):
    """The tree of holders of one heap at one step.

    Attributes:
        step: the step.
        pool: index of the heap.
        by: what the holders are found by, one of `grouping.UNNAMED`.
        separator: the text between the parts of a path.
        rows: of HOLDER; row 0 is all memory in use, so its `bytes` are `bytes_in_use`.
        names: the name of each row.
        requested_known: whether the trace has the requested bytes; otherwise `requested` means nothing.
    """

    step: int
    pool: int
    by: str
    separator: str
    rows: NDArray[np.void]
    names: Sequence[str]
    requested_known: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        used = f"{format_bytes(self.bytes_in_use)} in {self.chunks_in_use:,} chunks"
        return "\n".join(
            [f"{used} in use at step {self.step:,}, by {self.by.replace('_', ' ')}", *holder_lines(self)]
        )

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """The tables of holders: the largest ones, each indented below the one around it."""
        rows = [
            (
                f"{'  ' * part.depth}{_holder_part_name(part)}",
                format_bytes(part.bytes),
                f"{100 * part.bytes / max(self.bytes_in_use, 1):.1f} %",
                f"{part.chunks:,}",
            )
            for part in summary(self, _LINES, _LEAST_SHARE)
        ]
        return [AnswerTable((self.by.replace("_", " "), "bytes", "share", "chunks"), rows)]

    @property
    def bytes_in_use(self) -> int:
        """All bytes in use of the holders together."""
        return int(self.rows["bytes"][0])

    @property
    def chunks_in_use(self) -> int:
        """All chunks in use of the holders together."""
        return int(self.rows["chunks"][0])

    def path(self, row: int) -> str:
        """The names of the holders around a row and its own, in one line; empty for row 0."""
        names, parents = [], self.rows["parent"]
        while row > 0:
            names.append(self.names[row])
            row = int(parents[row])
        return self.separator.join(reversed(names))

    def paths(self) -> list[str]:
        """The `path` of every holder."""
        found = [""]
        for row, parent in enumerate(self.rows["parent"][1:].tolist(), 1):
            name = self.names[row]
            found.append(f"{found[parent]}{self.separator}{name}" if parent else name)
        return found

    def to_arrow(self) -> "Table":
        """All holders as a table; `id` and `parent` are rows, `parent` of the first is null; sizes in bytes."""
        pa = arrow("to_arrow()")
        rows = self.rows
        requested = [rows[name] for name in ("own_requested", "requested")]
        unknown = np.full(len(rows), not self.requested_known)
        return pa.table(
            {
                "id": np.arange(len(rows)),
                "parent": pa.array(rows["parent"], mask=rows["parent"] < 0),
                "depth": rows["depth"],
                "name": pa.array(list(self.names), pa.string()),
                "own_bytes": rows["own_bytes"],
                "bytes": rows["bytes"],
                "own_requested": pa.array(requested[0], mask=unknown),
                "requested": pa.array(requested[1], mask=unknown),
                "own_chunks": rows["own_chunks"],
                "chunks": rows["chunks"],
            }
        )


def require_chunks(trace: Trace, pool: int) -> None:
    """Raise TraceError where the trace does not have the chunks of a heap: its holders are unknown, not none."""
    if not chunks_known(trace.origin.details, pool):
        name = trace.origin.pools[pool].name
        raise TraceError(
            f"the file does not have the chunks of {name}, so who held them is unknown; `bfcviz why` says what it tells"
        )


def holders(model: Model, by: str = "op", how: Grouping | None = None) -> Holders:
    """The holders of the memory in use at the step of a model, which stays there.

    Args:
        model: the heap.
        by: `op` (the name of the label, split at its slashes), `stack`, `shape`, `data_type`, `thread`, `stream`,
            `phase` (the phases open at the allocation) or `kind` (what it is for, see `kinds`).
        how: the grouping, if the caller has it.

    Raises:
        ValueError: `by` is none of these.
    """
    how = how or grouping(model.trace, model.pool, by)
    rows, names = holder_tree(how, model.in_use())
    known = [ALL, *(UNNAMED[how.by] if name is None else name for name in names[1:])]
    return Holders(
        model.step,
        model.pool,
        how.by,
        how.separator,
        rows,
        known,
        requested_bytes_known(model.trace.origin.details, model.pool),
    )


def largest_holder_rows(found: Holders, most: int) -> list[int]:
    """The rows of the holders with most bytes of their own, the largest first."""
    own = found.rows["own_bytes"].astype(np.int64)
    order = np.argsort(-own, kind="stable")[:most]
    return [row for row in order.tolist() if own[row]]


class OtherHolders(NamedTuple):
    """The holders beside some, together: how many, with the bytes and chunks of their own."""

    holders: int
    bytes: int
    chunks: int


def other_holders(found: Holders, rows: Sequence[int]) -> OtherHolders:
    """What the holders beside those of `largest_holder_rows` have."""
    own, chunks = found.rows["own_bytes"], found.rows["own_chunks"]
    return OtherHolders(
        int(np.count_nonzero(own)) - len(rows),
        found.bytes_in_use - sum(int(own[row]) for row in rows),
        found.chunks_in_use - sum(int(chunks[row]) for row in rows),
    )


# ------------------------------------------------------------------------------
# A summary of a tree of holders for a picture or a text: few parts, and "other" for what is left out of it.
#
# Holders with a single holder below and no memory of their own are one part with it: `a/b` instead of `a` and in it
# `b`.

_WHOLE: Final = -1


class SummarizedHolder(NamedTuple):
    """A holder in the `summary` of `Holders`, or several small ones around one holder.

    Attributes:
        name: its name, with those of the holders that are one part with it.
        parent: index of the part around it; -1 for the first part.
        depth: parts around it.
        row: of the holder; -1 for small holders together.
        holders: how many holders these are: 1, or all small ones directly in `parent`.
        bytes: bytes in use.
        own_bytes: of these, bytes that belong to no holder below.
        requested: requested bytes.
        chunks: number of chunks.
    """

    name: str
    parent: int
    depth: int
    row: int
    holders: int
    bytes: int
    own_bytes: int
    requested: int
    chunks: int


_LINES: Final = 30
"""Holders in the text, about."""

_LEAST_SHARE: Final = 0.005
_LEAST_WASTED: Final = 0.05
_WIDTH: Final = 48  # characters of a name; the middle of a longer one is left out


def holder_lines(found: Holders) -> list[str]:
    """The text of `Holders`: the largest ones as lines with bytes, share, chunks, and their names as a tree."""
    parts = summary(found, _LINES, _LEAST_SHARE)
    lines = [
        f"{'bytes':>11} {'share':>7} {'chunks':>8}",
        *(_holders_text_line(part, found) for part in parts),
    ]
    requested = int(found.rows["requested"][0])
    if found.requested_known and found.bytes_in_use - requested > _LEAST_WASTED * found.bytes_in_use:
        used = format_bytes(found.bytes_in_use)
        lines.append(f"Bytes are those of whole chunks: {format_bytes(requested)} of {used} were requested.")
    return lines


def _holders_text_line(part: "SummarizedHolder", found: Holders) -> str:
    share = part.bytes / max(found.bytes_in_use, 1)
    name = _holder_part_name(part)
    if found.by == "stack":
        name = _holders_text_stack(name.split(found.separator), found.separator)
    elif len(name) > _WIDTH:
        name = f"{name[: _WIDTH // 3]}…{name[-(_WIDTH - _WIDTH // 3 - 1) :]}"
    return (
        f"{format_bytes(part.bytes):>11} {100 * share:>5.1f} % {part.chunks:>8,}  {'  ' * part.depth}{name}"
    )


_FOLDER_OF_FRAME: Final = re.compile(r"\((?=[^()]*:\d+\)$)[^()]*/")

_MOST_FRAMES: Final = 4


def _holders_text_stack(frames: list[str], separator: str) -> str:
    """A holder's frames without the folders of their files; of many the outer and inner ones, each whole."""
    shown = [_FOLDER_OF_FRAME.sub("(", frame) for frame in frames]
    if len(shown) > _MOST_FRAMES:
        shown = [shown[0], "…", *shown[2 - _MOST_FRAMES :]]
    return separator.join(shown)


def _holder_part_name(part: SummarizedHolder) -> str:
    if part.row >= 0:
        return part.name
    return f"other ({part.holders:,} {'holder' if part.holders == 1 else 'holders'})"


def summary(
    found: Holders, most: int, least_share: float = 0.0, levels: int | None = None
) -> list[SummarizedHolder]:
    """The largest holders of a tree, each before those in it, siblings by their bytes, small ones together last.

    Args:
        found: the tree.
        most: holders to name at most; with the parts of small ones there are at most twice as many parts.
        least_share: do not name holders with less than this part (0..1) of all bytes in use.
        levels: parts around each other at most; None: all.
    """
    kept, parents, starts = _summarized_holder_rows(found.rows)
    sizes = found.rows["bytes"][kept]
    # A holder is at least as large as those in it and comes before them: the largest ones form a tree.
    chosen = np.sort(np.argsort(~sizes, kind="stable")[: max(most, 1)])
    chosen = chosen[(sizes[chosen] >= least_share * int(sizes[0])) | (chosen == 0)]
    place = np.full(len(kept), -1, np.intp)
    place[chosen] = np.arange(len(chosen))
    small = np.flatnonzero(place < 0)
    small = small[place[parents[small]] >= 0]
    parts = [_summarized_holder(found, int(kept[each]), int(starts[each])) for each in chosen.tolist()]
    inside: list[list[int]] = [[] for _ in parts]
    for part, each in enumerate(chosen.tolist()[1:], 1):
        inside[int(place[parents[each]])].append(part)
    others = _summarized_small_holders(found.rows[kept[small]], place[parents[small]])
    return _laid_out(parts, inside, others, levels)


def _summarized_holder_rows(
    rows: NDArray[np.void],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The rows that are not merely around one other; for each of them its parent among them, and its first name."""
    link = (rows["children"] == 1) & (rows["own_chunks"] == 0)
    link[0] = False
    kept = np.flatnonzero(~link)
    # The one holder below a row is the next row: the names of a part are a run of rows that ends with it.
    starts = np.append(0, kept[:-1] + 1)
    number = np.cumsum(~link) - 1
    parent: NDArray[np.int64] = rows["parent"][starts]
    parents = number[np.maximum(parent, 0)]
    return kept, parents, starts


def _summarized_holder(found: Holders, row: int, start: int) -> SummarizedHolder:
    values = found.rows[row]
    names = ALL if row == 0 else found.separator.join(found.names[start : row + 1])
    amounts = (int(values[name]) for name in ("bytes", "own_bytes", "requested", "chunks"))
    return SummarizedHolder(names, _WHOLE, 0, row, 1, *amounts)


def _summarized_small_holders(
    rows: NDArray[np.void], parents: NDArray[np.intp]
) -> dict[int, SummarizedHolder]:
    """The small holders in each part that has some, together."""
    found = {}
    order = np.argsort(parents, kind="stable")
    for parent, few in zip(*np.unique(parents[order], return_index=True), strict=True):
        mine = rows[order[few : few + np.count_nonzero(parents == parent)]]
        size, requested, chunks = (int(mine[name].sum()) for name in ("bytes", "requested", "chunks"))
        found[int(parent)] = SummarizedHolder(
            "other", _WHOLE, 0, -1, len(mine), size, size, requested, chunks
        )
    return found


def _laid_out(
    parts: list[SummarizedHolder],
    inside: list[list[int]],
    others: dict[int, SummarizedHolder],
    levels: int | None,
) -> list[SummarizedHolder]:
    """Parts of a summary of holders in order, with their parents and depths; none deeper than so many levels."""
    found: list[SummarizedHolder] = []
    left = [(0, _WHOLE, 0)]  # part, parent, depth
    while left:
        part, parent, depth = left.pop()
        if part < 0:
            found.append(others[~part]._replace(parent=parent, depth=depth))
            continue
        here = len(found)
        found.append(parts[part]._replace(parent=parent, depth=depth))
        if depth + 1 == levels:
            continue
        # The last one in is the first one out.
        if part in others:
            left.append((~part, here, depth + 1))
        left += [(child, here, depth + 1) for child in reversed(inside[part])]
    return found


# ------------------------------------------------------------------------------
# Growth of holders from mark to mark: what a holder had at two marks of one name, never between marks.
#
# ::
#
#     marks "step"    |  1  |  2  |  3  |  4  |  here     a step's own memory comes and goes between the marks
#     growth                ^ first           ^ last      what is kept is there at the last mark, and not at the first
#
# A program does the same in each step, so it is at the same point of its work at all marks of one name. The first step
# is its warm-up, where it has three marks or more.


@dataclass(frozen=True)
class HolderMark:
    """A mark at which holders are counted.

    Attributes:
        step: the step just after it.
        name: its name; of a phase, what it begins or ends.
    """

    step: int
    name: str


@dataclass(frozen=True)
class HolderMarkPair:
    """Two marks between which the growth of holders is measured.

    Attributes:
        first: the earlier one.
        last: the later one.
        apart: how many steps of the program lie between them: marks of this name, the last one included.
    """

    first: HolderMark
    last: HolderMark
    apart: int


class HolderMarkGrowth:
    """The growth of `Holders` from one mark of a heap to another of the same name.

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
        self._marks: dict[str, list[HolderMark]] = defaultdict(list)  # by name without a number at its end
        self._model: Model | None = None
        self._bytes: dict[tuple[str, int], NDArray[np.int64]] = {}

    def pair(self, step: int) -> HolderMarkPair | None:
        """The marks to compare holders at: those that separate the steps of the program, else the most frequent.

        None: up to this step no name has two marks, or the trace has dropped them.
        """
        self.search()
        there = {
            name: _holder_marks_between(marks, self._trace.first, step) for name, marks in self._marks.items()
        }
        repeated = {name: places for name, places in there.items() if len(places) > 1}
        if not repeated:
            return None
        name = step_marks_name(repeated, None) or max(repeated, key=lambda each: len(repeated[each]))
        marks, places = self._marks[name], repeated[name]
        first, last = places[len(places) > 2], places[-1]
        return HolderMarkPair(marks[first], marks[last], last - first)

    def growth(self, pair: HolderMarkPair, index: HolderIndex) -> NDArray[np.int64]:
        """The bytes that each holder of `index` gained from the first mark to the last, shape (nodes,)."""
        first, last = self._bytes_at(pair.first, index), self._bytes_at(pair.last, index)
        grown = np.zeros(len(index), np.int64)
        grown[: len(last)] += last
        grown[: len(first)] -= first
        return grown

    def _bytes_at(self, mark: HolderMark, index: HolderIndex) -> NDArray[np.int64]:
        """The bytes of each holder at a mark; nodes that came later are left out."""
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
        """Forget the bytes of holders that were counted with another tree of the same grouping."""
        self._bytes = {key: known for key, known in self._bytes.items() if key[0] != by}

    def search(self) -> None:
        """Find the marks to compare holders at, among events that are new."""
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
                name, plain = (f"{each} {end.side}" for each in (end.name, plain_step_name(end.name)))
            self._marks[plain_step_name(plain)].append(HolderMark(seq + 1, name))
        self.phases += len(ends) - ends.count(None)


def _holder_marks_between(marks: list[HolderMark], first: int, last: int) -> range:
    """The places of the marks for the growth of holders at these steps, or between them."""
    step_of = attrgetter("step")
    return range(bisect_left(marks, first, key=step_of), bisect_right(marks, last, key=step_of))
