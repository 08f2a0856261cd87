"""Colouring: the classes that chunks in use are coloured by; a class means the same at every step of a trace.

A class depends only on a record's own fields, so chunks of a model and lifetimes of a trace get the same colours; that
by growth also depends on the earlier step that it counts from. Each class has a faded one for what the user did not
choose.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.what_grew import births_never_freed
from bfcviz.events.label_table import NO_LABEL, Labels
from bfcviz.events.origin import unknown_of_chunks
from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.panel import Floats
from bfcviz.figures.text import LONGEST_SHORT_NAME, harmless, legend_texts, round_bytes
from bfcviz.figures.theme import Paint, Theme, mixed
from bfcviz.figures.view_options import FADE, Choice, Look, SearchChoice, choice_of
from bfcviz.model.bytes_by_label import byte_steps, bytes_of_labels
from bfcviz.model.filters import found_by
from bfcviz.model.grouping import UNNAMED, Path, grouping_of, members, op_path
from bfcviz.model.memory_kinds import MemoryKinds
from bfcviz.model.model import Model
from bfcviz.stack_frames import place_in_code
from bfcviz.units import GiB, KiB, MiB

# ------------------------------------------------------------------------------
# ColourTree: the labels of a trace as a tree of holders, whose bytes at a step are quick to sum.
#
# ::
#
#     layer_1            [0, 3)     a holder is a range of places; `order` has the label at each place,
#       MatMul           [0, 2)     so the bytes of a holder are a difference of two running totals
#       Relu             [2, 3)
#     no label           [3, 4)

ROOT: Final = 0
"""The node of all memory in use."""

_CROWD: Final = 24  # children of one holder; more are grouped by their names without the number at the end

_NUMBER: Final = re.compile(r"(?:_\d+)+$")


@dataclass(frozen=True)
class ColourTree:
    """The holders to colour as a tree of numbered nodes; one with a single child and no label is left out."""

    order: NDArray[np.intp]  # the label number at each place
    start: NDArray[np.intp]  # the first place of each node
    stop: NDArray[np.intp]  # the place after its last
    parent: NDArray[np.intp]  # the node above each one; that of the root is the root
    children: Sequence[NDArray[np.intp]]  # the nodes below each one
    # the path of each node; of names that were grouped by their numbers, one with a `*` at the end
    paths: Sequence[Path]
    nodes: dict[Path, int]  # the node of each path; of a path that was left out, the node below it

    @property
    def size(self) -> int:
        """One more than the highest label number that the tree of colours knows."""
        return int(self.order.max()) + 1 if len(self.order) else 0

    def sums(self, by_label: Floats) -> Floats:
        """The bytes of each node in the tree of colours, of the bytes by label number (all of `size`)."""
        totals = np.zeros(len(self.order) + 1)
        np.cumsum(by_label[self.order], out=totals[1:])
        found: Floats = totals[self.stop] - totals[self.start]
        return found

    def above(self, node: int) -> Iterable[int]:
        """A node in the tree of colours, and those above it, up to the one below the root."""
        while node != ROOT:
            yield node
            node = int(self.parent[node])


class _ColourBranch:
    """A node while the tree of colours is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.labels: list[int] = []
        self.below: dict[str | None, _ColourBranch] = {}


def colour_tree(labels: Labels, numbers: Iterable[int]) -> ColourTree:
    """The tree to colour of the labels with these numbers."""
    root = _ColourBranch(())
    for number in numbers:
        node = root
        for part in colour_path(labels, number):
            node = node.below.setdefault(part, _ColourBranch((*node.path, part)))
        node.labels.append(number)
    return _ColourTreeBuilder(root).tree()


def colour_path(labels: Labels, number: int) -> Path:
    """The path of a label to colour: the parts of its name; if it has no slash, also another place in the code."""
    name, details = labels[number]
    if "/" in name:
        return op_path(name)
    place = place_in_code(details.get("stack", ""))
    return tuple(dict.fromkeys(part for part in (name, place) if part)) or (None,)


class _ColourTreeBuilder:
    """Numbers the nodes of a tree to colour: each before those below it, which take neighbouring places."""

    def __init__(self, root: _ColourBranch) -> None:
        self._order: list[int] = []
        self._start: list[int] = []
        self._stop: list[int] = []
        self._parent: list[int] = []
        self._children: list[list[int]] = []
        self._paths: list[Path] = []
        self._nodes: dict[Path, int] = {}
        self._walk(root)

    def tree(self) -> ColourTree:
        """The finished tree of colours."""
        start, stop, parent = (np.array(each, np.intp) for each in (self._start, self._stop, self._parent))
        children = [np.array(each, np.intp) for each in self._children]
        return ColourTree(
            np.array(self._order, np.intp), start, stop, parent, children, self._paths, self._nodes
        )

    def _walk(self, root: _ColourBranch) -> None:
        # Without recursion: a path of a hostile file is 200 parts deep. None ends the node before it.
        stack: list[tuple[_ColourBranch, int] | None] = [(root, -1)]
        opened: list[int] = []
        while stack:
            item = stack.pop()
            if item is None:
                self._stop[opened.pop()] = len(self._order)
                continue
            node, parent = self._single(*item)
            number = self._add(node, parent)
            opened.append(number)
            stack.append(None)
            stack += [(child, number) for child in reversed(_grouped_colour_branches(node))]

    def _single(self, node: _ColourBranch, parent: int) -> tuple[_ColourBranch, int]:
        """The node of a tree to colour, or the first below it that has a label or several children."""
        while parent >= 0 and not node.labels and len(node.below) == 1:
            self._nodes[node.path] = len(self._start)
            (node,) = node.below.values()
        return node, parent

    def _add(self, node: _ColourBranch, parent: int) -> int:
        number = len(self._start)
        self._start.append(len(self._order))
        self._stop.append(len(self._order))
        self._parent.append(max(parent, ROOT))
        self._children.append([])
        self._paths.append(node.path)
        self._nodes[node.path] = number
        if parent >= 0:
            self._children[parent].append(number)
        self._order += node.labels
        return number


def _grouped_colour_branches(node: _ColourBranch) -> list[_ColourBranch]:
    """The children of a node; those of a crowd share a parent if only the number at the end of their names differs."""
    children = list(node.below.values())
    if len(children) <= _CROWD:
        return children
    groups: dict[str, list[_ColourBranch]] = {}
    for child in children:
        groups.setdefault(_NUMBER.sub("", child.path[-1] or ""), []).append(child)
    found = []
    for stem, alike in groups.items():
        if len(alike) == 1 or len(groups) == 1:
            found += alike
            continue
        group = _ColourBranch((*node.path, f"{stem}*"))
        group.below = {member.path[-1]: member for member in alike}
        found.append(group)
    return found


# ------------------------------------------------------------------------------
# HolderClasses: which holders get the colours, the same at all steps.
#
# A heap has more large holders in its life than a picture has colours. Two that are never large together may share one.

HUES: Final = 7
SHADES: Final = 3  # of one hue: its own, and two for the largest children

OTHER: Final = HUES * SHADES
"""The class of all memory without a hue."""

# Shares of the bytes in use:
_LEAST: Final = 0.015  # of a holder with a hue
_LEAST_BELOW: Final = 0.05  # of one inside another holder with a hue
_SPLIT: Final = 0.2  # a holder with more is split
_LEAST_SHADE: Final = 0.02

_MOST_LISTED: Final = 11  # holders in a legend: with all others, three lines

_HEIR: Final = 0.9  # of a holder's bytes: a child with more has the shades
_SAME_HUE: Final = 0.25  # how much two shades of one hue look the same
_GREEN: Final = 4  # the hue of free memory: the last that a holder gets
_LIKE_FREE: Final = _GREEN * SHADES + 1  # its lighter shade looks like free memory: no holder has it


@dataclass(frozen=True, eq=False)
class HolderClasses:
    """The colour class of each holder that has one, and those that the legend of one step names."""

    tree: ColourTree
    # the class of a node of the tree -> hue * SHADES + shade; all nodes below have it too
    nodes: Mapping[int, int]
    # a class -> its holder, of several the largest at this step; of the classes with the most bytes then
    named: Mapping[int, int]

    def names(self) -> Iterator[tuple[int, str]]:
        """Each colour class with the name of its holder."""
        for number, node in self.named.items():
            yield number, colour_path_text(self.tree.paths[node])

    def by_label(self) -> NDArray[np.uint8]:
        """The colour class of each label number; a last entry for labels that the tree does not know."""
        found = np.full(self.tree.size + 1, OTHER, np.uint8)
        for node in sorted(self.nodes):  # holders before those inside them
            places = slice(self.tree.start[node], self.tree.stop[node])
            found[self.tree.order[places]] = self.nodes[node]
        return found

    def of_path(self, path: tuple[str | None, ...]) -> int | None:
        """The colour class of the memory of a path; None: it has several, or the path is not known."""
        node = self.tree.nodes.get(path)
        if node is None or node == ROOT:
            return None
        number = next((self.nodes[each] for each in self.tree.above(node) if each in self.nodes), OTHER)
        others = (each for each, other in self.nodes.items() if other != number)
        return None if any(node in self.tree.above(each) for each in others) else number


def colour_path_text(path: Path) -> str:
    """A path to colour in one line."""
    return "/".join(part or UNNAMED["op"] for part in path)


class HolderChooser:
    """Chooses the holders that get the colours, once for all steps.

    Args:
        tree: the labels.
        byte_steps: bytes times steps in use, by label number.
        moments: bytes in use by label number, shape (moments, labels), of moments all over the trace.
        seen: path of a holder -> the class that it keeps, of an earlier chooser of the heap.

    Attributes:
        nodes: the class of each holder that has one, see `HolderClasses`.
    """

    def __init__(
        self, tree: ColourTree, byte_steps: Floats, moments: Floats, seen: dict[Path, int] | None = None
    ) -> None:
        self.tree = tree
        self.nodes: dict[int, int] = {}
        self._usual = tree.sums(byte_steps)
        self._seen = {} if seen is None else seen
        states = [self._usual, *(tree.sums(each) for each in moments)]
        self._shares = np.array([state / max(float(state[ROOT]), 1.0) for state in states])
        chosen = dict.fromkeys(node for state in states for node in largest_colour_nodes(tree, state, HUES))
        known = [tree.nodes[path] for path in self._seen if path in tree.nodes]
        # Of each moment the bytes of each holder, without those of holders inside: what has its colour.
        holders = {*chosen, *known}
        self._own = np.array([_own_bytes_of_holders(tree, holders, each) for each in self._shares])
        for path, number in self._seen.items():
            if path in tree.nodes:
                self.nodes[tree.nodes[path]] = number
        most = self._own.max(axis=0)
        ranked = sorted(
            (node for node in chosen if most[node] >= _LEAST), key=lambda node: (-most[node], node)
        )
        for node in ranked:
            if node not in self.nodes:
                self.nodes[node] = self._free_class(node)
        for node in ranked:
            if self.nodes[node] % SHADES == 0:
                self._shade(node)
        self._seen |= {tree.paths[node]: number for node, number in self.nodes.items()}

    def at(self, by_label: Floats | None = None) -> HolderClasses:
        """The colour classes with the names for these bytes by label number; None: for those of the whole trace."""
        sums = self._usual if by_label is None else self.tree.sums(by_label)
        now, usual = (_own_bytes_of_holders(self.tree, self.nodes, each) for each in (sums, self._usual))
        of_class, usual_of_class = np.zeros((2, OTHER))
        named: dict[int, int] = {}
        for node in sorted(self.nodes, key=lambda node: (-now[node], -usual[node], node)):
            number = self.nodes[node]
            of_class[number] += now[node]
            usual_of_class[number] += usual[node]
            named.setdefault(number, node)
        # At a quiet step few hold memory: then those that usually do, which the timelines show.
        ranked = sorted(named, key=lambda each: (-of_class[each], -usual_of_class[each], each))
        return HolderClasses(self.tree, self.nodes, {each: named[each] for each in ranked[:_MOST_LISTED]})

    def _free_class(self, node: int) -> int:
        """The colour class that shows the least beside this holder: a hue of its own where one is left."""
        mine = self._own[:, node]
        beside = np.zeros((len(mine), OTHER))
        for each, number in self.nodes.items():
            beside[:, number] += self._own[:, each]
        same = np.minimum(beside, mine[:, None]).max(axis=0)
        of_hue = np.minimum(beside.reshape(len(mine), HUES, SHADES).sum(axis=2), mine[:, None]).max(axis=0)
        cost = same + _SAME_HUE * np.repeat(of_hue, SHADES)
        cost[cost < _LEAST] = 0
        related = {self.nodes[each] for each in self.tree.above(node) if each in self.nodes}
        used = Counter(number // SHADES for number in self.nodes.values())
        return min(
            (each for each in range(OTHER) if each != _LIKE_FREE),
            key=lambda each: (
                cost[each],
                each % SHADES > 0,
                each not in related,
                used[each // SHADES],
                each // SHADES == _GREEN,
                each,
            ),
        )

    def _shade(self, node: int) -> None:
        """Give the shades of a colour's hue to the largest holders inside its holder."""
        number, shares = self.nodes[node], self._shares
        while True:
            below = [each for each in self.tree.children[node].tolist() if each not in self.nodes]
            below = [each for each in below if shares[:, each].max() >= _LEAST_SHADE]
            below.sort(key=lambda each: (-shares[:, each].max(), each))
            if not below or shares[:, below[0]].sum() < _HEIR * shares[:, node].sum():
                break
            node = below[0]
        taken = {each % SHADES for each in self.nodes.values() if each // SHADES == number // SHADES}
        left = [each for each in range(1, SHADES) if each not in taken and number + each != _LIKE_FREE]
        for child, shade in zip(below, left, strict=False):
            self.nodes[child] = number + shade


def largest_colour_nodes(tree: ColourTree, sums: Floats, most: int) -> list[int]:
    """The largest nodes for these bytes, `most` at most; nodes inside others take their bytes from them."""
    total, done = sums[ROOT], set[int]()
    chosen: list[int] = []
    for _ in range(20 * most):
        own = _own_bytes_of_holders(tree, chosen, sums)
        small = [node for node in chosen if own[node] < _LEAST * total]
        done |= set(small)
        chosen = [node for node in chosen if node not in small]
        if len(chosen) == most:
            break
        best = _next_coloured_holder(tree, chosen, done, sums, own)
        if best is None:
            break
        chosen.append(best)
    return chosen


def _next_coloured_holder(
    tree: ColourTree, chosen: Iterable[int], done: set[int], sums: Floats, own: Floats
) -> int | None:
    """The largest node to colour next, below the root or a large chosen one; None: there is none."""
    total = sums[ROOT]
    taken = done | set(chosen)
    candidates = []
    for node in taken | {ROOT}:
        least = _LEAST if node == ROOT else _LEAST_BELOW
        if node == ROOT or node in done or own[node] > _SPLIT * total:
            child = _largest_holder_child(tree, node, sums, taken)
            if child is not None and sums[child] >= max(least * total, 1.0):
                candidates.append(child)
    return max(candidates, key=lambda node: (sums[node], -node), default=None)


def _largest_holder_child(tree: ColourTree, node: int, sums: Floats, taken: Iterable[int]) -> int | None:
    children = tree.children[node]
    free = children[~np.isin(children, list(taken))]
    return int(free[sums[free].argmax()]) if len(free) else None


def _own_bytes_of_holders(tree: ColourTree, chosen: Iterable[int], sums: Floats) -> Floats:
    """The bytes of each node to colour without those of the chosen nodes inside."""
    nodes, found = set(chosen), sums.copy()
    for node in nodes:
        for each in (*tree.above(int(tree.parent[node])), ROOT):
            found[each] -= sums[node]
            if each in nodes:
                break
    return found


def _classes_of_labels(
    table: NDArray[np.uint8], records: NDArray[np.void], _step: int
) -> NDArray[np.integer]:
    return _classes_by_number(table, records["label"])


def _classes_by_number(table: NDArray[np.uint8], numbers: NDArray[np.integer]) -> NDArray[np.uint8]:
    """The colour class of each number, such as that of a label; the last entry is that of all higher ones."""
    found: NDArray[np.uint8] = table[np.minimum(numbers, len(table) - 1).astype(np.intp)]
    return found


# ------------------------------------------------------------------------------
# HolderPalette: the colouring by holder of one heap, kept from step to step.

_GROWN: Final = 1.5  # a trace that is so many times as long has other usual holders

_MOST_UNKNOWN: Final = 0.1
"""Of the bytes in use: with more in labels that are not in the tree, the tree is made again."""

_MOST_KEPT: Final = 64


class HolderPalette:
    """Which holders of a heap get the colours; those of the palette `before`, when it had fewer events, keep theirs.

    Attributes:
        made: the colouring of each theme and choice of holders.
        classify: gives the class of records.
        occurring: the classes that occur; `classify_occurring` gives their places here.
        seen: path of a holder -> its class.
    """

    def __init__(self, trace: Trace, pool: int, before: "HolderPalette | None" = None) -> None:
        self.made: dict[tuple[str, HolderClasses], Colouring] = {}
        self.steps = len(trace)
        held, moments = bytes_of_labels(trace, pool)
        tree = colour_tree(trace.labels, np.flatnonzero(held).tolist())
        self._size = tree.size
        self.seen: dict[Path, int] = {} if before is None else before.seen
        usual, at_moments = held[: self._size], moments[:, : self._size]
        self._chooser = HolderChooser(tree, usual, at_moments, self.seen)
        table = self._chooser.at().by_label()
        self.classify = partial(_classes_of_labels, table)
        self.occurring, compact = np.unique(table, return_inverse=True)
        self.classify_occurring = partial(_classes_of_labels, compact.astype(np.uint8))
        self._known: dict[frozenset[tuple[int, int]], HolderClasses] = {}

    def classes(self, chunks: NDArray[np.void] | None) -> HolderClasses:
        """The colour classes for these chunks (None: for the whole trace); the same object while unchanged."""
        found = self._chooser.at(None if chunks is None else self._bytes(chunks)[: self._size])
        if len(self._known) > _MOST_KEPT:
            self._known, self.made = {}, {}
        return self._known.setdefault(frozenset(found.named.items()), found)

    def knows(self, chunks: NDArray[np.void]) -> bool:
        """Whether most of these bytes have a label that the trace had when this palette was made."""
        held = self._bytes(chunks)
        return float(held[self._size :].sum()) <= _MOST_UNKNOWN * max(float(held.sum()), 1.0)

    def _bytes(self, chunks: NDArray[np.void]) -> Floats:
        """Bytes in use by label number, for a palette of holders."""
        sizes = chunks["size"].astype(np.float64)
        if "in_use" in (chunks.dtype.names or ()):
            sizes *= chunks["in_use"]
        return np.bincount(chunks["label"], sizes, minlength=self._size).astype(np.float64)


_palettes: WeakKeyDictionary[Trace, dict[int, HolderPalette]] = WeakKeyDictionary()


def palette_of(trace: Trace, pool: int, chunks: NDArray[np.void] | None = None) -> HolderPalette:
    """The palette of a heap; made again when the trace has grown much, or has many new labels among `chunks`."""
    known = _palettes.setdefault(trace, {})
    before = known.get(pool)
    if before is not None:
        is_new = chunks is not None and len(trace) != before.steps and not before.knows(chunks)
        if len(trace) <= _GROWN * before.steps and not is_new:
            return before
    known[pool] = HolderPalette(trace, pool, before)
    return known[pool]


# ------------------------------------------------------------------------------
# Colouring: the classes that chunks in use are coloured by; a class means the same at every step of a trace.

COLOURINGS: Final = {
    "holder": "holder (the largest ones)",
    "kind": "kind (parameters, gradients, optimizer state ...)",
    "state": "state",
    "bin": "bin of its size",
    "age": "age (steps since its allocation)",
    "size": "size",
    "label": "label",
    "thread": "allocating thread",
    "stream": "stream",
    "step": "allocating step",
    "waste": "waste (1 - requested / size)",
}
"""Name -> what it colours chunks in use by."""

_NEEDS: Final = {"age": "age", "step": "born", "waste": "waste", "thread": "thread", "stream": "stream"}
"""Colouring -> the number of chunks that it needs, as `unknown_of_chunks` names it."""


def known_colourings(trace: Trace) -> dict[str, str]:
    """Those of `COLOURINGS` whose numbers the trace has for any of its heaps."""
    missing = frozenset.intersection(
        *(unknown_of_chunks(trace.origin.details, pool) for pool in range(len(trace.origin.pools)))
    )
    return {name: title for name, title in COLOURINGS.items() if _NEEDS.get(name) not in missing}


MOST_CLASSES: Final = OTHER + 1
"""Classes of a colouring, at most: those of the colouring by holder."""

FEW_CLASSES: Final = 8  # classes of every other colouring, at most

FREE: Final = 255
"""The class of free chunks: they have the same colour in every colouring."""

_OTHER_NAME: Final = "other"
_UNKNOWN_KIND: Final = "other or unknown"
_OTHERS: Final = frozenset({_OTHER_NAME, _UNKNOWN_KIND})  # names of the class of all others

_LEGEND_LINE = 130  # characters, on a page 1,200 pixels wide: a longer legend takes two lines

_NAMED = FEW_CLASSES - 1  # the last class holds all others

Classify = Callable[[NDArray[np.void], int], NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class Colouring:
    """The classes of one colouring, for a trace of the length it had when this was made.

    Each is equal to itself alone: the same object has the same classes.
    """

    name: str  # one of `COLOURINGS`
    # the names of the classes for the legend, escaped for HTML; 1 to `MOST_CLASSES`; empty: not in the legend
    names: Sequence[str]
    paints: Sequence[Paint]  # the colours of the classes
    # gives the class of records in use at a step; equal if two colourings have the same classes
    classify: Classify = field(repr=False)
    holders: HolderClasses | None = None  # the holders of the classes, if this is the colouring by holder
    _few: "Colouring | None" = field(default=None, repr=False)

    @property
    def shows_waste(self) -> bool:
        """Whether bytes that were not requested have their own colour."""
        return self.name in ("state", "holder")

    def classes(self, records: NDArray[np.void], step: int) -> NDArray[np.uint8]:
        """The colour class of each record at `step`, an index into `names`; `FREE` for free chunks.

        Args:
            records: shape (n,), with the fields size, requested, born, label, thread and stream; records
                without a field `in_use` are all in use.
            step: the step that is shown; ages are counted up to it.
        """
        found = self.classify(records, step).astype(np.uint8)
        if "in_use" in (records.dtype.names or ()):
            found[~records["in_use"]] = FREE
        return found

    def key_at(self, step: int) -> object:
        """Equal where records of all steps up to this one have the same colours; ages are counted up to it."""
        return self.classify, step if self.name == "age" else None

    @property
    def for_images(self) -> "Colouring":
        """The same colouring with few classes that no step changes, for images that count bytes once.

        By holder its classes are those that occur in the trace.
        """
        return self._few or self

    def legend(self, number: int, *, shown: bool, drawn: bool = True) -> dict[str, Any]:
        """Name and legend of the trace of class `number`, also of one that is not there; line 0 is that of `free`.

        Without a legend of classes (`shown`) a class has no name. `drawn`: see `lists`.
        """
        if not shown or number >= len(self.names) or not self.names[number]:
            return {"name": "", "showlegend": False, "legend": 0}
        letters = sum(len(name) + 8 for name in self.names[:number] if name)
        one = sum(1 for name in self.names if name) == 1
        line = 0 if one else 1 + letters // _LEGEND_LINE
        return {"name": self.names[number], "showlegend": self.lists(number, drawn=drawn), "legend": line}

    def lists(self, number: int, *, drawn: bool) -> bool:
        """Whether a legend lists the class `number`: that of all others only if something of it is `drawn`."""
        return drawn or self.names[number] not in _OTHERS


def colouring(
    trace: Trace, pool: int, name: str, theme: Theme, chunks: NDArray[np.void] | None = None
) -> Colouring:
    """The colouring called `name` of one heap of `trace`; it may read the whole trace, so reuse it.

    That by holder has the same classes at all steps. Its legend names the largest holders of `chunks`, those at the
    step that is shown (None: of the whole trace); it is the same object while these are the same. One whose numbers
    the trace does not have has one class, which says so.

    Raises:
        ValueError: the name is unknown; the message lists all names.
    """
    if name not in COLOURINGS:
        raise ValueError(f"no colouring {name!r}; there are: {', '.join(COLOURINGS)}")
    if _NEEDS.get(name) in unknown_of_chunks(trace.origin.details, pool):
        title = COLOURINGS[name].split(" (")[0]
        return Colouring(name, [f"{title} unknown"], [theme.other], lambda each, _: np.zeros(len(each), int))
    if name == "holder":
        return _by_holder(trace, pool, theme, chunks)
    if name == "kind":
        return _by_kind(trace, pool, theme)
    if name in ("label", "thread", "stream"):
        return _by_most_bytes(trace, pool, name, theme)
    names, classify = _ORDERED[name](trace, pool)
    paints = [theme.in_use] if name == "state" else _paints_along_ramp(theme.ramp, len(names))
    return Colouring(name, names, paints, classify)


def _paints_along_ramp(ramp: Sequence[Paint], count: int) -> list[Paint]:
    """`count` paints from one end of the ramp to the other."""
    return [ramp[place] for place in np.linspace(0, len(ramp) - 1, count).round().astype(int)]


# -- ordered classes ---------------------------------------------------------------------------------------


def _classes_by_state(_trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    return ["in use"], lambda records, _: np.zeros(len(records), np.uint8)


def _classes_by_bin(trace: Trace, pool: int) -> tuple[list[str], Classify]:
    """Colour classes by bin: adjacent ones share a class if more than `FEW_CLASSES` bins occur."""
    low, high = (bin_of(size) for size in _allocated_size_range(trace, pool))
    width = -(-(high - low + 1) // FEW_CLASSES)
    starts = list(range(low, high + 1, width))
    edges = np.array([MIN_CHUNK << start for start in starts[1:]], np.uint64)
    names = [_colour_class_of_bins(start, min(start + width, high + 1)) for start in starts]
    return names, _size_classifier(edges)


def _colour_class_of_bins(start: int, stop: int) -> str:
    """The name of a class of the colouring by bin."""
    which = f"bin {start}" if stop == start + 1 else f"bins {start}-{stop - 1}"
    if stop == NUM_BINS:
        return f"{which} ({round_bytes(MIN_CHUNK << start)}+)"
    return f"{which} ({_colour_class_size_range(MIN_CHUNK << start, MIN_CHUNK << stop)})"


_SIZES = np.array([KiB, 16 * KiB, 256 * KiB, 4 * MiB, 64 * MiB, GiB, 16 * GiB], np.uint64)


def _classes_by_size(trace: Trace, pool: int) -> tuple[list[str], Classify]:
    """Colour classes by size: the same edges for every trace, without those at either end that do not occur."""
    ends = np.array(_allocated_size_range(trace, pool), np.uint64)
    low, high = np.searchsorted(_SIZES, ends, side="right").tolist()
    edges = _SIZES.tolist()
    names = [
        f"under {round_bytes(edges[0])}",
        *(_colour_class_size_range(a, b) for a, b in pairwise(edges)),
        f"{round_bytes(edges[-1])}+",
    ]
    return names[low : high + 1], _size_classifier(_SIZES[low:high])


def _classes_by_age(trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    """Colour classes by age: powers of ten, up to the length of the trace."""
    digits = min(len(str(len(trace))), FEW_CLASSES)
    edges = np.array([10**power for power in range(1, digits)], np.int64)

    def classify(records: NDArray[np.void], step: int) -> NDArray[np.integer]:
        age = np.maximum(step - records["born"].astype(np.int64), 0)
        return np.searchsorted(edges, age, side="right")

    return ["under 10 steps", *(f"{edge:,}+" for edge in edges.tolist())], classify


def _classes_by_step(trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    """Colour classes by step: equal parts of the trace."""
    stop = max(len(trace), 1)
    starts = sorted({stop * part // FEW_CLASSES for part in range(FEW_CLASSES)})
    names = [_step_class_name(a, b - 1) for a, b in zip(starts, [*starts[1:], stop], strict=True)]
    edges = np.array(starts[1:], np.uint64)
    return names, lambda records, _: np.searchsorted(edges, records["born"], side="right")


def _step_class_name(first: int, last: int) -> str:
    return f"step {first:,}" if first == last else f"{first:,}-{last:,}"


_SHARES = np.array([np.nextafter(0, 1), 0.01, 0.05, 0.1, 0.25, 0.5])


def _classes_by_waste(_trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    names = ["no waste", "under 1 %", "1-5 %", "5-10 %", "10-25 %", "25-50 %", "50 % or more"]
    return names, lambda records, _: np.searchsorted(_SHARES, _wasted_share_of_records(records), side="right")


def _wasted_share_of_records(records: NDArray[np.void]) -> Floats:
    size = np.maximum(records["size"].astype(np.float64), 1.0)
    share: Floats = 1.0 - np.minimum(records["requested"] / size, 1.0)
    return share


_ORDERED: Final[dict[str, Callable[[Trace, int], tuple[list[str], Classify]]]] = {
    "state": _classes_by_state,
    "bin": _classes_by_bin,
    "age": _classes_by_age,
    "size": _classes_by_size,
    "step": _classes_by_step,
    "waste": _classes_by_waste,
}


def _size_classifier(edges: NDArray[np.uint64]) -> Classify:
    return lambda records, _: np.searchsorted(edges, records["size"], side="right")


def _allocated_size_range(trace: Trace, pool: int) -> tuple[int, int]:
    """For colours by size, the smallest and the largest size ever allocated, in bytes."""
    low, high = [], []
    for block in trace.blocks():
        made: NDArray[np.bool_] = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool)
        sizes = block["size"][made]
        if len(sizes):
            low.append(int(sizes.min()))
            high.append(int(sizes.max()))
    return (min(low), max(high)) if low else (MIN_CHUNK, MIN_CHUNK)


def _colour_class_size_range(low: int, high: int) -> str:
    """The name of a colour class by size, `4-16 KiB`: the unit only once if both ends share it."""
    first, last = round_bytes(low), round_bytes(high)
    same = first.split()[1] == last.split()[1]
    return f"{first.split()[0] if same else first}-{last}"


# -- classes by holder ---------------------------------------------------------------------------------------


def _by_holder(trace: Trace, pool: int, theme: Theme, chunks: NDArray[np.void] | None) -> Colouring:
    """Colour class hue * SHADES + shade for each shade of each hue, then `OTHER`."""
    palette = palette_of(trace, pool, chunks)
    chosen = palette.classes(chunks)
    known = palette.made.get((theme.name, chosen))
    if known is not None:
        return known
    paints = [theme.holders[number] for number in palette.occurring.tolist()]
    few = Colouring("holder", [""] * len(paints), paints, palette.classify_occurring)
    made = Colouring("holder", _holder_names(chosen), theme.holders, palette.classify, chosen, few)
    palette.made[theme.name, chosen] = made
    return made


def _holder_names(chosen: HolderClasses) -> list[str]:
    """Names in the legend of colours by holder, of the classes that `chosen` names."""
    numbers, whole = zip(*chosen.names(), strict=True) if chosen.named else ((), ())
    texts = legend_texts(whole)
    if len({name.rpartition("/")[2] for name in whole}) < len(whole):  # the beginnings tell them apart
        longer = [harmless(name, LONGEST_SHORT_NAME) for name in whole]
        texts = longer if len(set(longer)) == len(longer) else texts
    short = dict(zip(numbers, texts, strict=True))
    return [*(short.get(number, "") for number in range(OTHER)), _OTHER_NAME]


# -- named classes -------------------------------------------------------------------------------------------


def _by_most_bytes(trace: Trace, pool: int, name: str, theme: Theme) -> Colouring:
    """Colour classes of the values of field `name` with the most bytes times steps; one class for all others."""
    totals = byte_steps(trace, pool, name)
    by_name: dict[str, float] = {}
    for number in np.flatnonzero(totals).tolist():
        text = _colour_legend_name(trace, name, number)
        by_name[text] = by_name.get(text, 0.0) + totals[number]
    most = sorted(by_name, key=lambda text: -by_name[text])[:_NAMED]
    classes = {text: place for place, text in enumerate(most)}
    # One more entry than numbers: values that a growing trace adds later belong to the others.
    table = np.full(len(totals) + 1, len(most), np.uint8)
    for number in np.flatnonzero(totals).tolist():
        table[number] = classes.get(_colour_legend_name(trace, name, number), len(most))
    names, paints = legend_texts(most), list(theme.classes[: len(most)])
    if len(by_name) > len(most) or not most or trace.following:
        names.append(_OTHER_NAME)
        paints.append(theme.other)
    return Colouring(name, names, paints, lambda records, _: _classes_by_number(table, records[name]))


def _by_kind(trace: Trace, pool: int, theme: Theme) -> Colouring:
    """Colour classes by kind of memory, in the same order and colours in every trace; unknown ones together."""
    kinds = MemoryKinds(trace, pool)
    totals = np.zeros(len(kinds.names), np.int64)
    for block in trace.blocks():
        at = np.flatnonzero((block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool))
        np.add.at(totals, kinds.of(block[at]), block["size"][at].astype(np.int64))
    most = np.argsort(-totals, kind="stable").tolist()
    known = sorted([number for number in most if number and totals[number]][:_NAMED])
    table = np.full(len(totals), len(known), np.uint8)
    table[known] = np.arange(len(known))
    names = [*(harmless(kinds.names[number], LONGEST_SHORT_NAME) for number in known), _UNKNOWN_KIND]
    paints = [*(theme.classes[(number - 1) % len(theme.classes)] for number in known), theme.other]
    return Colouring("kind", names, paints, lambda records, _: table[kinds.of(records)])


def _colour_legend_name(trace: Trace, name: str, number: int) -> str:
    """The legend's name of a value; labels with the same name and different details share one."""
    if name == "label":
        return trace.labels.name(number) or NO_LABEL
    return f"{name} {number}"


# ------------------------------------------------------------------------------
# Fading: the chunks outside of the holder that the user points at or filters by, or that a search does not find.


def faded(trace: Trace, pool: int, look: Look, records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which chunks or lifetimes have faded colours, as they are outside of the look's holder or search."""
    choice = choice_of(look)
    if choice is None or not len(records):
        return np.zeros(len(records), bool)
    return _faded_outside_choice(trace, pool, choice, records)


def _faded_outside_choice(
    trace: Trace, pool: int, choice: Choice, records: NDArray[np.void]
) -> NDArray[np.bool_]:
    """Which records are faded, as they are outside of what the user chose."""
    if isinstance(choice, SearchChoice):
        belongs = found_by(trace.labels, choice.text)
    else:
        belongs = members(grouping_of(trace, pool, choice.by), choice)
    outside = ~belongs(records)
    return outside & records["in_use"] if "in_use" in (records.dtype.names or ()) else outside


@dataclass(frozen=True)
class _FadedClasses:
    """The classes of a colouring, and after these one for the faded ones of each."""

    classify: Classify
    count: int
    trace: Trace
    pool: int
    choice: Choice

    def __call__(self, records: NDArray[np.void], step: int) -> NDArray[np.integer]:
        pale = _faded_outside_choice(self.trace, self.pool, self.choice, records)
        found: NDArray[np.integer] = self.classify(records, step) + self.count * pale.astype(np.uint8)
        return found


def with_faded(colours: Colouring, trace: Trace, pool: int, look: Look) -> Colouring:
    """A colouring with a second class for the faded ones of each class; the same one if nothing is faded."""
    choice = choice_of(look)
    if choice is None:
        return colours
    number, paper = len(colours.paints), look.paints.paper
    pale = [replace(paint, fill=mixed(paint.fill, paper, FADE)) for paint in colours.paints]
    classify = _FadedClasses(colours.classify, number, trace, pool, choice)
    return Colouring(colours.name, [*colours.names, *[""] * number], [*colours.paints, *pale], classify)


NEVER_FREED: Final = "new, never freed"
FREED_LATER: Final = "new, freed later"
_BEFORE: Final = "in use before"


def growth_colouring(model: Model, since: int, theme: Theme) -> Colouring:
    """The colours of what was there at the step `since`, and of what is new."""
    at_end = births_never_freed(model)
    names, paints = [_BEFORE, "new"], [theme.other, theme.classes[0]]
    if at_end is not None:
        names, paints = [_BEFORE, FREED_LATER, NEVER_FREED], [*paints, theme.classes[1]]

    def classify(records: NDArray[np.void], _step: int) -> NDArray[np.integer]:
        found = (records["born"] >= since).astype(np.uint8)
        if at_end is not None:
            found[np.isin(records["born"], at_end) & (found == 1)] = 2
        return found

    return Colouring(f"what grew since step {since:,}", names, paints, classify)
