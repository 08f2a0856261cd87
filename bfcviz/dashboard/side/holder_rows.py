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

from bfcviz.model.holders.holder_index import ROOT, HolderAmounts, HolderIndex
from bfcviz.model.holders.holder_paths import Path

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
