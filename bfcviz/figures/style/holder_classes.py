"""HolderClasses: which holders get the colours, at one step.

One hue a holder, and two shades of it for its largest children. The usual holders are those with the most bytes times
steps of the whole trace, and they keep their hues. At a step where these say too little (much memory belongs to none
of them, or most of it to one), and the largest ones there say more, those are chosen: a holder that is as large as the
heap is split, and of a crowd of small ones their parent gets the hue.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.label_tree import ROOT, LabelTree
from bfcviz.model.holders.grouping import UNNAMED
from bfcviz.model.holders.holder_paths import Path

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
