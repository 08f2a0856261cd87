"""Leaks: what a range of steps, or a phase, allocated and never freed; and what grows with every step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.short_names import cut
from bfcviz.answers import AnswerTable, TableAnswer
from bfcviz.errors import TraceError
from bfcviz.events.origin import holds_only_states
from bfcviz.events.structured_arrays import taken
from bfcviz.events.trace import Trace, check_history, event_times
from bfcviz.extras import arrow
from bfcviz.model.equal_steps import FEWEST, EqualSteps, equal_steps, repeated_steps
from bfcviz.model.find_steps import phases
from bfcviz.model.grouping import Grouping, Path, grouping
from bfcviz.model.lifetimes import elapsed, of_chunks
from bfcviz.model.model import Model
from bfcviz.stack_frames import place_in_code
from bfcviz.units import counted, duration, format_bytes, signed_bytes

if TYPE_CHECKING:
    from pyarrow import Table

# ------------------------------------------------------------------------------
# Growth: holders that have more memory at the end of every step than at the end of the step before, or that keep
# something now and then, and never free it.

GROWING: Final = np.dtype(
    [
        ("chunks", "<i8"),  # gained from the first compared end of a step to the last one
        ("bytes", "<i8"),
        ("times", "<u4"),  # from one compared end to the next, so often it had more bytes
        ("grows", "?"),  # every time, or steadily: see `_SPANS`
        ("label", "<u4"),  # number of the label with most bytes among the chunks that stayed
    ]
)
"""What one holder gained."""

_SPANS: Final = 8
"""A holder that keeps something in some steps only leaks if it never shrinks between the compared ends, and has more
bytes after each of so many equal spans of them: a cache that is filled at the beginning does not."""

_LEAST_EVERY: Final = 0.9
"""Chunks a step, on average: a holder that gains fewer does not gain one every step."""

_MOSTLY: Final = 0.75
"""The share of equal steps among all between marks: where more do something else, such as an evaluation, a holder may
leak in those."""


@dataclass(frozen=True)
class Growth:
    """What leaks with every step: holders with more bytes at the last compared end of a step than at the first.

    Attributes:
        steps: what was compared; its `reason` says why if nothing was.
        rows: of GROWING, by bytes gained, those that leak first.
        names: the path of each holder.
        chunks: chunks in use at each compared end, (holders, ends), int64.
        bytes: their bytes, (holders, ends), int64.
    """

    steps: EqualSteps
    rows: NDArray[np.void]
    names: Sequence[str]
    chunks: NDArray[np.int64]
    bytes: NDArray[np.int64]

    @property
    def reason(self) -> str:
        """Why growth is not known; empty where it is."""
        if self.steps.is_single:
            return f"nothing repeats but single allocations of {self.steps.allocation!r}"
        return self.steps.reason

    @property
    def intervals(self) -> int:
        """How often what leaks was compared: from one end of a step to the next."""
        return max(len(self.steps.ends) - 1, 0)

    @property
    def growing(self) -> int:
        """The number of holders that leak: they grew every time, or steadily; they are the first rows."""
        return int(np.count_nonzero(self.rows["grows"]))

    @property
    def grown_bytes(self) -> int:
        """What the holders that leak gained."""
        return int(self.rows["bytes"][: self.growing].sum())

    @property
    def table(self) -> AnswerTable:
        """The holders that leak, with what each gains a step."""
        rows = [
            (self.names[row], signed_bytes(self.a_step(row)[1]), f"{self.a_step(row)[0]:+,.1f}")
            for row in range(min(self.growing, _MOST_IN_TABLE))
        ]
        return AnswerTable(("grows, a step", "bytes", "chunks"), rows)

    @property
    def equal_steps(self) -> int:
        """The equal steps from the first compared end to the last one."""
        return self.intervals * self.steps.every

    @property
    def bytes_a_step(self) -> float:
        """What all holders that leak gain a step, on average of all steps; 0 if nothing was compared."""
        return self.grown_bytes / self.all_steps if self.all_steps else 0.0

    @property
    def all_steps(self) -> int:
        """The steps from the first compared end to the last one, with those between marks that did less or more."""
        if self.steps.allocation or not self.intervals:
            return self.equal_steps
        return int(self.steps.numbers[-1] - self.steps.numbers[0])

    def a_step(self, row: int) -> tuple[float, float]:
        """Chunks and bytes that a holder leaks each equal step if that is always the same; else on average of all."""
        chunks, size = int(self.rows["chunks"][row]), int(self.rows["bytes"][row])
        equal, every = self.equal_steps, self.all_steps
        alike = equal >= _MOSTLY * every and chunks % equal == 0 and self.is_even(row)
        steps = equal if alike else every
        return chunks / steps, size / steps

    def is_even(self, row: int) -> bool:
        """Whether a holder gains the same number of chunks from each compared end to the next."""
        return len(set(np.diff(self.chunks[row]).tolist())) == 1

    def is_every(self, row: int) -> bool:
        """Whether a holder leaks every step, as far as it was compared; else only some steps keep something."""
        always = bool(self.rows["grows"][row] and self.rows["times"][row] == self.intervals)
        return always and not 0 < self.a_step(row)[0] < _LEAST_EVERY

    def pace(self, row: int) -> str:
        """How a holder leaks: `every step` or `steadily`."""
        return "every step" if self.is_every(row) else "steadily"

    def to_arrow(self) -> "Table":
        """One row a holder that grew: what it gained and each step, and the lists of chunks and bytes at each end."""
        pa = arrow("to_arrow()")
        rates = np.array([self.a_step(row) for row in range(len(self.rows))], np.float64).reshape(-1, 2)
        return pa.table(
            {
                "holder": pa.array(list(self.names), pa.string()),
                "grows": self.rows["grows"],
                "every_step": [self.is_every(row) for row in range(len(self.rows))],
                "chunks_gained": self.rows["chunks"],
                "bytes_gained": self.rows["bytes"],
                "chunks_a_step": rates[:, 0],
                "bytes_a_step": rates[:, 1],
                "chunks": pa.array(self.chunks.tolist(), pa.list_(pa.int64())),
                "bytes": pa.array(self.bytes.tolist(), pa.list_(pa.int64())),
            }
        )


def growth(model: Model, steps: EqualSteps, how: Grouping) -> Growth:
    """Find what leaks with every step: compare the holders at the ends of equal steps; the model returns."""
    ends = steps.ends.tolist()
    counted = _LeakCounts(how, len(ends))
    with model.visiting(model.step):
        last = model.in_use()
        for column, end in enumerate(ends):
            model.seek(end)
            last = model.in_use()
            counted.add(column, last)
    if not ends:
        nothing = np.zeros((0, 0), np.int64)
        return Growth(steps, np.zeros(0, GROWING), [], nothing, nothing)
    return counted.compared(steps, taken(last, last["born"] >= ends[0]))


def growth_until(model: Model, stop: int, *, still_held: bool = False) -> Growth | None:
    """What leaked from step to step until `stop`; None: nothing did, or the trace does not suit.

    Nothing did also where all that grew is less than a tenth of what is in use. `still_held`: nor did what was mostly
    freed before `stop`, such as by a program that went on to something else. The model returns to its step.
    """
    trace = model.trace
    if stop - trace.first > _MOST_SEARCHED_FOR_GROWTH or holds_only_states(trace.origin.details):
        return None
    steps = _marked_or_repeated_steps(trace, model.pool)
    before = steps.ends <= stop
    if np.count_nonzero(before) < FEWEST:
        return None
    how = grouping(trace, model.pool, "op")
    found = growth(model, replace(steps, numbers=steps.numbers[before], ends=steps.ends[before]), how)
    with model.visiting(stop):
        chunks = model.in_use()
    if still_held and len(found.rows):
        found = _kept_growth(found, how, chunks)
    return found if found.growing and found.grown_bytes >= int(chunks["size"].sum()) * _LEAST_GROWN else None


def _kept_growth(found: Growth, how: Grouping, chunks: NDArray[np.void]) -> Growth:
    """The holders that leaked and still have most of it in `chunks`: what is freed later is no leak.

    They have the chunks that they gained; or as much more as that, where a growing one is made anew in each step.
    """
    ends = found.steps.ends
    numbers, paths = how.grouped(chunks)
    gained = (chunks["born"] >= ends[0]) & (chunks["born"] < ends[-1])
    sizes = np.zeros((2, len(paths)), np.int64)
    np.add.at(sizes[0], numbers, chunks["size"].astype(np.int64))
    np.add.at(sizes[1], numbers[gained], chunks["size"][gained].astype(np.int64))
    left = dict(zip(map(how.text, paths), sizes.T.tolist(), strict=True))
    kept = []
    for row, name in enumerate(found.names[: found.growing]):
        now, stayed = left.get(name, (0, 0))
        if max(now - int(found.bytes[row, 0]), stayed) >= _LEAST_KEPT * int(found.rows["bytes"][row]):
            kept.append(row)
    return replace(
        found,
        rows=found.rows[kept],
        names=[found.names[row] for row in kept],
        chunks=found.chunks[kept],
        bytes=found.bytes[kept],
    )


_MOST_SEARCHED_FOR_GROWTH: Final = 4_000_000
"""Events: 0.3 s."""

_LEAST_GROWN: Final = 0.1
_LEAST_KEPT: Final = 0.75
"""Of what a holder gained, at the end of the search."""


class _LeakCounts:
    """Chunks and bytes of each holder at the end of each step, to find what leaks with every step."""

    def __init__(self, how: Grouping, ends: int) -> None:
        self._how = how
        self._numbers: dict[Path, int] = {}
        self._chunks = np.zeros((64, ends), np.int64)
        self._bytes = np.zeros((64, ends), np.int64)

    def add(self, column: int, records: NDArray[np.void]) -> None:
        """Count the chunks at one end of a step, to find what leaks."""
        at = self._rows(records)
        self._chunks[:, column] = np.bincount(at, minlength=len(self._chunks))
        np.add.at(self._bytes[:, column], at, records["size"].astype(np.int64))

    def compared(self, steps: EqualSteps, stayed: NDArray[np.void]) -> Growth:
        """The holders that leaked bytes from the first end to the last; `stayed`: the chunks allocated since."""
        changes = np.diff(self._bytes, axis=1)
        times, most = np.count_nonzero(changes > 0, axis=1), changes.shape[1]
        gained = self._bytes[:, -1] - self._bytes[:, 0]
        grows = times == most
        if most >= 2 * _SPANS:
            spans = np.add.reduceat(changes, np.arange(_SPANS) * most // _SPANS, axis=1)
            grows |= (changes >= 0).all(axis=1) & (spans > 0).all(axis=1)
        grows &= not steps.is_single
        order = np.lexsort([-gained, ~grows])
        order = order[gained[order] > 0]
        rows = np.zeros(len(order), GROWING)
        rows["bytes"], rows["times"], rows["grows"] = gained[order], times[order], grows[order]
        rows["chunks"] = (self._chunks[:, -1] - self._chunks[:, 0])[order]
        place = np.full(len(self._bytes), -1, np.intp)
        place[order] = np.arange(len(order))
        holders = place[self._rows(stayed)] if len(stayed) else np.zeros(0, np.intp)
        rows["label"] = _largest_leak_labels(stayed, holders, len(rows))
        names = [self._how.text(path) for path in self._numbers]
        chosen = [names[number] for number in order.tolist()]
        return Growth(steps, rows, chosen, self._chunks[order], self._bytes[order])

    def _rows(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The row of the holder of each record that is counted; makes room for new holders."""
        numbers, paths = self._how.grouped(records)
        rows = [self._numbers.setdefault(path, len(self._numbers)) for path in paths]
        if len(self._numbers) > len(self._chunks):
            more = max(len(self._numbers), 2 * len(self._chunks)) - len(self._chunks)
            self._chunks, self._bytes = (
                np.pad(table, ((0, more), (0, 0))) for table in (self._chunks, self._bytes)
            )
        found: NDArray[np.intp] = np.array(rows, np.intp)[numbers]
        return found


def _largest_leak_labels(
    chunks: NDArray[np.void], holders: NDArray[np.intp], count: int
) -> NDArray[np.uint32]:
    """For each of `count` holders the label of its chunks that has most bytes."""
    labels, at = np.unique(chunks["label"], return_inverse=True)
    found = np.zeros(count, np.uint32)
    mine = holders >= 0
    if not mine.any():
        return found
    cells, place = np.unique(holders[mine] * len(labels) + at[mine], return_inverse=True)
    sums = np.zeros(len(cells), np.uint64)
    np.add.at(sums, place, chunks["size"][mine])
    order = np.argsort(sums, kind="stable")
    found[cells[order] // len(labels)] = labels[cells[order] % len(labels)]
    return found


# ------------------------------------------------------------------------------
# Leaks: what a range of steps, or a phase, allocated and never freed; and what grows with every step.

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


@dataclass(frozen=True, repr=False)
class Leaks(TableAnswer):
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
        trace: the events.
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
    trace: Trace

    @property
    def lines(self) -> list[str]:
        """The report of leaks: what grows every step, then what was never freed; else the other way round."""
        kept, grows = leak_lines(self.trace, self), growth_lines(self.trace, self.growth)
        return [*grows, *kept] if self.growth.growing else [*kept, *grows]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """The tables of leaks: the holders of what was not freed, and those that grow every step."""
        never = [
            (
                self.names[row],
                format_bytes(int(each["bytes"])),
                f"{int(each['chunks']):,}",
                f"{int(each['oldest_events']):,} events, {duration(int(each['oldest_ns']))}",
            )
            for row, each in enumerate(self.rows[:_MOST_IN_TABLE])
        ]
        found = [AnswerTable(("not freed", "bytes", "chunks", "age of the oldest"), never)] if never else []
        return [*found, *([self.growth.table] if self.growth.growing else [])]

    @property
    def bytes(self) -> int:
        """All bytes that leaked: they were not freed."""
        return int(self.rows["bytes"].sum())

    def chunks_of(self, row: int) -> NDArray[np.void]:
        """The leaked chunks of one holder, of LIFETIME, the oldest first."""
        first = int(self.rows["first"][row])
        return self.chunks[first : first + int(self.rows["chunks"][row])]

    def to_arrow(self) -> "Table":
        """One row a leaked chunk: its holder, address, sizes in bytes and age."""
        pa = arrow("to_arrow()")
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
        mark: name of the marks, or of the phase, that separates the steps of the program; None: see `equal_steps`, and
            where there are no such marks `repeated_steps`.
        warm_up: see `equal_steps`.

    Raises:
        TraceError: the trace has no such events or phase, or holds the state of one moment only.
        ValueError: `by` is no grouping.
    """
    check_history(trace, "leaks")
    start, stop = _checked_leak_range(trace, start, stop)
    model = Model(trace, pool)
    how = grouping(trace, pool, by)
    compared = growth(model, _marked_or_repeated_steps(trace, pool, mark, warm_up), how)
    model.seek(len(trace))
    chunks = model.in_use()
    kept = (chunks["born"] >= start) & (chunks["born"] < stop)
    if phase is not None:
        kept &= _leaked_in_phase(trace, pool, phase, chunks)
    ranged = start, stop, phase, len(trace)
    return _by_holder(trace, how, of_chunks(taken(chunks, kept)), ranged, compared)


def _marked_or_repeated_steps(
    trace: Trace, pool: int, mark: str | None = None, warm_up: int | None = None
) -> EqualSteps:
    """The steps to compare for leaks: between marks, or else those that repeat."""
    marked = equal_steps(trace, pool, mark, warm_up)
    if not marked.unmarked or mark is not None:
        return marked
    repeated = repeated_steps(trace, pool, warm_up)
    return replace(marked, reason=f"{marked.reason}; {repeated.reason}") if repeated.reason else repeated


def _by_holder(
    trace: Trace,
    how: Grouping,
    found: NDArray[np.void],
    ranged: tuple[int, int, str | None, int],
    compared: Growth,
) -> Leaks:
    """Sort leaked chunks by the bytes of their holders, then by age."""
    numbers, paths = how.grouped(found)
    bytes_of = np.zeros(len(paths), np.uint64)
    np.add.at(bytes_of, numbers, found["size"])
    order = np.argsort(~bytes_of, kind="stable")
    place = np.zeros(len(paths), np.intp)
    place[order] = np.arange(len(paths))
    at = place[numbers]
    sort = np.lexsort([found["born"], at])
    found, at = taken(found, sort), at[sort]
    ages = _leak_ages(trace, found)
    names = [how.text(paths[number]) for number in order.tolist()]
    rows = _leak_rows(found, at, ages, len(trace), len(names))
    return Leaks(*ranged, how.by, rows, names, found, ages, compared, trace)


def _checked_leak_range(trace: Trace, start: int | None, stop: int | None) -> tuple[int, int]:
    start = trace.first if start is None else start
    stop = len(trace) if stop is None else stop
    if not trace.first <= start <= stop <= len(trace):
        raise TraceError(
            f"leaks of the events {start} to {stop} are not possible: the trace has steps {trace.first} to {len(trace)}"
        )
    return start, stop


def _leaked_in_phase(trace: Trace, pool: int, phase: str, chunks: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which leaked chunks were allocated while a phase of this name was open; see `PhasePaths` for its thread."""
    how = grouping(trace, pool, "phase")
    numbers, paths = how.grouped(chunks)
    known = {each.name for each in phases(trace, pool)}
    if phase not in known:
        there = f"there are {', '.join(sorted(known)[:10])}" if known else "it has no phases"
        raise TraceError(f"the trace has no phase {phase!r}: {there}")
    inside = np.array([phase in path for path in paths], np.bool_)
    found: NDArray[np.bool_] = inside[numbers]
    return found


def _leak_ages(trace: Trace, chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    if not len(chunks):
        return np.zeros(0, np.uint64)
    last = event_times(trace, np.array([len(trace) - 1], np.uint64))
    return elapsed(event_times(trace, chunks["born"]), np.repeat(last, len(chunks)))


def _leak_rows(
    chunks: NDArray[np.void], at: NDArray[np.intp], ages: NDArray[np.uint64], until: int, count: int
) -> NDArray[np.void]:
    """The holders of sorted chunks that leaked."""
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


# ------------------------------------------------------------------------------
# Leaks and growth as sentences.

_MOST: Final = 10
"""Holders in a text."""

_SELDOM: Final = 0.6
"""Chunks a step: of fewer a text says in how many steps there is one."""

_MOST_IN_TABLE: Final = 30
"""Holders in a table of a notebook."""


def growth_lines(trace: Trace, found: Growth) -> list[str]:
    """The report of what leaks every step: what was compared, then a line for each holder that grew."""
    if found.reason:
        return [f"growth is not known: {found.reason}"]
    lines = [_compared_steps_text(found)]
    count = found.growing
    if not count:
        return [*lines, "no holder grew every step"]
    for row, name in enumerate(found.names[: min(count, _MOST)]):
        at = _allocated_at_text(trace, int(found.rows["label"][row]), name)
        lines.append(f"{_gained_text(found, row)}: {name}{at}")
    if count > _MOST:
        left = sum(found.a_step(row)[1] for row in range(_MOST, count))
        lines.append(f"{signed_bytes(left)} a step: {count - _MOST:,} more holders")
    return lines


def _compared_steps_text(found: Growth) -> str:
    """Which steps were compared to find leaks."""
    steps = found.steps
    first, last = (f"{number:,}" for number in (steps.numbers[0], steps.numbers[-1]))
    parts = [f"compared the ends of {len(steps.ends):,} equal steps, {first} to {last} of {steps.found:,}"]
    if steps.every > 1:
        parts.append(f"one in {steps.every:,}")
    if steps.warm_up:
        parts.append(f"after {steps.warm_up:,} of warm-up")
    if steps.found > steps.equal:
        parts.append(f"without {steps.found - steps.equal:,} that did less or more")
    cut = f"marks {steps.name!r}"
    if steps.allocation:
        cut = f"from each allocation of {steps.allocation!r} to the next"
    return f"{', '.join(parts)} ({cut})"


def growing_name(trace: Trace, found: Growth) -> str:
    """The holder that leaks most, with the place in the code if its name is another: `train (train.py:15 step)`."""
    name = found.names[0]
    place = place_in_code(trace.labels[int(found.rows["label"][0])].details.get("stack", ""))
    return cut(name) if place in ("", name) else f"{cut(name)} ({cut(place)})"


def growing_text(found: Growth) -> str:
    """What a holder leaks: `+1 chunk, +82.6 KiB every step. That made 5.3 MiB from step 23 to step 89`."""
    others, steps = found.growing - 1, found.steps
    first, last = (f"{steps.numbers[end]:,}" for end in (0, -1))
    where = f"from step {first} to step {last} of the program"
    if steps.allocation:
        where = f"in {found.equal_steps:,} steps, each from an allocation of {steps.allocation} to the next"
    return (
        f"{_gained_text(found, 0)}{f'; {others:,} more grow, too' if others else ''}. That made "
        f"{format_bytes(found.grown_bytes)} {where}"
    )


def _gained_text(found: Growth, row: int) -> str:
    """What a holder leaks: `+12 chunks, +3.1 MiB every step`."""
    chunks, size = found.a_step(row)
    if 0 < chunks < _SELDOM:
        return f"about +1 chunk in {1 / chunks:,.0f} steps, {signed_bytes(size)} a step"
    amount = f"{chunks:+,.0f}" if found.is_even(row) and chunks == int(chunks) else f"about {chunks:+,.1f}"
    every = "every" if found.is_every(row) else "a"
    return f"{amount} {'chunk' if amount == '+1' else 'chunks'}, {signed_bytes(size)} {every} step"


def leak_lines(trace: Trace, found: Leaks) -> list[str]:
    """The report of what leaked: how much was never freed; then a line for each holder of it."""
    where = "" if found.phase is None else f" in phase {found.phase!r}"
    total = f"{format_bytes(found.bytes)} in {counted(len(found.chunks), 'chunk')}"
    events = f"events {found.start:,} to {found.stop - 1:,}" if found.stop > found.start else "no event"
    lines = [f"allocated by {events}{where} and not freed by step {found.until:,}, the last one: {total}"]
    for row, each in enumerate(found.rows[:_MOST]):
        name, oldest = found.names[row], found.chunks_of(row)[0]
        at = _allocated_at_text(trace, int(oldest["label"]), name)
        lines.append(
            f"{format_bytes(int(each['bytes']))} in {counted(int(each['chunks']), 'chunk')}: {name}{at}; "
            f"the oldest at {int(oldest['address']):#x}, {int(each['oldest_events']):,} events "
            f"({duration(int(each['oldest_ns']))}) old"
        )
    if len(found.rows) > _MOST:
        rest = found.rows[_MOST:]
        size, chunks = int(rest["bytes"].sum()), int(rest["chunks"].sum())
        lines.append(f"{format_bytes(size)} in {counted(chunks, 'chunk')}: {len(rest):,} more holders")
    return lines


def _allocated_at_text(trace: Trace, label: int, name: str) -> str:
    """The place in the code of a leak's label, unless the holder's name says it."""
    place = place_in_code(trace.labels[label].details.get("stack", ""))
    return "" if place in ("", name) else f", allocated at {place}"
