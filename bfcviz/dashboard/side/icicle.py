"""The icicle of the side pane: each holder a rectangle as wide as its bytes, below the one around it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from bfcviz.dashboard.side.holder_counts import HolderCount
from bfcviz.model.holders.holder_index import ROOT

_LEAST: Final = 0.012  # of all bytes in use: about 3 pixels
_LEAST_OPEN: Final = 0.03  # a narrower rectangle has none below it
_DEEPEST: Final = 12
_MOST: Final = 60


class HolderSpan(NamedTuple):
    """A rectangle: the node (-1: small holders together), its place from the left and its width in bytes.

    `name` is the path below the rectangle around it; `holders` are different paths; `depth` 0 is all memory in use.
    """

    node: int
    name: str
    depth: int
    left: int
    bytes: int
    chunks: int
    holders: int


def holder_spans(found: HolderCount) -> list[HolderSpan]:
    """The rectangles of the largest holders, the widest first, at most 60."""
    index = found.index
    spans, done = [HolderSpan(ROOT, "", 0, 0, found.total, *_counts(found, ROOT))], 0
    while done < len(spans) < _MOST:
        done = _widest(spans, done)
        around = spans[done]
        done += 1
        wide = around.bytes >= _LEAST_OPEN * found.total
        if around.node >= 0 and wide and around.depth < _DEEPEST and index.children[around.node]:
            spans += _below(found, around)
    return spans


def _widest(spans: list[HolderSpan], done: int) -> int:
    """Move the widest of the rectangles from `done` on to this place."""
    widest = max(range(done, len(spans)), key=lambda place: spans[place].bytes)
    spans[done], spans[widest] = spans[widest], spans[done]
    return done


def _below(found: HolderCount, around: HolderSpan) -> Iterator[HolderSpan]:
    index, amounts = found.index, found.amounts
    children = np.array(index.children[around.node], np.intp)
    children = children[amounts.chunks[children] > 0]
    children = children[np.lexsort((children, -amounts.bytes[children]))]
    large = children[amounts.bytes[children] >= _LEAST * found.total]
    left = around.left
    for node in large.tolist():
        size = int(amounts.bytes[node])
        name, parts = node, [index.names[node]]
        while (only := amounts.only_child(index, name)) is not None:
            name = only
            parts.append(index.names[only])
        yield HolderSpan(name, index.text(parts), around.depth + 1, left, size, *_counts(found, node))
        left += size
    small = children[len(large) :]
    size = int(amounts.bytes[small].sum())
    if size >= _LEAST * found.total:
        counts = int(amounts.chunks[small].sum()), int(amounts.holders[small].sum())
        yield HolderSpan(-1, "", around.depth + 1, left, size, *counts)


def _counts(found: HolderCount, node: int) -> tuple[int, int]:
    """The chunks of a node and its different paths."""
    return int(found.amounts.chunks[node]), int(found.amounts.holders[node])
