"""The holders of one heap as a tree that grows: the bytes of each holder at any step, in time that few chunks take.

`holders` builds a new tree for each step; this keeps the tree, so that a view can count again at every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.model.grouping import UNNAMED, Grouping, Path
from bfcviz.model.model import Model

# ------------------------------------------------------------------------------
# The holders of one heap as a tree that grows: the bytes of each holder at any step, in time that few chunks take.

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

    def only_child(self, index: "HolderIndex", node: int) -> int | None:
        """The node directly below that holds all chunks of this one; None if there is none."""
        held = int(self.chunks[node])
        below = (child for child in index.children[node] if held and self.chunks[child] == held)
        return next(below, None)


class HolderIndex:
    """All holders seen so far; a node keeps its number.

    Args:
        how: the grouping.

    Attributes:
        parents: the node around each node; -1 for the first.
        names: the last part of its path; None: memory without a name, and the first node.
        children: the nodes directly below.
    """

    def __init__(self, how: Grouping) -> None:
        self.how = how
        self.parents, self.names, self.children = [-1], [None], [[]]  # type: list[int], list[str | None], list[list[int]]
        self._known: dict[tuple[int, str | None], int] = {}
        self._leaf_of = np.full(0, -1, np.intp)  # code -> node
        self._leaves: set[int] = set()
        self._pairs: list[tuple[int, int]] = []  # each leaf with itself and every node around it
        self._pair_arrays = np.zeros((2, 0), np.intp)

    def __len__(self) -> int:
        return len(self.names)

    def path(self, node: int) -> Path:
        """The names from the outermost holder to this one; empty for the first node."""
        found = []
        while node > ROOT:
            found.append(self.names[node])
            node = self.parents[node]
        return tuple(reversed(found))

    def text(self, path: Sequence[str | None]) -> str:
        """A path, or a part of it, in one line."""
        return self.how.separator.join(UNNAMED[self.how.by] if part is None else part for part in path)

    def count(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Sums by code, for `amounts`: bytes, requested bytes and number of the records, shape (3, codes).

        Args:
            records: chunks in use, or events of allocations, with `size`, `requested` and what the grouping needs.
        """
        codes = self.codes(records)
        found = np.zeros((3, len(self._leaf_of)), np.int64)
        # bincount's weights would be float64, exact only to 8 PiB.
        np.add.at(found[0], codes, records["size"].astype(np.int64))
        np.add.at(found[1], codes, records["requested"].astype(np.int64))
        found[2] = np.bincount(codes, minlength=len(self._leaf_of))
        return found

    def amounts(self, by_code: NDArray[np.int64]) -> HolderAmounts:
        """What each node holds; `by_code` as `count` gives it."""
        own = np.zeros((4, len(self)), np.int64)
        present = np.flatnonzero(by_code[2])
        for row in range(3):
            np.add.at(own[row], self._leaf_of[present], by_code[row, present])
        own[3] = own[2] > 0
        return HolderAmounts(*self._summed(own))

    def main_class(
        self, codes: NDArray[np.intp], classes: NDArray[np.integer], weights: NDArray[np.integer]
    ) -> NDArray[np.intp]:
        """The class with the largest sum of weights of each node, shape (nodes,); -1 where it has none.

        Args:
            codes: of records, as `codes` gives them, or of which each occurs once, shape (n,).
            classes: the class of each, shape (n,).
            weights: the weight of each, shape (n,).
        """
        number = int(classes.max(initial=0)) + 1
        length = len(self._leaf_of)
        by_code = np.bincount(classes.astype(np.intp) * length + codes, weights, number * length)
        by_code = by_code.reshape(number, length)
        present = np.flatnonzero(by_code.any(axis=0))
        own = np.zeros((number, len(self)))
        for row in range(number):
            np.add.at(own[row], self._leaf_of[present], by_code[row, present])
        summed = self._summed(own)
        found: NDArray[np.intp] = np.where(summed.any(axis=0), summed.argmax(axis=0), -1)
        return found

    def _summed(self, own: NDArray[Any]) -> NDArray[Any]:
        """The sums of each node and all nodes below it, shape (rows, nodes); `own`: those of leaves."""
        leaves, nodes = self._ancestors()
        found = np.zeros_like(own)
        for row in range(len(own)):
            np.add.at(found[row], nodes, own[row, leaves])
        return found

    def codes(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The codes of records; each has a leaf afterwards."""
        codes = self.how.codes(records).astype(np.intp)
        highest = int(codes.max(initial=-1))
        if highest >= len(self._leaf_of):
            more = np.full(highest + 1 - len(self._leaf_of), -1, np.intp)
            self._leaf_of = np.concatenate([self._leaf_of, more])
        unknown = codes[self._leaf_of[codes] < 0]
        for code in np.unique(unknown).tolist():
            self._leaf_of[code] = self._node(self.how.path(code))
        return codes

    def _node(self, path: Path) -> int:
        node, around = ROOT, [ROOT]
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
            around.append(node)
        if node not in self._leaves:
            self._leaves.add(node)
            self._pairs += [(node, each) for each in around]
        return node

    def _ancestors(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each leaf as often as it has nodes around it, itself included; and these nodes."""
        known = self._pair_arrays.shape[1]
        if known < len(self._pairs):
            new = np.array(self._pairs[known:], np.intp).T
            self._pair_arrays = np.concatenate([self._pair_arrays, new], axis=1)
        return self._pair_arrays[0], self._pair_arrays[1]


# ------------------------------------------------------------------------------
# Sums of the chunks in use by holder, from step to step: only the events between two near steps are read.

_NEAR: Final = 8192
"""Events between two steps: to read more takes longer than to count 70,000 chunks."""


class RunningCount:
    """The sums of one index at the step of a model."""

    def __init__(self, index: HolderIndex) -> None:
        self._index = index
        self._step: int | None = None
        self._sums = np.zeros((3, 0), np.int64)

    def at(self, model: Model) -> NDArray[np.int64]:
        """The sums at the model's step, as `HolderIndex.count` gives them; all calls are for one heap of one trace."""
        step, before, first = model.step, self._step, model.trace.first
        # A FREE does not tell in which phase its chunk was allocated.
        known = before is not None and before >= first and self._index.how.by != "phase"
        if before is None or not known or abs(step - before) > _NEAR:
            self._sums = self._index.count(model.in_use())
        elif step != before:
            self._move(model, before)
        self._step = step
        return self._sums

    def _move(self, model: Model, before: int) -> None:
        """Take in the events between the step `before` and the model's."""
        step = model.step
        events = model.trace.read(min(step, before), max(step, before))
        kinds = np.where(events["pool"] == model.pool, events["kind"], 0)
        for kind, sign in ((Kind.ALLOCATE, 1), (Kind.FREE, -1)):
            change = self._index.count(events[kinds == kind])
            sums = np.pad(self._sums, ((0, 0), (0, change.shape[1] - self._sums.shape[1])))
            self._sums = sums + change * (sign if step > before else -sign)
