"""Leaks: what a range of steps, or a phase, allocated and never freed; and what grows with every step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.row_copy import taken
from bfcviz.events.trace import Trace
from bfcviz.model.browse.phases import phases
from bfcviz.model.holders.equal_steps import equal_steps
from bfcviz.model.holders.grouping import Grouping, grouping
from bfcviz.model.holders.growth import Growth, growth
from bfcviz.model.holders.holder_lifetimes import check_history, elapsed
from bfcviz.model.lifetimes.lifetimes import of_chunks, times_of
from bfcviz.model.state.model import Model

LEAK: Final = np.dtype(
    [
        ("chunks", "<u8"),
        ("bytes", "<u8"),
        ("requested", "<u8"),
        ("oldest_events", "<u8"),  # age of its oldest chunk, from its ALLOCATE to the end of the trace
        ("oldest_ns", "<u8"),
        ("first", "<u8"),  # index of its first chunk in `Leaks.chunks`
    ]
)
"""What one holder never freed."""


@dataclass(frozen=True)
class Leaks:
    """What a range of events allocated and what is alive at the end of the trace, by holder.

    Attributes:
        start: the first event of the range.
        stop: one past its last event.
        phase: only allocations in this phase; None: all.
        until: the last step of the trace: chunks that are in use here count as never freed.
        by: what the holders are found by.
        rows: of LEAK, by bytes, the largest first.
        names: the path of each holder.
        chunks: the chunks, of LIFETIME: those of the first row, the oldest first, then those of the next row.
        ages_ns: the age of each chunk in nanoseconds; its age in events is `until - born`.
        growth: what grew from step to step of the program, whatever the range.
    """

    start: int
    stop: int
    phase: str | None
    until: int
    by: str
    rows: NDArray[np.void]
    names: Sequence[str]
    chunks: NDArray[np.void]
    ages_ns: NDArray[np.uint64]
    growth: Growth

    @property
    def bytes(self) -> int:
        """All bytes that were not freed."""
        return int(self.rows["bytes"].sum())

    def chunks_of(self, row: int) -> NDArray[np.void]:
        """The chunks of one holder, of LIFETIME, the oldest first."""
        first = int(self.rows["first"][row])
        return self.chunks[first : first + int(self.rows["chunks"][row])]

    def to_arrow(self) -> pa.Table:
        """One row a chunk: its holder, address, sizes in bytes and age."""
        counts = self.rows["chunks"].astype(np.intp)
        holders = np.repeat(np.arange(len(self.rows)), counts)
        return pa.table(
            {
                "holder": pa.array([self.names[row] for row in holders.tolist()], pa.string()),
                "address": self.chunks["address"],
                "size": self.chunks["size"],
                "requested": self.chunks["requested"],
                "allocated_at_step": self.chunks["born"] + np.uint64(1),
                "age_events": np.uint64(self.until) - self.chunks["born"],
                "age_ns": self.ages_ns,
            }
        )


def leaks(  # noqa: PLR0913  the range, and what is compared
    trace: Trace,
    pool: int = 0,
    start: int | None = None,
    stop: int | None = None,
    *,
    phase: str | None = None,
    by: str = "op",
    mark: str | None = None,
    warm_up: int | None = None,
) -> Leaks:
    """Find what the events [start, stop) allocated and what is in use at the end of the trace, and what grows.

    Args:
        trace: the events.
        pool: index of the heap.
        start: the first event; None: the first event of the trace.
        stop: one past the last event; None: the end of the trace.
        phase: count only what was allocated in phases of this name; None: all.
        by: see `holders`.
        mark: name of the marks, or of the phase, that separates the steps of the program; None: see `equal_steps`.
        warm_up: see `equal_steps`.

    Raises:
        TraceError: the trace has no such events or phase, or holds the state of one moment only.
        ValueError: `by` is no grouping.
    """
    check_history(trace, "leaks")
    start, stop = _range(trace, start, stop)
    model = Model(trace, pool)
    how = grouping(trace, pool, by)
    compared = growth(model, equal_steps(trace, pool, mark, warm_up), how)
    model.seek(len(trace))
    chunks = model.in_use()
    kept = (chunks["born"] >= start) & (chunks["born"] < stop)
    if phase is not None:
        kept &= _in_phase(trace, pool, phase, chunks)
    ranged = start, stop, phase, len(trace)
    return _by_holder(trace, how, of_chunks(taken(chunks, kept)), ranged, compared)


def _by_holder(
    trace: Trace,
    how: Grouping,
    found: NDArray[np.void],
    ranged: tuple[int, int, str | None, int],
    compared: Growth,
) -> Leaks:
    """Sort the chunks by the bytes of their holders, then by age."""
    numbers, paths = how.grouped(found)
    bytes_of = np.zeros(len(paths), np.uint64)
    np.add.at(bytes_of, numbers, found["size"])
    order = np.argsort(~bytes_of, kind="stable")
    place = np.zeros(len(paths), np.intp)
    place[order] = np.arange(len(paths))
    at = place[numbers]
    sort = np.lexsort([found["born"], at])
    found, at = taken(found, sort), at[sort]
    ages = _ages(trace, found)
    names = [how.text(paths[number]) for number in order.tolist()]
    rows = _rows(found, at, ages, len(trace), len(names))
    return Leaks(*ranged, how.by, rows, names, found, ages, compared)


def _range(trace: Trace, start: int | None, stop: int | None) -> tuple[int, int]:
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not trace.first <= start <= stop <= len(trace):
        raise TraceError(
            f"leaks of the events {start} to {stop} are not possible: the trace has steps {trace.first} to {len(trace)}"
        )
    return start, stop


def _in_phase(trace: Trace, pool: int, phase: str, chunks: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which chunks were allocated while a phase of this name was open; see `PhasePaths` for its thread."""
    how = grouping(trace, pool, "phase")
    numbers, paths = how.grouped(chunks)
    known = {each.name for each in phases(trace, pool)}
    if phase not in known:
        there = f"there are {', '.join(sorted(known)[:10])}" if known else "it has no phases"
        raise TraceError(f"the trace has no phase {phase!r}: {there}")
    inside = np.array([phase in path for path in paths], np.bool_)
    found: NDArray[np.bool_] = inside[numbers]
    return found


def _ages(trace: Trace, chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    if not len(chunks):
        return np.zeros(0, np.uint64)
    last = times_of(trace, np.array([len(trace) - 1], np.uint64))
    return elapsed(times_of(trace, chunks["born"]), np.repeat(last, len(chunks)))


def _rows(
    chunks: NDArray[np.void], at: NDArray[np.intp], ages: NDArray[np.uint64], until: int, count: int
) -> NDArray[np.void]:
    """The holders of sorted chunks."""
    rows = np.zeros(count, LEAK)
    counts = np.bincount(at, minlength=count)
    rows["chunks"] = counts
    rows["first"] = np.cumsum(counts) - counts
    np.add.at(rows["bytes"], at, chunks["size"])
    np.add.at(rows["requested"], at, chunks["requested"])
    if count:
        first = rows["first"].astype(np.intp)
        rows["oldest_events"] = np.uint64(until) - chunks["born"][first]
        rows["oldest_ns"] = np.maximum.reduceat(ages, first)
    return rows
