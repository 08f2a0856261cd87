"""Every total over a range of steps, cut to as many rows as a picture has pixels, extremes kept.

One compiled pass applies the events and notes, after each, the least and greatest value of every series.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.model.reduce import ChunkTable
from bfcviz.model.replay import Model

SERIES: Final = (
    "bytes_in_use",
    "requested_bytes_in_use",
    "pool_bytes",
    "free_bytes",
    "largest_free_chunk",
    "external_fragmentation",
)
"""What is measured; the first five in bytes and in the order of `raw`, the last a ratio of 0..1."""


def _fields(series: str) -> list[tuple[str, str]]:
    value = "<f8" if series == SERIES[-1] else "<u8"
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
    [("step", "<u8"), ("time", "<i8"), ("events", "<u8"), *(f for series in SERIES for f in _fields(series))]
)
"""One bucket of consecutive events: its last step, the time of its last event, how many events it holds.

For each of SERIES: the least and the greatest value after any of its events, the value after the last one,
and the first step, with its time, at which the least and the greatest stood.
"""


def timeline(
    trace: Trace, pool: int = 0, start: int = 0, stop: int | None = None, points: int = 2000
) -> NDArray[np.void]:
    """The series after each of the events [start, stop), in at most `points` buckets of equal length.

    With at most `points` events every event has its row, and min, max and last are the same. Events of other
    pools count as steps that change nothing.

    Returns:
        Array of TIMELINE, ascending by step; empty where the range is.

    Raises:
        TraceError: the range lies outside the trace, or events contradict each other.
    """
    stop = len(trace) if stop is None else stop
    if not 0 <= start <= stop <= len(trace) or points < 1:
        raise TraceError(
            f"a timeline of steps {start} to {stop} in {points} points was asked for, of {len(trace)} events"
        )
    model = Model(trace, pool)
    model.seek(start)
    count = stop - start
    buckets = min(count, points)
    ends = [start + count * (i + 1) // buckets for i in range(buckets)]
    out = np.zeros(buckets, TIMELINE)
    row = 0
    for block in trace.blocks(start, stop):
        before = model.step
        while (at := model.step - before) < len(block):
            part = block[at : ends[row] - before]
            model.table.measure(part)
            if model.step == ends[row]:
                begin = ends[row - 1] if row else start
                out[row] = _row(model.table, int(part["time"][-1]), ends[row] - begin)
                row += 1
    return out


def _row(table: ChunkTable, time: int, events: int) -> tuple[float, ...]:
    """A row of TIMELINE: what `table` has measured, and where it stands now."""
    measured, ratio = table.extremes()
    free, largest = table.free_bytes, table.largest_free_chunk
    share = (free - largest) / free if free else 0.0
    lasts = (table.bytes_in_use, table.requested_bytes_in_use, table.pool_bytes, free, largest, share)
    row: list[float] = [table.step, time, events]
    for (low, high, *places), last in zip([*measured.tolist(), ratio], lasts, strict=True):
        row += [low, high, last, *places]
    return tuple(row)
