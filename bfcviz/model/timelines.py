"""Timelines: each total over a range of steps, in as many rows as a picture has pixels; three ratios of 0..1."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.model import array_access
from bfcviz.model.model import Model, ModelStats
from bfcviz.model.pool_state import PoolState

# ------------------------------------------------------------------------------
# Every total over a range of steps, in as many rows as a picture has pixels; every extreme is kept.
#
# One compiled pass applies the events and records the lowest and highest value of every series after each event.

TOTALS: Final = (
    "bytes_in_use",
    "requested_bytes_in_use",
    "pool_bytes",
    "free_bytes",
    "largest_free_chunk",
    "too_small_bytes",
)
"""Series in bytes, in the order of `array_access`. The last one: bytes in free chunks smaller than a given request."""

RATIOS: Final = ("external_fragmentation", "internal_fragmentation", "reserved_not_in_use", "too_small_share")
"""Series of 0..1, in the order of `array_access`: the measures of `fragmentation`, and too_small_bytes / free_bytes."""

SERIES: Final = TOTALS + RATIOS
"""All series."""


def _timeline_fields(series: str) -> list[tuple[str, str]]:
    value = "<f8" if series in RATIOS else "<u8"
    return [
        (f"{series}_min", value),
        (f"{series}_max", value),
        (f"{series}_last", value),
        (f"{series}_min_step", "<u8"),
        (f"{series}_max_step", "<u8"),
        (f"{series}_min_time", "<i8"),
        (f"{series}_max_time", "<i8"),
    ]


TIMELINE = np.dtype(
    [
        ("step", "<u8"),
        ("time", "<i8"),
        ("events", "<u8"),
        *(f for series in SERIES for f in _timeline_fields(series)),
    ]
)
"""One bucket of consecutive events: its last step, the time of its last event, how many events it holds.

For each of SERIES: the lowest and the highest value after any of its events, the value after the last one, and the
first step, with its time, of the lowest and the highest value.
"""

_HEAD: Final = array_access.HEAD_WORDS
_TOTALS_END: Final = _HEAD + array_access.SERIES_WORDS * array_access.TOTALS


def timeline(  # noqa: PLR0913  a range and how to measure it
    trace: Trace,
    pool: int = 0,
    start: int | None = None,
    stop: int | None = None,
    points: int = 2000,
    *,
    wanted: int = 0,
) -> NDArray[np.void]:
    """The series after each of the events [start, stop), in at most `points` buckets of equal length.

    With at most `points` events every event has its row, and min, max and last are equal. Events of other pools
    count as steps without a change.

    Args:
        trace: the events.
        pool: index of the pool.
        start: the first event; None: the first event of the trace.
        stop: one past the last event; None: the end of the trace.
        points: the most rows.
        wanted: size in bytes of the request for `too_small_bytes`.

    Returns:
        Array of TIMELINE, ascending by step; empty where the range is.

    Raises:
        TraceError: the range lies outside the trace, or events contradict each other.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not 0 <= start <= stop <= len(trace) or points < 1:
        raise TraceError(
            f"a timeline of steps {start} to {stop} in {points} points is not possible: "
            f"the trace has {len(trace)} events"
        )
    model = Model(trace, pool)
    model.table.watch(wanted)
    model.seek(start)
    return measured(model, equal_parts(start, stop, points))


def equal_parts(start: int, stop: int, points: int) -> list[int]:
    """The end of each of at most `points` buckets of equal length."""
    count = stop - start
    buckets = min(count, points)
    return [start + count * (i + 1) // buckets for i in range(buckets)]


def measured(
    model: Model, ends: Sequence[int], seen: Callable[[Events], object] | None = None
) -> NDArray[np.void]:
    """Move `model` to the last of `ends`; returns a row of TIMELINE for the events up to each of them.

    Args:
        model: at the step where the first bucket begins; `PoolState.watch` sets the size for `too_small_bytes`.
        ends: ascending steps after the model's.
        seen: called with each block of events.

    Raises:
        TraceError: events contradict each other; the model stays at the last correct step.
    """
    table = model.table
    table.extremes()  # drop what an interrupted pass may have left
    out = np.zeros(len(ends), TIMELINE)
    row, begin = 0, model.step
    for block in model.trace.blocks(begin, ends[-1] if ends else begin):
        if seen is not None:
            seen(block)
        before = model.step
        while (at := model.step - before) < len(block):
            part = block[at : ends[row] - before]
            model.measure(part)
            if model.step == ends[row]:
                put_row(out, row, table, begin, int(part["time"][-1]))
                row, begin = row + 1, model.step
    return out


def put_row(rows: NDArray[np.void], at: int, table: PoolState, begin: int, time: int) -> None:
    """Make row `at` of TIMELINE of what `table` measured since step `begin`, up to an event of this time in ns."""
    words = rows[at : at + 1].view(np.uint64)
    totals, ratios = table.extremes()
    words[:_HEAD] = table.step, np.int64(time).view(np.uint64), table.step - begin
    words[_HEAD:_TOTALS_END] = totals.view(np.uint64)
    words[_TOTALS_END:] = ratios.view(np.uint64)


# ------------------------------------------------------------------------------
# Three ratios of 0..1, each with its own name; other tools call all of them fragmentation.

DEFINITIONS = {
    "internal": "Internal fragmentation = 1 - requested_bytes_in_use / bytes_in_use: "
    "the share of allocated memory that was not requested. 0 where nothing is in use.",
    "external": "External fragmentation = 1 - largest_free_chunk / free_bytes (TensorFlow's): "
    "the share of free memory outside its largest piece. 0 where nothing is free.",
    "reserved_not_in_use": "Reserved-not-in-use = 1 - bytes_in_use / pool_bytes: "
    "the share of the pool that no chunk in use covers. 0 where nothing is in use.",
}
"""What each function computes, for tooltips and captions."""


def internal(stats: ModelStats) -> float:
    """1 - requested_bytes_in_use / bytes_in_use, 0 where nothing is in use."""
    return _timeline_ratio(stats.bytes_in_use - stats.requested_bytes_in_use, stats.bytes_in_use)


def external(stats: ModelStats) -> float:
    """1 - largest_free_chunk / free_bytes, 0 where nothing is free."""
    return _timeline_ratio(stats.free_bytes - stats.largest_free_chunk, stats.free_bytes)


def reserved_not_in_use(stats: ModelStats) -> float:
    """1 - bytes_in_use / pool_bytes, 0 where nothing is in use."""
    return (
        _timeline_ratio(stats.pool_bytes - stats.bytes_in_use, stats.pool_bytes)
        if stats.bytes_in_use
        else 0.0
    )


def _timeline_ratio(part: int, whole: int) -> float:
    # Not 1 - x / y, which rounds twice: `Extremes` divides in the same way and gets the same float.
    return part / whole if whole else 0.0
