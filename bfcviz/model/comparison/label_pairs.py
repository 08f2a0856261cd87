"""Steps of two recordings that belong together by their labels: the n-th allocation of a holder in each of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.increasing_pairs import Steps, evenly, increasing, shared
from bfcviz.model.comparison.sides import RecordingSide

FEWEST: Final = 8
"""Pairs of allocations that align two recordings."""

_MOST: Final = 100_000
"""Pairs whose order is compared, at even distances; more would take more than about 0.1 s."""

_KEPT: Final = 2000
"""Pairs that the alignment keeps."""


def label_pairs(a: RecordingSide, b: RecordingSide, holders: CommonHolders) -> tuple[Steps, Steps]:
    """The steps just after the n-th allocation of the same holder in both, in the order that most of them agree on."""
    keys_a, steps_a = _occurrences(a, holders, 0)
    keys_b, steps_b = _occurrences(b, holders, 1)
    first, second = shared(keys_a, keys_b)
    pairs = steps_a[first], steps_b[second]
    order = np.argsort(pairs[0])
    order = order[evenly(len(order), _MOST)]
    found = increasing(pairs[0][order], pairs[1][order])
    kept = evenly(len(found[0]), _KEPT)
    return found[0][kept], found[1][kept]


def _occurrences(
    side: RecordingSide, holders: CommonHolders, number: int
) -> tuple[NDArray[np.uint64], Steps]:
    """For each allocation with a name: its holder and how often this one allocated before, as one key; and its step."""
    rows = holders.rows(number, side.allocations)
    common = holders.allocated[0] & holders.allocated[1]
    if holders.unnamed is not None:
        common[holders.unnamed] = False
    at = np.flatnonzero(common[rows]) if len(rows) else np.zeros(0, np.intp)
    order = at[np.argsort(rows[at], kind="stable")]
    sorted_rows = rows[order]
    nth = np.arange(len(order)) - np.searchsorted(sorted_rows, sorted_rows)
    keys = (sorted_rows.astype(np.uint64) << np.uint64(40)) | nth.astype(np.uint64)
    return keys, side.allocations["born"][order].astype(np.int64) + 1
