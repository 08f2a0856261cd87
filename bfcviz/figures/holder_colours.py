"""HolderClasses: which holders get the colours, at one step.

One hue a holder, and two shades of it for its largest children. The usual holders are those with the most bytes times
steps of the whole trace, and they keep their hues. At a step where these say too little (much memory belongs to none
of them, or most of it to one), and the largest ones there say more, those are chosen: a holder that is as large as the
heap is split, and of a crowd of small ones their parent gets the hue.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.model.grouping import UNNAMED, Path, op_path, place_in_code

# ------------------------------------------------------------------------------
# LabelTree: the labels of a trace as a tree of holders, whose bytes at a step are quick to sum.
#
# ::
#
#     layer_1            [0, 3)     a holder is a range of places; `order` has the label at each place,
#       MatMul           [0, 2)     so the bytes of a holder are a difference of two running totals
#       Relu             [2, 3)
#     no label           [3, 4)

ROOT: Final = 0
"""The node of all memory in use."""

_CROWD: Final = 24
"""Children of one holder; more are grouped by their names without the number at the end."""

_NUMBER: Final = re.compile(r"(?:_\d+)+$")


@dataclass(frozen=True)
class LabelTree:
    """Nodes are numbered; a node with a single child and no label of its own is left out.

    Attributes:
        order: the label number at each place.
        start: the first place of each node.
        stop: the place after its last.
        parent: the node above each one; that of the root is the root.
        children: the nodes below each one.
        paths: the path of each node; of names that were grouped by their numbers, one with a `*` at the end.
        nodes: the node of each path; of a path that was left out, the node below it.
    """

    order: NDArray[np.intp]
    start: NDArray[np.intp]
    stop: NDArray[np.intp]
    parent: NDArray[np.intp]
    children: Sequence[NDArray[np.intp]]
    paths: Sequence[Path]
    nodes: dict[Path, int]

    @property
    def size(self) -> int:
        """One more than the highest label number."""
        return int(self.order.max()) + 1 if len(self.order) else 0

    def sums(self, by_label: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bytes of each node, of the bytes by label number (all of `size`)."""
        totals = np.zeros(len(self.order) + 1)
        np.cumsum(by_label[self.order], out=totals[1:])
        found: NDArray[np.float64] = totals[self.stop] - totals[self.start]
        return found

    def above(self, node: int) -> Iterable[int]:
        """The node, and those above it, up to the one below the root."""
        while node != ROOT:
            yield node
            node = int(self.parent[node])


class _Branch:
    """A node while the tree is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.labels: list[int] = []
        self.below: dict[str | None, _Branch] = {}


def label_tree(labels: Labels, numbers: Iterable[int]) -> LabelTree:
    """The tree of the labels with these numbers."""
    root = _Branch(())
    for number in numbers:
        node = root
        for part in colour_path(labels, number):
            node = node.below.setdefault(part, _Branch((*node.path, part)))
        node.labels.append(number)
    return _Builder(root).tree()


def colour_path(labels: Labels, number: int) -> Path:
    """The holders of a label: the parts of its name; if it has no slash, also another place in the code."""
    name, details = labels[number]
    if "/" in name:
        return op_path(name)
    place = place_in_code(details.get("stack", ""))
    return tuple(dict.fromkeys(part for part in (name, place) if part)) or (None,)


class _Builder:
    """Numbers the nodes: each before those below it, which take neighbouring places."""

    def __init__(self, root: _Branch) -> None:
        self._order: list[int] = []
        self._start: list[int] = []
        self._stop: list[int] = []
        self._parent: list[int] = []
        self._children: list[list[int]] = []
        self._paths: list[Path] = []
        self._nodes: dict[Path, int] = {}
        self._walk(root)

    def tree(self) -> LabelTree:
        """The finished tree."""
        start, stop, parent = (np.array(each, np.intp) for each in (self._start, self._stop, self._parent))
        children = [np.array(each, np.intp) for each in self._children]
        return LabelTree(
            np.array(self._order, np.intp), start, stop, parent, children, self._paths, self._nodes
        )

    def _walk(self, root: _Branch) -> None:
        # Without recursion: a path of a hostile file is 200 parts deep. None ends the node before it.
        stack: list[tuple[_Branch, int] | None] = [(root, -1)]
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
            stack += [(child, number) for child in reversed(_grouped(node))]

    def _single(self, node: _Branch, parent: int) -> tuple[_Branch, int]:
        """The node, or the first one below it that has a label or several children."""
        while parent >= 0 and not node.labels and len(node.below) == 1:
            self._nodes[node.path] = len(self._start)
            (node,) = node.below.values()
        return node, parent

    def _add(self, node: _Branch, parent: int) -> int:
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


def _grouped(node: _Branch) -> list[_Branch]:
    """The children of a node; those of a crowd share a parent if only the number at the end of their names differs."""
    children = list(node.below.values())
    if len(children) <= _CROWD:
        return children
    groups: dict[str, list[_Branch]] = {}
    for child in children:
        groups.setdefault(_NUMBER.sub("", child.path[-1] or ""), []).append(child)
    found = []
    for stem, members in groups.items():
        if len(members) == 1 or len(groups) == 1:
            found += members
            continue
        group = _Branch((*node.path, f"{stem}*"))
        group.below = {member.path[-1]: member for member in members}
        found.append(group)
    return found


# ------------------------------------------------------------------------------
# HolderClasses: which holders get the colours, at one step.

HUES: Final = 7
SHADES: Final = 3
"""Of one hue: its own, and two for the largest children."""

OTHER: Final = HUES * SHADES
"""The class of all memory without a hue."""

# Shares of the bytes in use:
_LEAST: Final = 0.015  # of a holder with a hue
_LEAST_BELOW: Final = 0.05  # of one inside another holder with a hue
_SPLIT: Final = 0.2  # a holder with more is split
_LEAST_SHADE: Final = 0.02
_MOST_OTHER: Final = 0.1  # of the usual holders: with more, others are chosen
_MOST_IN_ONE: Final = 0.5
_LEAST_GAIN: Final = 0.05  # by which others must say more: colours do not change for nothing

_HEIR: Final = 0.9  # of a holder's bytes: a child with more has the shades

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HolderClasses:
    """The class of each holder that has one, at one step.

    Attributes:
        nodes: the class of a node of the tree -> hue * SHADES + shade; all nodes below have it too.
    """

    tree: LabelTree
    nodes: Mapping[int, int]

    def names(self) -> Iterator[tuple[int, str]]:
        """Each class with the name of its holder."""
        for node, number in self.nodes.items():
            yield number, path_text(self.tree.paths[node])

    def by_label(self) -> NDArray[np.uint8]:
        """The class of each label number; a last entry for labels that the tree does not know."""
        found = np.full(self.tree.size + 1, OTHER, np.uint8)
        for node in sorted(self.nodes):  # holders before those inside them
            places = slice(self.tree.start[node], self.tree.stop[node])
            found[self.tree.order[places]] = self.nodes[node]
        return found

    def of_path(self, path: tuple[str | None, ...]) -> int | None:
        """The class of the memory of a path; None: it has several, or the path is not known."""
        node = self.tree.nodes.get(path)
        if node is None or node == ROOT:
            return None
        if any(each != node and node in self.tree.above(each) for each in self.nodes):
            return None
        return next((self.nodes[each] for each in self.tree.above(node) if each in self.nodes), OTHER)


def path_text(path: Path) -> str:
    """A path in one line."""
    return "/".join(part or UNNAMED["op"] for part in path)


class HolderChooser:
    """Chooses the holders that get the colours.

    Args:
        tree: the labels.
        byte_steps: bytes times steps in use, by label number.
    """

    def __init__(self, tree: LabelTree, byte_steps: Floats) -> None:
        self.tree = tree
        self._usual_sums = tree.sums(byte_steps)
        chosen = largest_holders(tree, self._usual_sums, HUES)
        ranked = sorted(chosen, key=lambda node: (-self._usual_sums[node], node))
        self._usual = {node: hue for hue, node in enumerate(ranked)}

    def at(self, by_label: Floats | None = None) -> HolderClasses:
        """The classes for these bytes by label number; None: those of the whole trace."""
        sums = self._usual_sums if by_label is None else self.tree.sums(by_label)
        total = float(sums[ROOT])
        hues = self._usual if by_label is None else self._hues_at(sums)
        nodes = {node: hue * SHADES for node, hue in hues.items()}
        own = _without(self.tree, hues, sums)
        for node, hue in hues.items():
            for shade, child in enumerate(self._shaded(node, hues, own, max(_LEAST_SHADE * total, 1.0)), 1):
                if child is not None:
                    nodes[child] = hue * SHADES + shade
        return HolderClasses(self.tree, nodes)

    def _hues_at(self, sums: Floats) -> dict[int, int]:
        """The holders with a hue for these bytes: the usual ones, unless others say more."""
        if self._suits(sums):
            return self._usual
        chosen = largest_holders(self.tree, sums, HUES)
        gain = _unsaid(self.tree, self._usual, sums) - _unsaid(self.tree, chosen, sums)
        return self._hues(chosen, sums) if gain >= _LEAST_GAIN else self._usual

    def _suits(self, sums: Floats) -> bool:
        """Whether the usual holders say enough about these bytes."""
        total = max(sums[ROOT], 1.0)
        rest = _rests(self.tree, self._usual, sums)
        if rest.pop(ROOT) > _MOST_OTHER * total:
            return False
        most = max(rest, key=lambda node: rest[node], default=ROOT)
        if most == ROOT or rest[most] <= _MOST_IN_ONE * total:
            return True
        best = _largest_child(self.tree, most, sums, self._usual)
        return best is None or sums[best] < _SPLIT * total

    def _hues(self, chosen: Iterable[int], sums: Floats) -> dict[int, int]:
        """A hue for each node: its usual one, else that of a usual one around it or inside, else the first left."""
        found = {node: self._usual[node] for node in chosen if node in self._usual}
        for node in sorted(set(chosen) - found.keys(), key=lambda node: (-sums[node], node)):
            taken = set(found.values())
            wanted = [self._usual[each] for each in self.tree.above(node) if each in self._usual]
            wanted += [hue for each, hue in self._usual.items() if node in self.tree.above(each)]
            found[node] = next(hue for hue in (*wanted, *range(HUES)) if hue not in taken)
        return found

    def _shaded(self, node: int, hues: Mapping[int, int], sums: Floats, least: float) -> list[int | None]:
        """The children that get the shades of a node; None: a shade that is not used."""
        while True:
            below = [each for each in self.tree.children[node].tolist() if each not in hues]
            below = sorted((each for each in below if sums[each] >= least), key=lambda each: -sums[each])
            if not below or sums[below[0]] < _HEIR * sums[node]:
                break
            node = below[0]
        found: list[int | None] = [None] * (SHADES - 1)
        usual = sorted(self.tree.children[node].tolist(), key=lambda each: -self._usual_sums[each])
        place = {each: number % len(found) for number, each in enumerate(usual)}
        for child in below[: len(found)]:
            wanted = place[child] if found[place[child]] is None else found.index(None)
            found[wanted] = child
        return found


def largest_holders(tree: LabelTree, sums: Floats, most: int) -> list[int]:
    """The largest nodes for these bytes, `most` at most; nodes inside others take their bytes from them."""
    total, done = sums[ROOT], set[int]()
    chosen: list[int] = []
    for _ in range(20 * most):
        rest = _rests(tree, chosen, sums)
        small = [node for node in chosen if rest[node] < _LEAST * total]
        done |= set(small)
        chosen = [node for node in chosen if node not in small]
        if len(chosen) == most:
            break
        best = _next(tree, chosen, done, sums, rest)
        if best is None:
            break
        chosen.append(best)
    return chosen


def _next(
    tree: LabelTree, chosen: Iterable[int], done: set[int], sums: Floats, rest: Mapping[int, float]
) -> int | None:
    """The largest node to choose next, below the root or a large chosen one; None: there is none."""
    total = sums[ROOT]
    taken = done | set(chosen)
    candidates = []
    for node in taken | {ROOT}:
        least = _LEAST if node == ROOT else _LEAST_BELOW
        if node == ROOT or node in done or rest[node] > _SPLIT * total:
            child = _largest_child(tree, node, sums, taken)
            if child is not None and sums[child] >= max(least * total, 1.0):
                candidates.append(child)
    return max(candidates, key=lambda node: (sums[node], -node), default=None)


def _largest_child(tree: LabelTree, node: int, sums: Floats, taken: Iterable[int]) -> int | None:
    children = tree.children[node]
    free = children[~np.isin(children, list(taken))]
    return int(free[sums[free].argmax()]) if len(free) else None


def _rests(tree: LabelTree, chosen: Iterable[int], sums: Floats) -> dict[int, float]:
    """The bytes of each chosen node, and of the root, without those of the chosen nodes inside."""
    nodes = set(chosen)
    found = {node: float(sums[node]) for node in (ROOT, *nodes)}
    for node in nodes:
        around = next((each for each in tree.above(int(tree.parent[node])) if each in nodes), ROOT)
        found[around] -= float(sums[node])
    return found


def _unsaid(tree: LabelTree, chosen: Iterable[int], sums: Floats) -> float:
    """The share of the bytes in no chosen node, and of those of the largest one above the limit."""
    total = max(float(sums[ROOT]), 1.0)
    rest = _rests(tree, chosen, sums)
    other = rest.pop(ROOT) / total
    return other + max(max(rest.values(), default=0.0) / total - _MOST_IN_ONE, 0.0)


def _without(tree: LabelTree, chosen: Iterable[int], sums: Floats) -> Floats:
    """The bytes of each node without those of the chosen nodes inside."""
    nodes, found = set(chosen), sums.copy()
    for node in nodes:
        for each in tree.above(int(tree.parent[node])):
            found[each] -= sums[node]
            if each in nodes:
                break
    return found


# ------------------------------------------------------------------------------
# HolderGroups: the memory of holders that an image counts apart, the same groups at every step.
#
# An image of many events sums the bytes of each class once. Colours by holder may change with each step: the image
# then gives each group another colour, and reads no event again.

_MOST: Final = 2 * HUES + 1
"""Groups with a holder; one more has all other memory. Each costs a grid of sums."""


class HolderGroups:
    """The largest holders of a trace, each a group, and one group of all others.

    Args:
        tree: the labels.
        byte_steps: bytes times steps in use, by label number.
    """

    def __init__(self, tree: LabelTree, byte_steps: NDArray[np.float64]) -> None:
        nodes = sorted(largest_holders(tree, tree.sums(byte_steps), _MOST))
        self._byte_steps = byte_steps
        self._count = len(nodes) + 1
        self._of_label = np.full(
            tree.size + 1, len(nodes), np.uint8
        )  # the last: labels that the tree does not know
        for number, node in enumerate(nodes):  # holders before those inside them
            self._of_label[tree.order[tree.start[node] : tree.stop[node]]] = number

    def __len__(self) -> int:
        return self._count

    def classify(self, records: NDArray[np.void], _step: int) -> NDArray[np.integer]:
        """The group of each record."""
        last = len(self._of_label) - 1
        found: NDArray[np.uint8] = self._of_label[np.minimum(records["label"], last).astype(np.intp)]
        return found

    def most_of(self, classes: NDArray[np.uint8]) -> list[int]:
        """For each group the class that most of its memory has.

        Args:
            classes: the class of each label number, up to `OTHER`; a last entry for unknown labels.
        """
        groups = self._of_label[:-1].astype(np.intp)
        held = np.zeros((self._count, OTHER + 1))
        np.add.at(held, (groups, classes[: len(groups)]), self._byte_steps[: len(groups)])
        held[-1, OTHER] += 1e-9  # a group without memory
        found: list[int] = held.argmax(axis=1).tolist()
        return found
