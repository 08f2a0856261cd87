"""Every total over a range of steps, cut to as many rows as a picture has pixels, extremes kept.

One compiled pass applies the events and notes, after each, the least and greatest value of every series.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.model.state import array_access
from bfcviz.model.state.model import Model

TOTALS: Final = (
    "bytes_in_use",
    "requested_bytes_in_use",
    "pool_bytes",
    "free_bytes",
    "largest_free_chunk",
    "too_small_bytes",
)
"""Series in bytes, in the order of `raw`. The last: bytes in free chunks smaller than a request asked about."""

RATIOS: Final = ("external_fragmentation", "internal_fragmentation", "reserved_not_in_use", "too_small_share")
"""Series of 0..1, in the order of `raw`: the measures of `fragmentation`, and too_small_bytes / free_bytes."""

SERIES: Final = TOTALS + RATIOS
"""What is measured."""


def _fields(series: str) -> list[tuple[str, str]]:
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
    [("step", "<u8"), ("time", "<i8"), ("events", "<u8"), *(f for series in SERIES for f in _fields(series))]
)
"""One bucket of consecutive events: its last step, the time of its last event, how many events it holds.

For each of SERIES: the least and the greatest value after any of its events, the value after the last one,
and the first step, with its time, at which the least and the greatest stood.
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

    With at most `points` events every event has its row, and min, max and last are the same. Events of other
    pools count as steps that change nothing.

    Args:
        trace: the events.
        pool: which heap of the trace.
        start: the first event; None: the first there is.
        stop: after the last one; None: all there are.
        points: how many rows at most.
        wanted: bytes of the request that `too_small_bytes` asks about.

    Returns:
        Array of TIMELINE, ascending by step; empty where the range is.

    Raises:
        TraceError: the range lies outside the trace, or events contradict each other.
    """
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not 0 <= start <= stop <= len(trace) or points < 1:
        raise TraceError(
            f"a timeline of steps {start} to {stop} in {points} points was asked for, of {len(trace)} events"
        )
    model = Model(trace, pool)
    model.table.watch(wanted)
    model.seek(start)
    return measured(model, equal_parts(start, stop, points))


def equal_parts(start: int, stop: int, points: int) -> list[int]:
    """Where each of at most `points` buckets of equal length ends."""
    count = stop - start
    buckets = min(count, points)
    return [start + count * (i + 1) // buckets for i in range(buckets)]


def measured(
    model: Model, ends: Sequence[int], see: Callable[[Events], object] | None = None
) -> NDArray[np.void]:
    """Takes `model` on to the last of `ends`; a row of TIMELINE for the events up to each of them.

    Args:
        model: stands where the first bucket begins; what its table watches is measured.
        ends: ascending steps after the model's.
        see: is shown each block of events on the way.

    Raises:
        TraceError: events contradict each other; the model stays at the last step that is right.
    """
    table = model.table
    table.extremes()  # what a pass that was broken off may have left there
    out = np.zeros(len(ends), TIMELINE)
    words = out.view(np.uint64).reshape(len(out), TIMELINE.itemsize // 8)
    row, begin = 0, model.step
    for block in model.trace.blocks(begin, ends[-1] if ends else begin):
        if see is not None:
            see(block)
        before = model.step
        while (at := model.step - before) < len(block):
            part = block[at : ends[row] - before]
            model.measure(part)
            if model.step == ends[row]:
                totals, ratios = table.extremes()
                words[row, :_HEAD] = model.step, part["time"][-1].view(np.uint64), model.step - begin
                words[row, _HEAD:_TOTALS_END] = totals.view(np.uint64)
                words[row, _TOTALS_END:] = ratios.view(np.uint64)
                row, begin = row + 1, model.step
    return out
