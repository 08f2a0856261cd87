"""Copy rows of NumPy's structured arrays as whole records: NumPy copies them field by field, forty times slower."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]


def whole(table: Rows) -> Rows:
    """A structured array as a view of the same memory without fields: copies from or into it move whole rows."""
    return table.view(np.dtype((np.void, table.dtype.itemsize)))


def taken(table: Rows, which: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
    """A copy of a structured array's rows where the mask `which` is true, or with the indices `which`."""
    found: Rows = table.compress(which) if which.dtype == np.bool_ else table.take(which)
    return found


def copied(table: Rows) -> Rows:
    """A copy of all rows of a structured array, contiguous in memory."""
    if _is_small(table):
        return np.frombuffer(bytearray(_copied_row_bytes(table)), table.dtype)
    return whole(table).copy().view(table.dtype)


def joined(parts: Sequence[Rows]) -> Rows:
    """A copy of the rows of one or more structured arrays of one dtype, concatenated."""
    if all(map(_is_small, parts)) and sum(part.nbytes for part in parts) <= _SMALL:
        return np.frombuffer(bytearray().join(map(_copied_row_bytes, parts)), parts[0].dtype)
    return np.concatenate([whole(part) for part in parts]).view(parts[0].dtype)


def move(table: Rows, into: Rows) -> None:
    """Copy the rows of a structured array over the rows of `into`, of the same dtype and length."""
    if _is_small(table) and _is_small(into):
        _copied_row_bytes(into)[:] = _copied_row_bytes(table)
    else:
        whole(into)[:] = whole(table)


_SMALL = 1 << 20  # bytes; such a copy takes 0.1 ms


def _is_small(table: Rows) -> bool:
    """Whether to copy rows under the interpreter's lock: NumPy releases it, and may then wait for it."""
    return table.nbytes <= _SMALL and table.flags.c_contiguous


def _copied_row_bytes(table: Rows) -> memoryview:
    """The memory of a structured array's rows, to copy it at once."""
    return table.view(np.uint8).data
