"""Holder lifetimes: how often each holder allocated in a range of steps, and for how long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.origin_details import STATE_ONLY
from bfcviz.events.trace import Trace
from bfcviz.model.holders.grouping import grouping
from bfcviz.model.lifetimes.address_layout import NEVER
from bfcviz.model.lifetimes.lifetimes import find, times_of
from bfcviz.model.state.model import Model

HOLDER_LIFETIMES: Final = np.dtype(
    [
        ("count", "<u8"),  # allocations
        ("bytes", "<u8"),  # of all of them together
        ("alive", "<u8"),  # of them at the end of the range
        ("alive_bytes", "<u8"),
        ("median_events", "<u8"),
        ("max_events", "<u8"),
        ("median_ns", "<u8"),
        ("max_ns", "<u8"),
    ]
)
"""The lifetimes of one holder: events or nanoseconds from ALLOCATE to FREE.

An allocation that is alive at the end of the range counts with its age there: its lifetime is at least that. The median
of an even number of lifetimes is the lower of the two in the middle.
"""


@dataclass(frozen=True)
class HolderLifetimes:
    """The lifetimes of one heap in a range of steps, by holder.

    Attributes:
        start: the first step.
        stop: the last step.
        by: what the holders are found by.
        rows: of `HOLDER_LIFETIMES`, by `bytes`, the largest first.
        names: the path of each holder.
    """

    start: int
    stop: int
    by: str
    rows: NDArray[np.void]
    names: Sequence[str]

    def to_arrow(self) -> pa.Table:
        """One row a holder."""
        columns = {name: self.rows[name] for name in HOLDER_LIFETIMES.names or ()}
        return pa.table({"holder": pa.array(list(self.names), pa.string()), **columns})


def holder_lifetimes(  # noqa: PLR0913, PLR0917  the range, and what is known already
    trace: Trace,
    pool: int = 0,
    by: str = "op",
    start: int | None = None,
    stop: int | None = None,
    model: Model | None = None,
) -> HolderLifetimes:
    """The lifetimes of all allocations that are alive at any of the steps [start, stop], by holder.

    Args:
        trace: the events.
        pool: index of the heap.
        by: see `holders`; each whole path is one holder.
        start: the first step; None: the first step of the trace.
        stop: the last step; None: the last step of the trace.
        model: a model of this trace and pool, to reach `start` sooner; it returns to its step.

    Raises:
        TraceError: the trace has no such steps, or holds the state of one moment only.
        ValueError: `by` is no grouping.
    """
    check_history(trace, "lifetimes")
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    how = grouping(trace, pool, by)
    lives = find(trace, pool, start, stop, model=model).lifetimes
    numbers, paths = how.grouped(lives)
    rows = np.zeros(len(paths), HOLDER_LIFETIMES)
    alive = lives["died"] == NEVER
    rows["count"] = np.bincount(numbers, minlength=len(paths))
    rows["alive"] = np.bincount(numbers[alive], minlength=len(paths))
    np.add.at(rows["bytes"], numbers, lives["size"])
    np.add.at(rows["alive_bytes"], numbers[alive], lives["size"][alive])
    born: NDArray[np.uint64] = lives["born"]
    died: NDArray[np.uint64] = lives["died"]
    _set_spans(rows, "events", numbers, np.where(alive, np.uint64(stop), died) - born)
    ends = np.where(alive, np.uint64(max(stop - 1, trace.first)), died)
    _set_spans(rows, "ns", numbers, elapsed(times_of(trace, born), times_of(trace, ends)))
    order = np.lexsort([np.arange(len(rows)), ~rows["bytes"]])
    return HolderLifetimes(start, stop, by, rows[order], [how.text(paths[row]) for row in order.tolist()])


def check_history(trace: Trace, what: str) -> None:
    """Check that the events of a trace tell a history.

    Raises:
        TraceError: they only build the state of one moment.
    """
    if trace.origin.details.get("history") == STATE_ONLY:
        raise TraceError(
            f"{what} were asked for, but {trace.origin.source or 'the trace'} holds the state of one moment and no "
            "history: when each chunk was allocated is not known; record the run (bfcviz record, or a profile)"
        )


def elapsed(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Nanoseconds between times; 0 where a clock went back."""
    # Unsigned: a difference may be more than int64 holds.
    span = end.view(np.uint64) - begin.view(np.uint64)
    return np.where(end > begin, span, np.uint64(0))


def _set_spans(
    rows: NDArray[np.void], unit: str, numbers: NDArray[np.intp], spans: NDArray[np.uint64]
) -> None:
    """Set the median and the maximum of the spans of each holder; each has at least one."""
    if not len(spans):
        return
    order = np.lexsort([spans, numbers])
    counts = rows["count"].astype(np.intp)
    ends = np.cumsum(counts)
    rows[f"median_{unit}"] = spans[order[ends - counts + (counts - 1) // 2]]
    rows[f"max_{unit}"] = spans[order[ends - 1]]
