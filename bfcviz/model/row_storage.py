"""The row types of `PoolState`, and the stores that hold the rows.

Compiled, a store is a NumPy array, and the compiled code uses its memory through a pointer. Uncompiled, a store is a
list of mutable rows or integers. Only the functions of this module distinguish the two.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.structured_arrays import copied, whole

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
        ("state", "<u2"),  # NOTHING, CHUNK_FREE or CHUNK_IN_USE of `array_access`
    ]
)
"""One chunk, in the row of its handle. An empty row is all zeros."""

REGION_ROW = np.dtype([("address", "<u8"), ("size", "<u8"), ("state", "<u8")])
"""One region, in the row of its slot. An empty row is all zeros."""

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
"""The lowest, highest and last value of one series, and the first step and time of each extreme."""

RATIO_ROW = np.dtype(
    [
        (name, "<f8" if name in {"low", "high", "last"} else EXTREMES_ROW[name])
        for name in EXTREMES_ROW.names or ()
    ]
)
"""The same for a series of ratios."""

NUMBER = np.dtype("<u8")


def grown(store: Any, dtype: np.dtype[Any], length: int, *, compiled: bool) -> Any:
    """A store of rows of `length`: first those of `store` (None: no rows), then rows of zeros."""
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
    """The rows of a store of a pool's state as an array, which is not always a copy."""
    if isinstance(store, np.ndarray):
        return store
    return np.array([tuple(vars(row).values()) for row in store], dtype)


def put(store: Any, at: NDArray[Any], rows: NDArray[np.void]) -> None:
    """Write rows into a store at the indices `at`."""
    if isinstance(store, np.ndarray):
        whole(store)[at] = whole(rows)
        return
    for place, row in zip(at.tolist(), rows.tolist(), strict=True):
        vars(store[place]).update(zip(rows.dtype.names or (), row, strict=True))


def contiguous(block: Events) -> Events:
    """A block of events as a contiguous array, to read as rows; a copy only where it is not contiguous.

    Raises:
        TraceError: `block` is not an array of event records.
    """
    if block.dtype != EVENT or block.ndim != 1:
        raise TraceError(f"not an array of event records: {block.dtype} in {block.ndim} dimensions")
    return block if block.flags.c_contiguous else copied(block)
