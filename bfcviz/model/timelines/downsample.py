"""Rows of a timeline put together to fewer, longer ones, every extreme kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.timelines.folding import fold
from bfcviz.model.timelines.timeline import TIMELINE

Rows = NDArray[np.void]


def merged(rows: Rows, groups: NDArray[Any]) -> Rows:
    """One row for all that follow each other with the same number in `groups`, shape (len(rows),).

    `rows` itself where no two do.
    """
    out = np.zeros(len(rows), TIMELINE)
    made = fold(*_words(rows), groups.astype(np.int64), *_words(out))
    return rows if made == len(rows) else out[:made]


def fewer(rows: Rows, points: int) -> Rows:
    """At most `points` rows, of as nearly as can be equally many rows each."""
    if len(rows) <= points:
        return rows
    return merged(rows, np.arange(len(rows)) * points // len(rows))


def _words(rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """The words of each row, as integers and as floating-point numbers."""
    table = rows.view(np.uint64).reshape(len(rows), -1 if len(rows) else 1)
    return table, table.view(np.float64)
