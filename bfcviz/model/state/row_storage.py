"""The rows behind the chunk table, and the stores that hold them.

A store is a NumPy array when `reduce` is compiled (it works on the array's memory through a pointer) and a
list of mutable rows or integers when it is not. Only the functions here know which.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.row_copy import copied, whole
from bfcviz.events.schema import EVENT, Events

CHUNK_ROW = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),  # 0 when free, as are born, label, thread and stream
        ("born", "<u8"),
        ("handle", "<u4"),
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("region", "<u2"),
        ("state", "<u2"),  # NOTHING, CHUNK_FREE or CHUNK_IN_USE of `raw`
    ]
)
"""One chunk, at the row of its handle. A row that holds nothing is all zeros."""

REGION_ROW = np.dtype([("address", "<u8"), ("size", "<u8"), ("state", "<u8")])
"""One region, at the row of its slot. A row that holds nothing is all zeros."""

EXTREMES_ROW = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("last", "<u8"),
        ("low_step", "<u8"),
        ("high_step", "<u8"),
        ("low_time", "<i8"),
        ("high_time", "<i8"),
    ]
)
"""The lowest, highest and last value of one series, and the first step and time at which the extremes stood."""

RATIO_ROW = np.dtype(
    [
        (name, "<f8" if name in {"low", "high", "last"} else EXTREMES_ROW[name])
        for name in EXTREMES_ROW.names or ()
    ]
)
"""The same of a series of ratios."""

NUMBER = np.dtype("<u8")


def grown(store: Any, dtype: np.dtype[Any], length: int, *, compiled: bool) -> Any:
    """A store of `length` zero rows that begins with the rows of `store` (None: all are new)."""
    if compiled:
        array = np.zeros(length, dtype)
        if store is not None:
            whole(array)[: len(store)] = whole(store)
        return array
    old: list[Any] = [] if store is None else store
    new = range(length - len(old))
    if dtype.names is None:
        return old + [0 for _ in new]
    return old + [SimpleNamespace(**dict.fromkeys(dtype.names, 0)) for _ in new]


def exported(store: Any, dtype: np.dtype[Any]) -> NDArray[np.void]:
    """The rows of a store as an array; not always a copy."""
    if isinstance(store, np.ndarray):
        return store
    return np.array([tuple(vars(row).values()) for row in store], dtype)


def put(store: Any, at: NDArray[Any], rows: NDArray[np.void]) -> None:
    """Set the rows at the places `at`."""
    if isinstance(store, np.ndarray):
        whole(store)[at] = whole(rows)
        return
    for place, row in zip(at.tolist(), rows.tolist(), strict=True):
        vars(store[place]).update(zip(rows.dtype.names or (), row, strict=True))


def contiguous(block: Events) -> Events:
    """`block` with its records side by side in memory.

    Raises:
        TraceError: these are not event records.
    """
    if block.dtype != EVENT or block.ndim != 1:
        raise TraceError(f"not an array of event records: {block.dtype} in {block.ndim} dimensions")
    return block if block.flags.c_contiguous else copied(block)
