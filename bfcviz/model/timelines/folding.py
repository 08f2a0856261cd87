"""Folding: rows of a timeline put together, in one pass.

Compiled, it keeps the interpreter's lock: it takes well under a millisecond, and a renderer that gave it away beside
a busy thread would wait 5 ms to have it back.
"""

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.state import array_access


def fold(
    rows: NDArray[np.uint64],
    ratios: NDArray[np.float64],
    groups: NDArray[np.int64],
    out: NDArray[np.uint64],
    out_ratios: NDArray[np.float64],
) -> int:
    """One row for all that follow each other with the same number in `groups`.

    Args:
        rows: (n, words) the rows, of `timeline.TIMELINE`, as integers.
        ratios: the same memory as floating-point numbers.
        groups: (n,) of each row.
        out: the rows made, at most as many; zeros when handed in.
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
