"""Rows of structured arrays, moved whole: left to itself NumPy moves them field by field, forty times slower."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]


def whole(table: Rows) -> Rows:
    """The same memory, its rows without fields: what is copied from or into it goes whole."""
    return table.view(np.dtype((np.void, table.dtype.itemsize)))


def taken(table: Rows, which: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
    """A copy of the rows where `which` is true, or at the places it lists."""
    found: Rows = table.compress(which) if which.dtype == np.bool_ else table.take(which)
    return found


def copied(table: Rows) -> Rows:
    """A copy of all rows, side by side in memory."""
    if _small(table):
        return np.frombuffer(bytearray(_bytes(table)), table.dtype)
    return whole(table).copy().view(table.dtype)


def joined(parts: Sequence[Rows]) -> Rows:
    """A copy of all rows of one or more tables of one type, one table after the other."""
    if all(map(_small, parts)) and sum(part.nbytes for part in parts) <= _SMALL:
        return np.frombuffer(bytearray().join(map(_bytes, parts)), parts[0].dtype)
    return np.concatenate([whole(part) for part in parts]).view(parts[0].dtype)


def move(table: Rows, into: Rows) -> None:
    """Copies the rows of `table` over as many of another of its type."""
    if _small(table) and _small(into):
        _bytes(into)[:] = _bytes(table)
    else:
        whole(into)[:] = whole(table)


_SMALL = 1 << 20  # bytes, copied in 0.1 ms


def _small(table: Rows) -> bool:
    """Whether to copy it under the interpreter's lock: NumPy gives it away, and beside a busy thread waits for it."""
    return table.nbytes <= _SMALL and table.flags.c_contiguous


def _bytes(table: Rows) -> memoryview:
    return table.view(np.uint8).data
