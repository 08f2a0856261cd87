"""The tree of holders: one row a holder, parents before children, siblings by their bytes.

::

    row  parent  depth   own_bytes  bytes  name
     0     -1      0         0       12    in use
     1      0      1         0       10    layer_1
     2      1      2         8        8    MatMul
     3      1      2         2        2    Relu
     4      0      1         2        2    no label
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.row_copy import taken
from bfcviz.model.holders.holder_paths import Path

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


def tree_of(
    numbers: NDArray[np.intp], paths: Sequence[Path], sizes: NDArray[np.void]
) -> tuple[NDArray[np.void], list[str | None]]:
    """The tree of records and the name of each row; the first row is all of them.

    Args:
        numbers: the holder of each record, an index into `paths`.
        paths: all different.
        sizes: the records, with the fields `size` and `requested`.

    Returns:
        Rows of HOLDER; and their names, None for memory without a name and for the first row.
    """
    leaves, parents, names = _nodes(paths)
    rows = np.zeros(len(names), HOLDER)
    rows["parent"], at = parents, leaves[numbers]
    # bincount's weights would be float64, exact only to 8 PiB.
    np.add.at(rows["own_bytes"], at, sizes["size"])
    np.add.at(rows["own_requested"], at, sizes["requested"])
    rows["own_chunks"] = np.bincount(at, minlength=len(rows))
    levels = _levels(rows)
    _sum_up(rows, levels)
    return _in_order(rows, names, levels)


def _nodes(paths: Sequence[Path]) -> tuple[NDArray[np.intp], list[int], list[str | None]]:
    """The node of each path, the parent of each node, and the name of each node; parents come first."""
    known: dict[tuple[int, str | None], int] = {}
    parents, names = [-1], [None]  # type: tuple[list[int], list[str | None]]
    leaves = np.zeros(len(paths), np.intp)
    for number, path in enumerate(paths):
        node = 0
        for part in path:
            key = node, part
            child = known.get(key)
            if child is None:
                child = known[key] = len(parents)
                parents.append(node)
                names.append(part)
            node = child
        leaves[number] = node
    return leaves, parents, names


def _levels(rows: NDArray[np.void]) -> list[NDArray[np.intp]]:
    """The rows of each depth; sets `depth`."""
    levels = [np.zeros(1, np.intp)]
    order = np.argsort(rows["parent"], kind="stable")
    parents = rows["parent"][order]
    while True:
        here = levels[-1]
        first, last = np.searchsorted(parents, here), np.searchsorted(parents, here, side="right")
        rows["children"][here] = last - first
        counts = last - first
        if not counts.any():
            return levels
        # Every child of every row of this level: the runs [first, last) after each other.
        starts = np.repeat(first - np.append(0, np.cumsum(counts)[:-1]), counts)
        children = order[starts + np.arange(len(starts))]
        rows["depth"][children] = len(levels)
        levels.append(children)


def _sum_up(rows: NDArray[np.void], levels: Sequence[NDArray[np.intp]]) -> None:
    rows["rows"] = 1
    for name in _SUMS:
        rows[name] = rows[f"own_{name}"]
    for level in reversed(levels[1:]):
        for name in (*_SUMS, "rows"):
            np.add.at(rows[name], rows["parent"][level], rows[name][level])


def _in_order(
    rows: NDArray[np.void], names: Sequence[str | None], levels: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.void], list[str | None]]:
    """Rows and names, each holder before those below it, siblings by bytes (of equal ones, those found first)."""
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
