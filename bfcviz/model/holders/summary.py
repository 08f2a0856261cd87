"""A summary of a tree of holders for a picture or a text: few parts, and "other" for what is left out of it.

Holders with a single holder below and no memory of their own are one part with it: `a/b` instead of `a` and in it `b`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.holders.holders import ALL, Holders

_WHOLE: Final = -1


class HolderPart(NamedTuple):
    """A holder, or several small ones around one holder.

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


def summary(found: Holders, most: int, least_share: float = 0.0) -> list[HolderPart]:
    """The largest holders of a tree, each before those in it, siblings by their bytes, small ones together last.

    Args:
        found: the tree.
        most: holders to name at most; with the parts of small ones there are at most twice as many parts.
        least_share: do not name holders with less than this part (0..1) of all bytes in use.
    """
    rows, kept, parents, starts = _merged(found)
    sizes = rows["bytes"][kept]
    # A holder is at least as large as those in it and comes before them: the largest ones form a tree.
    chosen = np.sort(np.argsort(~sizes, kind="stable")[: max(most, 1)])
    chosen = chosen[(sizes[chosen] >= least_share * int(sizes[0])) | (chosen == 0)]
    place = np.full(len(kept), -1, np.intp)
    place[chosen] = np.arange(len(chosen))
    small = np.flatnonzero(place < 0)
    small = small[place[parents[small]] >= 0]
    parts = [_part(found, int(kept[each]), int(starts[each])) for each in chosen.tolist()]
    inside: list[list[int]] = [[] for _ in parts]
    for part, each in enumerate(chosen.tolist()[1:], 1):
        inside[int(place[parents[each]])].append(part)
    others = _others(rows[kept[small]], place[parents[small]])
    return _laid_out(parts, inside, others)


def _merged(
    found: Holders,
) -> tuple[NDArray[np.void], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The rows; those that are not merely around one other; for each of these its parent among them and first name."""
    rows = found.rows
    link = (rows["children"] == 1) & (rows["own_chunks"] == 0)
    link[0] = False
    kept = np.flatnonzero(~link)
    # The one holder below a row is the next row: the names of a part are a run of rows that ends with it.
    starts = np.append(0, kept[:-1] + 1)
    number = np.cumsum(~link) - 1
    parent: NDArray[np.int64] = rows["parent"][starts]
    parents = number[np.maximum(parent, 0)]
    return rows, kept, parents, starts


def _part(found: Holders, row: int, start: int) -> HolderPart:
    values = found.rows[row]
    names = ALL if row == 0 else found.separator.join(found.names[start : row + 1])
    amounts = (int(values[name]) for name in ("bytes", "own_bytes", "requested", "chunks"))
    return HolderPart(names, _WHOLE, 0, row, 1, *amounts)


def _others(rows: NDArray[np.void], parents: NDArray[np.intp]) -> dict[int, HolderPart]:
    """The small holders in each part that has some, together."""
    found = {}
    order = np.argsort(parents, kind="stable")
    for parent, few in zip(*np.unique(parents[order], return_index=True), strict=True):
        mine = rows[order[few : few + np.count_nonzero(parents == parent)]]
        size, requested, chunks = (int(mine[name].sum()) for name in ("bytes", "requested", "chunks"))
        found[int(parent)] = HolderPart("other", _WHOLE, 0, -1, len(mine), size, size, requested, chunks)
    return found


def _laid_out(
    parts: list[HolderPart], inside: list[list[int]], others: dict[int, HolderPart]
) -> list[HolderPart]:
    """Parts in order, with their parents and depths."""
    found: list[HolderPart] = []
    left = [(0, _WHOLE, 0)]  # part, parent, depth
    while left:
        part, parent, depth = left.pop()
        if part < 0:
            found.append(others[~part]._replace(parent=parent, depth=depth))
            continue
        here = len(found)
        found.append(parts[part]._replace(parent=parent, depth=depth))
        # The last one in is the first one out.
        if part in others:
            left.append((~part, here, depth + 1))
        left += [(child, here, depth + 1) for child in reversed(inside[part])]
    return found
