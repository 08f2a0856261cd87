"""LabelTree: the labels of a trace as a tree of holders, whose bytes at a step are quick to sum.

::

    layer_1            [0, 3)     a holder is a range of places; `order` has the label at each place,
      MatMul           [0, 2)     so the bytes of a holder are a difference of two running totals
      Relu             [2, 3)
    no label           [3, 4)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.model.holders.holder_paths import Path, op_path, place_in_code

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
