"""Downsampling: merge the rows of a timeline into fewer, longer ones and keep every extreme.

Compiled, `fold` keeps the GIL: it takes well under a millisecond, and beside a busy thread it would wait 5 ms to get
the GIL back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.state import array_access


def downsample(rows: NDArray[np.void], points: int) -> NDArray[np.void]:
    """At most `points` rows; each merges as nearly equally many of `rows` as possible."""
    if len(rows) <= points:
        return rows
    return merge_rows(rows, np.arange(len(rows)) * points // len(rows))


def merge_rows(rows: NDArray[np.void], groups: NDArray[Any]) -> NDArray[np.void]:
    """Merge consecutive rows that have the same number in `groups`, shape (len(rows),).

    Returns `rows` itself where no two have.
    """
    out = np.zeros(len(rows), rows.dtype)
    made = fold(*_words_of(rows), groups.astype(np.int64), *_words_of(out))
    return rows if made == len(rows) else out[:made]


def fold(
    rows: NDArray[np.uint64],
    ratios: NDArray[np.float64],
    groups: NDArray[np.int64],
    out: NDArray[np.uint64],
    out_ratios: NDArray[np.float64],
) -> int:
    """Merge consecutive rows that have the same number in `groups`; compiled.

    Args:
        rows: (n, words) rows of `timeline.TIMELINE`, as integers.
        ratios: the same memory as floating-point numbers.
        groups: (n,) the group of each row.
        out: receives the merged rows: as many as `rows`, all zeros.
        out_ratios: the same memory as floating-point numbers.

    Returns:
        How many rows were made.
    """
    made = 0
    series = (rows.shape[1] - array_access.HEAD_WORDS) // array_access.SERIES_WORDS
    for i in range(len(groups)):
        first = i == 0 or groups[i] != groups[i - 1]
        if first:
            made += 1
        at = made - 1
        out[at, 0] = rows[i, 0]
        out[at, 1] = rows[i, 1]
        out[at, 2] += rows[i, 2]
        for number in range(series):
            low = array_access.HEAD_WORDS + number * array_access.SERIES_WORDS
            high = low + 1
            out[at, low + 2] = rows[i, low + 2]
            if number < array_access.TOTALS:
                less = rows[i, low] < out[at, low]
                more = rows[i, high] > out[at, high]
            else:
                less = ratios[i, low] < out_ratios[at, low]
                more = ratios[i, high] > out_ratios[at, high]
            if first or less:
                out[at, low] = rows[i, low]
                out[at, low + 3] = rows[i, low + 3]
                out[at, low + 5] = rows[i, low + 5]
            if first or more:
                out[at, high] = rows[i, high]
                out[at, high + 3] = rows[i, high + 3]
                out[at, high + 5] = rows[i, high + 5]
    return made


def _words_of(rows: NDArray[np.void]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """The words of each row, as integers and as floating-point numbers."""
    table = rows.view(np.uint64).reshape(len(rows), -1 if len(rows) else 1)
    return table, table.view(np.float64)
