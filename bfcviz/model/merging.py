"""Rows of a timeline put together to fewer, longer ones, every extreme kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.timeline import SERIES, TIMELINE

Rows = NDArray[np.void]


def merged(rows: Rows, groups: NDArray[Any]) -> Rows:
    """One row for all that follow each other with the same number in `groups`, shape (len(rows),).

    `rows` itself where no two do.
    """
    if not len(rows):
        return rows
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    if len(starts) == len(rows):
        return rows
    ends = np.append(starts[1:], len(rows)) - 1
    lengths = ends - starts + 1
    out = np.zeros(len(starts), TIMELINE)
    out["step"], out["time"] = rows["step"][ends], rows["time"][ends]
    out["events"] = np.add.reduceat(rows["events"], starts)
    for name in SERIES:
        out[f"{name}_last"] = rows[f"{name}_last"][ends]
        for end, reduced in (("min", np.minimum), ("max", np.maximum)):
            values = rows[f"{name}_{end}"]
            found = reduced.reduceat(values, starts)
            # The first row of each group that has it: `hits` ascends.
            hits = np.flatnonzero(values == np.repeat(found, lengths))
            where = hits[np.searchsorted(hits, starts)]
            out[f"{name}_{end}"] = found
            out[f"{name}_{end}_step"] = rows[f"{name}_{end}_step"][where]
            out[f"{name}_{end}_time"] = rows[f"{name}_{end}_time"][where]
    return out


def fewer(rows: Rows, points: int) -> Rows:
    """At most `points` rows, of as nearly as can be equally many rows each."""
    if len(rows) <= points:
        return rows
    return merged(rows, np.arange(len(rows)) * points // len(rows))
