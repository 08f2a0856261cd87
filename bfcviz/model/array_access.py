"""What compiled modules write differently in C and in Python: here in Python, in `array_access.pxd` in C.

The compiled modules of `model` and `figures` import this module when they run uncompiled. Compiled, Cython takes
every `array_access.NAME` from `array_access.pxd` instead: pointers for the lists, enum constants for the integers.
Both files have the same names with the same meaning.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from bfcviz.events.schema import Flag, Kind

COMPILED = False

EXTEND, SPLIT, ALLOCATE, FREE, MERGE, RELEASE, OOM, MARK = map(int, Kind)
GREW = int(Flag.GREW)

# The state of a row of CHUNK_ROW or REGION_ROW.
NOTHING, CHUNK_FREE, CHUNK_IN_USE, REGION_LIVE = range(4)

# The series of `PoolState.measure`: first those in bytes, then the ratios.
IN_USE, REQUESTED, POOL, FREE_BYTES, LARGEST, TOO_SMALL = range(6)
EXTERNAL, INTERNAL, NOT_IN_USE_SHARE, TOO_SMALL_SHARE = range(4)

# A row of `timeline.TIMELINE` in words of 8 bytes: its head, then each series (the first TOTALS of them in bytes).
HEAD_WORDS, SERIES_WORDS, TOTALS = 3, 7, 6

# The layers of `figures.map_cells`; from FIRST_CLASS on, one for each class.
HELD, WASTED, FIRST_CLASS = 0, 1, 2

# How an event can contradict the state; `pool_state.py` has a sentence for each.
FINE, WRONG_STEP, WRONG_POOL, UNKNOWN_KIND, ABSENT, NOT_FREE, NOT_IN_USE = range(7)
OTHER_REGION, OTHER_PLACE, OTHER_OWNER, SHORT, EMPTY, TOO_LARGE, HANDLE_TAKEN = range(7, 14)
HANDLE_TOO_HIGH, NOT_NEIGHBOURS, SLOT_TAKEN, SLOT_EMPTY, OVERLAP, NOT_AT_END = range(14, 20)


def events(block: Any) -> list[Any]:
    """Access to the records of a contiguous array of `EVENT`."""
    names = block.dtype.names
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in block.tolist()]


def event(rows: list[Any], index: int) -> Any:
    """One record of `events`."""
    return rows[index]


def chunks(store: list[Any]) -> list[Any]:
    """The rows of a store of `CHUNK_ROW`."""
    return store


def chunk(rows: list[Any], handle: int) -> Any:
    """One row of `chunks`, to read and write."""
    return rows[handle]


def regions(store: list[Any]) -> list[Any]:
    """Access to the array of a store of `REGION_ROW`."""
    return store


def region(rows: list[Any], slot: int) -> Any:
    """Access to one row of `regions`, to read and write."""
    return rows[slot]


def extremes(store: list[Any]) -> list[Any]:
    """Access to the array of a store of `EXTREMES_ROW`."""
    return store


def extreme(rows: list[Any], series: int) -> Any:
    """One row of `extremes`, to read and write."""
    return rows[series]


def ratios(store: list[Any]) -> list[Any]:
    """Access to the array of a store of `RATIO_ROW`."""
    return store


def ratio(rows: list[Any], series: int) -> Any:
    """Access to one row of `ratios`, to read and write."""
    return rows[series]


def numbers(store: Any) -> Any:
    """Access to the values of a store of unsigned 64-bit integers."""
    return store


def floats(store: Any) -> Any:
    """Access to the values of a contiguous array of float64, to read and write."""
    return store


def whole_part(number: float) -> int:
    """For compiled modules in C and Python, `number` (0 or more) without its fraction."""
    return int(number)


def passes_end(address: int, size: int) -> bool:
    """For compiled modules in C and Python, whether `address + size` does not fit in 64 bits."""
    return address + size > np.iinfo(np.uint64).max
