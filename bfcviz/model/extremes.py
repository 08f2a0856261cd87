"""The lowest and highest value of each total, with their steps and times, over a range of events or of rows.

`Extremes` takes them event by event. `downsample` merges the rows of a timeline into fewer, longer ones and keeps every
extreme. `add_byte_steps` sums the bytes in use by label. Compiled, `fold` keeps the GIL: it takes well under a
millisecond, and beside a busy thread it would wait 5 ms to get the GIL back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events
from bfcviz.model import array_access, row_storage


class Extremes:
    """The lowest and highest value of each series. Add values step by step; `taken` returns them and starts again."""

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
        """Set the step and time of the values that extremes are taken of next: after the event that led to `step`."""
        self._first, self._empty = self._empty, False
        self._step, self._time = step, time

    def fold_use(self, in_use: int, requested: int, pool: int) -> None:
        """Add the bytes in use, the requested bytes in use and the pool bytes to the extremes."""
        self._fold(array_access.IN_USE, in_use)
        self._fold(array_access.REQUESTED, requested)
        self._fold(array_access.POOL, pool)
        self._fold_ratio(array_access.INTERNAL, in_use - requested, in_use)
        self._fold_ratio(array_access.NOT_IN_USE_SHARE, pool - in_use, pool if in_use > 0 else 0)

    def fold_free(self, free: int, largest: int, too_small: int) -> None:
        """Add the free bytes to the extremes: in total, in the largest chunk, and in chunks that are too small."""
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


def downsample(rows: NDArray[np.void], points: int) -> NDArray[np.void]:
    """At most `points` rows that keep all extremes; each merges as nearly equally many of `rows` as possible."""
    if len(rows) <= points:
        return rows
    return merge_rows(rows, np.arange(len(rows)) * points // len(rows))


def merge_rows(rows: NDArray[np.void], groups: NDArray[Any]) -> NDArray[np.void]:
    """Merge the extremes of consecutive rows that have the same number in `groups`, shape (len(rows),).

    Returns `rows` itself where no two have.
    """
    out = np.zeros(len(rows), rows.dtype)
    made = fold(*_words_of(rows), groups.astype(np.int64), *_words_of(out))
    return rows if made == len(rows) else out[:made]


def fold(
    rows: NDArray[np.uint64],
    ratios: NDArray[np.float64],
    groups: NDArray[np.int64],
    out: NDArray[np.uint64],
    out_ratios: NDArray[np.float64],
) -> int:
    """Merge consecutive rows of extremes that have the same number in `groups`; compiled.

    Args:
        rows: (n, words) rows of `timeline.TIMELINE`, as integers.
        ratios: the same memory as floating-point numbers.
        groups: (n,) the group of each row.
        out: receives the merged rows: as many as `rows`, all zeros.
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


def _words_of(rows: NDArray[np.void]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """The words of each row of extremes, as integers and as floating-point numbers."""
    table = rows.view(np.uint64).reshape(len(rows), -1 if len(rows) else 1)
    return table, table.view(np.float64)


# ------------------------------------------------------------------------------
# Sums over the allocations and frees of a heap, in one pass.


def nothing_seen() -> NDArray[np.uint64]:
    """No allocations; their lowest and highest thread, lowest and highest stream: for `add_byte_steps` to note."""
    return np.array([0, 0xFFFF, 0, 0xFFFF, 0], np.uint64)


def add_byte_steps(
    block: Events, pool: int, stop: int, totals: NDArray[np.float64], seen: NDArray[np.uint64]
) -> int:
    """Add what the events of heap `pool` change: bytes in use, and bytes times steps in use before step `stop`.

    Args:
        block: contiguous events before step `stop`.
        pool: the number of the heap.
        stop: the step up to which a chunk counts.
        totals: shape (2, labels): of each label the bytes in use, and the bytes times steps.
        seen: of `nothing_seen`.

    Returns:
        How many events were added: those before the first label that has no place in `totals`.
    """
    block = row_storage.contiguous(block)
    count, places = len(block), totals.shape[1]
    if not count or not places:
        return 0
    records = array_access.events(block)
    bytes_held, byte_steps = array_access.floats(totals[0]), array_access.floats(totals[1])
    noted = array_access.numbers(seen)
    for i in range(count):
        e: Any = array_access.event(records, i)
        if e.pool != pool or e.kind not in (array_access.ALLOCATE, array_access.FREE):
            continue
        if e.label >= places:
            return i
        change = float(e.size)
        if e.kind == array_access.FREE:
            change = -change
        else:
            noted[0] += 1
            noted[1] = min(noted[1], e.thread)
            noted[2] = max(noted[2], e.thread)
            noted[3] = min(noted[3], e.stream)
            noted[4] = max(noted[4], e.stream)
        bytes_held[e.label] += change
        byte_steps[e.label] += change * (float(stop) - float(e.seq))
    return count
