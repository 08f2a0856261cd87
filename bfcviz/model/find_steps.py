"""Find steps: the next event of a kind, the peak, failures, phases. A step is the one just after its event."""

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import TraceError
from bfcviz.events.event_source import BLOCK
from bfcviz.events.marks import Phase, phases_among
from bfcviz.events.origin import (
    BEGIN_MARKS,
    RecordedFailure,
    holds_only_states,
    recorded_failures,
)
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.structured_arrays import joined, taken
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.timelines import timeline
from bfcviz.model.trace_index import index_of, known_index, known_notable


def _matched_kind_mask(*kinds: Kind) -> NDArray[np.bool_]:
    """Which values of `kind` a search for steps looks for."""
    values = np.zeros(256, bool)
    values[[int(kind) for kind in kinds]] = True
    return values


_WITH_CHUNK: Final = ~_matched_kind_mask(Kind.OOM, Kind.MARK)
_WITH_OTHER: Final = _matched_kind_mask(Kind.SPLIT, Kind.MERGE)
_LABELLED: Final = _matched_kind_mask(Kind.ALLOCATE, Kind.FREE, Kind.OOM, Kind.MARK)


def next_step(  # noqa: PLR0913  six independent conditions
    trace: Trace,
    step: int,
    kinds: Collection[Kind],
    pool: int | None = 0,
    *,
    chunk: int | None = None,
    label: int | None = None,
) -> int | None:
    """The first step after `step` to which an event of one of `kinds` leads; None where there is none.

    Args:
        trace: the events.
        step: where the search starts.
        kinds: kinds of events.
        pool: the pool of the event; None: any.
        chunk: handle of a chunk that the event changes, creates or merges away; None: any. The heap reuses the handles
            of chunks that were merged away.
        label: number of the event's label, for kinds that have one; None: any.

    Raises:
        TraceError: the trace has no such step.
    """
    _check_search_start_exists(trace, step)
    for block in trace.blocks(step):
        found = matches(block, kinds, pool, chunk, label)
        if len(found):
            return int(block["seq"][found[0]]) + 1
    return None


def previous_step(  # noqa: PLR0913
    trace: Trace,
    step: int,
    kinds: Collection[Kind],
    pool: int | None = 0,
    *,
    chunk: int | None = None,
    label: int | None = None,
) -> int | None:
    """The last step before `step` to which an event of one of `kinds` leads; arguments as for `next_step`."""
    _check_search_start_exists(trace, step)
    stop = step - 1  # event `step - 1` leads to `step` itself
    while stop > trace.first:
        start = max((stop - 1) // BLOCK * BLOCK, trace.first)
        found = matches(trace.read(start, stop), kinds, pool, chunk, label)
        if len(found):
            return start + int(found[-1]) + 1
        stop = start
    return None


def events_of(
    trace: Trace,
    kinds: Collection[Kind],
    pool: int | None = 0,
    start: int | None = None,
    stop: int | None = None,
) -> Events:
    """Find all events of `kinds` in [start, stop), such as the marks and OOMs to draw over a timeline."""
    index = known_notable(trace)
    if index is not None:
        events = index.notable(kinds, pool, start or 0, len(trace) if stop is None else stop)
        if events is not None:
            return events
    found = [taken(block, matches(block, kinds, pool)) for block in trace.blocks(start, stop)]
    return joined(found) if found else np.zeros(0, EVENT)


def failures(
    trace: Trace,
    pool: int | None = 0,
    most: int = 1000,
    start: int | None = None,
    stop: int | None = None,
) -> list[int]:
    """Find the steps at which requests of one pool (None: of any) failed finally, among the first `most` OOMs.

    Only those of the events [start, stop), by default all.

    A heap that can make room, by releasing regions or waiting for deferred memory, records an OOM first. Such an OOM is
    left out where the next allocation of the same thread has the same requested size.
    """
    found = []
    for event in events_of(trace, [Kind.OOM], pool, start, stop)[:most]:
        step = int(event["seq"]) + 1
        after = trace.read(step, min(step + _SOON, len(trace)))
        same = (after["by"] == event["by"]) & (after["pool"] == event["pool"])
        served = after[same & (after["kind"] == Kind.ALLOCATE)]
        if not len(served) or served["requested"][0] != event["requested"]:
            found.append(step)
    return found


_SOON = 256
"""Events after an OOM within which an ALLOCATE may follow for which the heap made room."""


def end_of_state(trace: Trace, pool: int = 0) -> int:
    """Find the step after the last event of a pool, its state in a trace without history; 0 without events."""
    if len(trace) > trace.first and int(trace.read(len(trace) - 1, len(trace))["pool"][0]) == pool:
        return len(trace)
    found = previous_step(trace, len(trace), list(Kind), pool)
    return trace.first if found is None else found


def history_begins(trace: Trace, pool: int = 0, names: Collection[str] = BEGIN_MARKS) -> int:
    """Find the first event of a pool's history: those before build the state that it begins with; 0 without such.

    `names`: the marks that can say where it begins.
    """
    marks = events_of(trace, [Kind.MARK], pool)
    used = [number for number in np.unique(marks["label"]).tolist() if number < len(trace.labels)]
    begin = [number for number in used if trace.labels.name(number) in names]
    found = marks["seq"][np.isin(marks["label"], begin)]
    return int(found[0]) if len(found) else 0


def step_of_pool(trace: Trace, pool: int, step: int) -> int:
    """Find the step at which a heap is shown first: its state where the trace has no history, else `step`."""
    return end_of_state(trace, pool) if holds_only_states(trace.origin.details) else step


def peak(trace: Trace, pool: int = 0) -> int:
    """Find the first step at which bytes_in_use is at its highest; 0 for a trace without events.

    Only after the history begins. Where the trace has no history, the only state of the pool.
    """
    return _first_highest_step(trace, pool, "bytes_in_use")


def worst_fragmentation(trace: Trace, pool: int = 0) -> int:
    """Find the first step with the highest external fragmentation (1 - largest_free_chunk / free_bytes).

    Only after the history begins. Where the trace has no history, the only state of the pool.
    """
    return _first_highest_step(trace, pool, "external_fragmentation")


def _first_highest_step(trace: Trace, pool: int, series: str) -> int:
    if holds_only_states(trace.origin.details):
        return end_of_state(trace, pool)
    index = index_of(trace, pool)
    begins = max(history_begins(trace, pool), trace.first)
    if index is None:
        rows = timeline(trace, pool, begins, points=1)
    else:
        rows = _highest_step_rows(trace, pool, index.rolling.series, begins)
    # Step 0, the empty heap, has 0 of everything: it is the answer where no value is above 0.
    if not len(rows) or not rows[f"{series}_max"].any():
        return begins
    return int(rows[f"{series}_max_step"][np.argmax(rows[f"{series}_max"])])


def _highest_step_rows(trace: Trace, pool: int, rows: NDArray[np.void], begins: int) -> NDArray[np.void]:
    """The rows of a timeline from one event on; reads only the events of the row that this event divides."""
    starts = rows["step"] - rows["events"]
    later: NDArray[np.void] = rows[starts >= begins]
    if not (divided := rows[(starts < begins) & (rows["step"] > begins)]).size:
        return later
    part = timeline(trace, pool, begins, int(divided["step"][0]), points=1)
    return np.concatenate([part, later])


def matches(
    block: Events,
    kinds: Collection[Kind],
    pool: int | None,
    chunk: int | None = None,
    label: int | None = None,
) -> NDArray[np.intp]:
    """Find the events that match, by their indices; the rarest condition is checked first, each on the rest."""
    wanted = _matched_kind_mask(*kinds)
    found: NDArray[np.intp]
    if chunk is not None:
        found = np.flatnonzero((block["chunk"] == chunk) | (block["other"] == chunk))
        # `other` is a chunk for some kinds of events, an id or nothing for others.
        mine = (block["chunk"][found] == chunk) & _WITH_CHUNK[block["kind"][found]]
        mine |= (block["other"][found] == chunk) & _WITH_OTHER[block["kind"][found]]
        found = found[mine]
    elif label is not None:
        found = np.flatnonzero(block["label"] == label)
    else:
        found = np.flatnonzero(wanted[block["kind"]])
    found = found[wanted[block["kind"][found]]]
    if label is not None:
        found = found[(block["label"][found] == label) & _LABELLED[block["kind"][found]]]
    if pool is not None:
        found = found[block["pool"][found] == pool]
    return found


def _check_search_start_exists(trace: Trace, step: int) -> None:
    """Raise where a search for the next or previous step starts at a step that the trace does not have."""
    if not trace.first <= step <= len(trace):
        raise TraceError(f"step {step} does not exist: the trace has steps {trace.first} to {len(trace)}")


def last_event(model: Model) -> Events | None:
    """Find the event before the model's step, shape (1,); None if there is none, or it happened in another heap."""
    if model.step <= model.trace.first:
        return None
    event = model.trace.read(model.step - 1, model.step)
    builds = holds_only_states(model.trace.origin.details) and event["kind"][0] != Kind.OOM
    return event if int(event["pool"][0]) == model.pool and not builds else None


def failure_before(model: Model) -> np.void | None:
    """Find the event before the model's step where it is the failure of a request in this heap."""
    event = last_event(model)
    return None if event is None or event["kind"][0] != Kind.OOM else event[0]


def phases(trace: Trace, pool: int = 0) -> list[Phase]:
    """Find all phases of one heap, in the order of their ends; those without an end last."""
    return phases_among(events_of(trace, [Kind.MARK], pool), trace.labels)


# ------------------------------------------------------------------------------
# The busy window: the steps of a trace after its set-up, where the training itself uses memory.

BUSY: Final = 0.25
"""The set-up ends where the bytes in use first reach this share of their peak."""

LONG: Final = 0.25
"""A shorter set-up, as a share of all events, is not left out."""

_LEAD: Final = 0.02  # of the window, before the end of the set-up: the rise is then visible


def busy_window(trace: Trace, pool: int = 0) -> tuple[int, int] | None:
    """Find the steps from the end of the set-up to the last; None where the set-up is short, or not in the trace.

    The set-up are the events before the bytes in use of the pool first reach a quarter of their peak, and the events
    with the time of the first one, which build the state that a file begins with.
    """
    first, last = trace.first, len(trace)
    if last == first or first > 0 or holds_only_states(trace.origin.details):
        return None
    ends = max(_set_up_end_by_bytes(trace, pool), _set_up_end_by_time(trace))
    begin = int(ends - _LEAD * (last - ends))
    if begin < LONG * last or ends >= last:
        return None
    return begin, last


def _set_up_end_by_bytes(trace: Trace, pool: int) -> int:
    """Find the end of the set-up: the first step whose bytes in use reach `BUSY` of their peak."""
    index = known_index(trace, pool)
    if index is not None:
        return _set_up_end_in_rows(trace, pool, index.rolling.series)
    in_use = highest = 0
    steps, peaks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in trace.blocks():
        held = _set_up_bytes_in_use(block, pool, in_use)
        peak = np.maximum.accumulate(np.append(highest, held))
        rises = np.flatnonzero(np.diff(peak))
        steps.append(block["seq"][rises].astype(np.int64) + 1)
        peaks.append(peak[rises + 1])
        in_use, highest = int(held[-1]), int(peak[-1])
    every = np.concatenate(peaks)
    reached = int(np.searchsorted(every, BUSY * highest))
    return int(np.concatenate(steps)[reached]) if len(every) else trace.first


def _set_up_end_in_rows(trace: Trace, pool: int, rows: NDArray[np.void]) -> int:
    """As `_set_up_end_by_bytes`, from the rows of a timeline; reads only the events of one row."""
    highest = rows["bytes_in_use_max"].max(initial=0)
    if not highest:
        return trace.first
    row = int(np.argmax(rows["bytes_in_use_max"] >= BUSY * highest))
    start, stop = int(rows["step"][row] - rows["events"][row]), int(rows["step"][row])
    before = int(rows["bytes_in_use_last"][row - 1]) if row else 0
    held = _set_up_bytes_in_use(trace.read(start, stop), pool, before)
    return start + 1 + int(np.argmax(held >= BUSY * highest))


def _set_up_bytes_in_use(events: Events, pool: int, before: int) -> NDArray[np.int64]:
    """The bytes in use of a pool after each event, to find the end of the set-up."""
    sign = (events["kind"] == Kind.ALLOCATE).astype(np.int64) - (events["kind"] == Kind.FREE)
    changes: NDArray[np.int64] = np.where(events["pool"] == pool, sign, 0) * events["size"].astype(np.int64)
    return before + np.cumsum(changes)


def _set_up_end_by_time(trace: Trace) -> int:
    """Find the end of the set-up: after the leading events of one time; the first step if all have it, or few."""
    begin = None
    for block in trace.blocks():
        begin = block["time"][0] if begin is None else begin
        later = np.flatnonzero(block["time"] != begin)
        if len(later):
            return int(block["seq"][later[0]])
    return trace.first


# ------------------------------------------------------------------------------
# Failed requests: the steps just after them, and what the file says of each.

MOST_FAILURES: Final = 1000
"""Failures of a trace that are diagnosed: the first ones. Each diagnosis looks at all chunks of its moment."""


def failed_steps(
    trace: Trace, pool: int | None = None, start: int | None = None, stop: int | None = None
) -> list[int]:
    """Find the steps just after the requests that failed finally, and after the failures that the file names.

    The first `MOST_FAILURES` of the events [start, stop), by default of all.
    """
    recorded = {
        step
        for step in _recorded_failure_steps(trace, pool)
        if (start is None or start < step) and (stop is None or step <= stop)
    }
    found = failures(trace, pool, MOST_FAILURES, start=start, stop=stop)
    return sorted(set(found) | recorded)[:MOST_FAILURES]


def failures_left_out(trace: Trace, pool: int | None = None) -> int:
    """How many OOM events `failed_steps` does not find because there are more than `MOST_FAILURES`."""
    later = events_of(trace, [Kind.OOM], pool)["seq"][MOST_FAILURES:]
    return len(set(later.tolist()) - {step - 1 for step in failed_steps(trace, pool)}) if len(later) else 0


def recorded_failures_by_event(trace: Trace) -> dict[int, RecordedFailure]:
    """Find what the file says of failures, by event; of one that it names twice, the first entry."""
    return {each.event: each for each in reversed(recorded_failures(trace.origin.details))}


def _recorded_failure_steps(trace: Trace, pool: int | None) -> set[int]:
    """Find the steps after the failures that the file itself names."""
    events = recorded_failures_by_event(trace)
    there = sorted(event for event in events if trace.first <= event < len(trace))
    rows = [trace.read(event, event + 1)[0] for event in there]
    return {
        int(row["seq"]) + 1 for row in rows if row["kind"] == Kind.OOM and pool in {None, int(row["pool"])}
    }


# ------------------------------------------------------------------------------
# The first failed request of a trace, and the step at which a view of it opens.


def opening(trace: Trace, pool: int | None = None) -> tuple[int, int]:
    """Find the pool and step to open at: the first failed request, or the peak of the first pool.

    A failure whose heap the file has comes before one that the file only names. `pool`: look only for this one.
    """
    return first_failure(trace, pool) or (pool or 0, peak(trace, pool or 0))


def failing_pool(trace: Trace) -> int:
    """Find the heap, by index, whose request failed first; the first heap where none failed."""
    found = first_failure(trace) if len(trace.origin.pools) > 1 else None
    return 0 if found is None else found[0]


def first_failure(trace: Trace, pool: int | None = None) -> tuple[int, int] | None:
    """Find the pool and the step of the first failed request; None where none failed.

    As for `opening`, which also finds the peak and so may read the whole trace.
    """
    steps = failed_steps(trace, pool)
    if not steps:
        return None
    bare = {each.event for each in recorded_failures(trace.origin.details) if not each.has_heap}
    step = next((step for step in steps if step - 1 not in bare), steps[0])
    return int(trace.read(step - 1, step)["pool"][0]), step


# ------------------------------------------------------------------------------
# Steps by name, as the command line and the public functions take them.


def _first_failed_step(trace: Trace, pool: int) -> int:
    steps = failed_steps(trace, pool)
    if not steps:
        raise TraceError(
            f"no request of pool {pool} failed in this file; give the step peak, worst, last or a number"
        )
    return steps[0]


NAMED_STEPS: Final[dict[str, Callable[[Trace, int], int]]] = {
    "oom": _first_failed_step,
    "worst": worst_fragmentation,
    "peak": peak,
    "last": lambda trace, _: len(trace),
}
"""Name -> a function that finds the step in a pool of a trace."""
