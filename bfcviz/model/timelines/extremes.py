"""The lowest and highest value of each total over a range of events, with their steps and times."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model.state import array_access, row_storage


class Extremes:
    """Extremes of each series. Add values step by step; `taken` returns the extremes and starts again."""

    def __init__(self) -> None:
        self._empty = self._first = True
        self._step = self._time = 0
        self._store: Any = row_storage.grown(
            None, row_storage.EXTREMES_ROW, 6, compiled=bool(array_access.COMPILED)
        )
        self._ratio_store: Any = row_storage.grown(
            None, row_storage.RATIO_ROW, 4, compiled=bool(array_access.COMPILED)
        )
        self._rows = array_access.extremes(self._store)
        self._ratios = array_access.ratios(self._ratio_store)

    def taken(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """A row of EXTREMES_ROW for each series, and a row of RATIO_ROW for each ratio, in the order of `array_access`.

        The rows are valid until the next value is added.
        """
        self._empty = True
        totals = row_storage.exported(self._store, row_storage.EXTREMES_ROW)
        return totals, row_storage.exported(self._ratio_store, row_storage.RATIO_ROW)

    def begin(self, step: int, time: int) -> None:
        """Set the step and time of the values that follow: those after the event that led to `step`."""
        self._first, self._empty = self._empty, False
        self._step, self._time = step, time

    def fold_use(self, in_use: int, requested: int, pool: int) -> None:
        """Add the bytes in use, the requested bytes in use and the pool bytes."""
        self._fold(array_access.IN_USE, in_use)
        self._fold(array_access.REQUESTED, requested)
        self._fold(array_access.POOL, pool)
        self._fold_ratio(array_access.INTERNAL, in_use - requested, in_use)
        self._fold_ratio(array_access.NOT_IN_USE_SHARE, pool - in_use, pool if in_use > 0 else 0)

    def fold_free(self, free: int, largest: int, too_small: int) -> None:
        """Add the free bytes: in total, in the largest chunk, and in chunks that are too small."""
        self._fold(array_access.FREE_BYTES, free)
        self._fold(array_access.LARGEST, largest)
        self._fold(array_access.TOO_SMALL, too_small)
        self._fold_ratio(array_access.EXTERNAL, free - largest, free)
        self._fold_ratio(array_access.TOO_SMALL_SHARE, too_small, free)

    def _fold(self, series: int, value: int) -> None:
        x = array_access.extreme(self._rows, series)
        x.last = value
        if self._first or value < x.low:
            x.low = value
            x.low_step = self._step
            x.low_time = self._time
        if self._first or value > x.high:
            x.high = value
            x.high_step = self._step
            x.high_time = self._time

    def _fold_ratio(self, series: int, part: int, whole: int) -> None:
        numerator, denominator = part, whole
        # 1 - x / y would round once more and could differ from `fragmentation`.
        value = numerator / denominator if denominator > 0 else 0.0
        x = array_access.ratio(self._ratios, series)
        x.last = value
        if self._first or value < x.low:
            x.low = value
            x.low_step = self._step
            x.low_time = self._time
        if self._first or value > x.high:
            x.high = value
            x.high_step = self._step
            x.high_time = self._time
