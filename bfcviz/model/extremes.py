"""The least and greatest value of each total over a run of events, and when they stood."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.model import raw, rows


class Extremes:
    """Values are folded in one step after the other; `taken` hands out what they came to and begins anew."""

    def __init__(self) -> None:
        self.open = False
        self._store: Any = rows.grown(None, rows.EXTREMES_ROW, 5, compiled=bool(raw.COMPILED))
        self._rows = raw.extremes(self._store)
        self._ratio_low = self._ratio_high = 0.0
        self._ratio_low_step = self._ratio_high_step = self._ratio_low_time = self._ratio_high_time = 0

    def taken(self) -> tuple[NDArray[np.void], tuple[float, float, int, int, int, int]]:
        """A row of EXTREMES_ROW for each series, in the order of `raw`.

        External fragmentation, a ratio, is apart: (low, high, low_step, high_step, low_time, high_time).
        """
        self.open = False
        ratio = (
            self._ratio_low,
            self._ratio_high,
            self._ratio_low_step,
            self._ratio_high_step,
            self._ratio_low_time,
            self._ratio_high_time,
        )
        return rows.exported(self._store, rows.EXTREMES_ROW).copy(), ratio

    def fold(self, series: int, value: int, step: int, time: int) -> None:
        """Take in the value of a series after the event that led to `step`."""
        x = raw.extreme(self._rows, series)
        if not self.open or value < x.low:
            x.low = value
            x.low_step = step
            x.low_time = time
        if not self.open or value > x.high:
            x.high = value
            x.high_step = step
            x.high_time = time

    def fold_fragmentation(self, free_bytes: int, largest: int, step: int, time: int) -> None:
        """Take in external fragmentation, the last of a step's values."""
        whole, part = free_bytes, free_bytes - largest
        # 1 - largest / free would round once more and could differ from `fragmentation.external`.
        ratio = part / whole if whole > 0 else 0.0
        if not self.open or ratio < self._ratio_low:
            self._ratio_low = ratio
            self._ratio_low_step = step
            self._ratio_low_time = time
        if not self.open or ratio > self._ratio_high:
            self._ratio_high = ratio
            self._ratio_high_step = step
            self._ratio_high_time = time
        self.open = True
