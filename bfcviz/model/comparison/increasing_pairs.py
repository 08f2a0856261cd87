"""Pairs of steps that ascend in both recordings: the most of them that do not cross."""

from bisect import bisect_left
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.int64]
Key = TypeVar("Key", np.int64, np.uint64)


def increasing(a: Steps, b: Steps) -> tuple[Steps, Steps]:
    """The longest selection of pairs, in the order of `a`, whose steps in `b` ascend strictly, too.

    Patience sorting: `ends[k]` is the pair with the least `b` that ends a selection of k + 1 pairs.

    Args:
        a: steps, all different.
        b: the step that belongs to each of them.
    """
    order = np.argsort(a, kind="stable")
    a, b = a[order], b[order]
    values = b.tolist()
    tails: list[int] = []
    ends: list[int] = []
    before = [-1] * len(values)
    for place, value in enumerate(values):
        length = bisect_left(tails, value)
        before[place] = ends[length - 1] if length else -1
        tails[length : length + 1] = [value]
        ends[length : length + 1] = [place]
    chosen = []
    place = ends[-1] if ends else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    kept = np.array(chosen[::-1], np.intp)
    return a[kept], b[kept]


def shared(a: NDArray[Key], b: NDArray[Key]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the values lie that both arrays have, by value; each array has every value once."""
    _, first, second = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    return first.astype(np.intp), second.astype(np.intp)


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """Indices of at most `most` of `count` things at even distances, the last one among them."""
    if count <= most:
        return np.arange(count)
    return np.arange(1, most + 1) * count // most - 1
