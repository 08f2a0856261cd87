"""Why a request failed, or whether one would fit: the first failure of a trace, and its diagnosis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import (
    Diagnosis,
    Family,
    HeapSettings,
    LargestHole,
    RegionTotals,
    RunWithPins,
    Verdict,
    best_runs,
    pins_of,
    settings_of,
)
from bfcviz.errors import TraceError
from bfcviz.events.origin import STATE_ONLY, Origin, RecordedFailure, Status, recorded_failures
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.formats.torch import SMALL, SMALL_SEGMENT
from bfcviz.model.model import Model
from bfcviz.model.navigation import events_of, failures, peak, worst_fragmentation

# ------------------------------------------------------------------------------
# Find out why a request failed, or whether one would fit: from the heap at its step, and what the file says of it.

RUNS: Final = 3
"""Runs of a diagnosis."""


MOST_FAILURES: Final = 1000
"""Failures of a trace that are diagnosed: the first ones. Each diagnosis looks at all chunks of its moment."""


def diagnose(  # noqa: PLR0913  a failure, and what the caller has read of it already
    trace: Trace,
    event: int,
    model: Model | None = None,
    *,
    runs: int = RUNS,
    recorded: RecordedFailure | None = None,
    models: dict[int, Model] | None = None,
    tries: bool = True,
) -> Diagnosis:
    """Find out why a request failed.

    Args:
        trace: the events.
        event: index of its OOM event.
        model: a model of this trace and pool to use; it returns to its step.
        runs: the most runs to find; 0: only the verdict and its numbers, without advice.
        recorded: what the file says of this failure, if the caller has it; otherwise it is searched for.
        models: models of other heaps of this trace by their index, to use and to add to: for the account of the device.
        tries: try the settings of an advice on the requests up to the failure, where the trace has them all.

    Raises:
        TraceError: the event is not an OOM, or the trace does not have it.
    """
    record = trace.read(event, event + 1)[0]
    if record["kind"] != Kind.OOM:
        raise TraceError(f"event {event} is not an OOM: it is {Kind(int(record['kind'])).name}")
    recorded = recorded or _recorded_by_event(trace).get(event, RecordedFailure(event))
    with _model_to_diagnose(trace, int(record["pool"]), model).visiting(event) as there:
        found = _undecided_diagnosis(there, int(record["requested"]), recorded)
        found = replace(
            found,
            event=event,
            label=trace.labels.name(int(record["label"])),
            free_bytes=int(record["address"]),
            largest_free_chunk=int(record["size"]),
        )
        if runs and recorded.tells_of_device:
            from bfcviz.analysis.account import account_of_failure  # noqa: PLC0415  as the advice below

            others = {} if models is None else models
            others[there.pool] = there
            found = replace(found, account=account_of_failure(trace, recorded, there.pool, others))
        return _judged_diagnosis(there, found, runs, tries=tries)


def would_fit(  # noqa: PLR0913  the moment, and the request
    trace: Trace,
    step: int,
    size: int,
    model: Model | None = None,
    *,
    pool: int = 0,
    limit: int | None = None,
) -> Diagnosis:
    """Find out whether a request would fit into the heap at a step, and if not, why.

    Args:
        trace: the events.
        step: the state after that many events.
        size: bytes of the request.
        model: a model of this trace and pool to use; it returns to its step.
        pool: index of the heap.
        limit: the most bytes that the pool may have; None: as the file says.

    Raises:
        TraceError: the trace has no such step or pool.
        ValueError: the size is not a number of bytes that a request can have.
    """
    with _model_to_diagnose(trace, pool, model).visiting(step) as there:
        return _judged_diagnosis(there, question(there, size, limit=limit), RUNS)


def question(
    model: Model, size: int, recorded: RecordedFailure | None = None, limit: int | None = None
) -> Diagnosis:
    """The verdict and the numbers of `would_fit` at the model's step, without runs and advice: fast.

    Args:
        model: stands at the step.
        size: bytes of the request.
        recorded: what the file says of the request, if it failed.
        limit: the most bytes that the pool may have; None: as the file says.

    Raises:
        ValueError: the size is not a number of bytes that a request can have.
    """
    if not 0 < size < 1 << 62:
        raise ValueError(f"size={size} is not a request: give a number of bytes from 1 to 2^62")
    found = _undecided_diagnosis(model, size, recorded or RecordedFailure(model.step))
    if limit is not None:
        found = replace(found, bytes_limit=limit, limit_asked=True)
    return _judged_diagnosis(model, _with_usable(model, found), 0)


def without_failure(trace: Trace, pool: int = 0, model: Model | None = None) -> Diagnosis:
    """The heap at the model's step (None: after the last event) as if nothing was requested: `requested` is 0."""
    step = len(trace) if model is None else model.step
    with _model_to_diagnose(trace, pool, model).visiting(step) as there:
        return replace(
            _undecided_diagnosis(there, 0, RecordedFailure(0)), rounded=0, verdict=Verdict.NO_FAILURE
        )


def all_failures(
    trace: Trace, pool: int | None = None, *, runs: int = RUNS, most: int = MOST_FAILURES
) -> list[Diagnosis]:
    """The diagnoses of the first requests that failed finally, in the order of the trace; see `failed_steps`."""
    models: dict[int, Model] = {}
    tried: set[int] = set()  # to serve all requests again for each of many failures would take minutes
    recorded = _recorded_by_event(trace)
    found = []
    for step in failed_steps(trace, pool)[:most]:
        number = int(trace.read(step - 1, step)["pool"][0])
        model = models.get(number) or models.setdefault(number, Model(trace, number))
        model.seek(step - 1)  # so that the next one is a short move
        known = recorded.get(step - 1, RecordedFailure(step - 1))
        tries = number not in tried
        found.append(diagnose(trace, step - 1, model, runs=runs, recorded=known, models=models, tries=tries))
        tried.add(number)
    return found


def failed_steps(
    trace: Trace, pool: int | None = None, start: int | None = None, stop: int | None = None
) -> list[int]:
    """The steps just after the requests that failed finally, and after those that the file names as failures.

    The first `MOST_FAILURES` of the events [start, stop), by default of all.
    """
    recorded = {
        step
        for step in _recorded_steps(trace, pool)
        if (start is None or start < step) and (stop is None or step <= stop)
    }
    found = failures(trace, pool, MOST_FAILURES, start=start, stop=stop)
    return sorted(set(found) | recorded)[:MOST_FAILURES]


def failures_left_out(trace: Trace, pool: int | None = None) -> int:
    """How many OOM events are not among `failed_steps` because there are more than `MOST_FAILURES`."""
    later = events_of(trace, [Kind.OOM], pool)["seq"][MOST_FAILURES:]
    return len(set(later.tolist()) - {step - 1 for step in failed_steps(trace, pool)}) if len(later) else 0


def _recorded_by_event(trace: Trace) -> dict[int, RecordedFailure]:
    """What the file says of its failures; of an event that it names twice, the first entry."""
    return {each.event: each for each in reversed(recorded_failures(trace.origin.details))}


def _recorded_steps(trace: Trace, pool: int | None) -> set[int]:
    """The steps after the failures that the file itself names."""
    events = _recorded_by_event(trace)
    there = sorted(event for event in events if trace.first <= event < len(trace))
    rows = [trace.read(event, event + 1)[0] for event in there]
    return {
        int(row["seq"]) + 1 for row in rows if row["kind"] == Kind.OOM and pool in {None, int(row["pool"])}
    }


def _model_to_diagnose(trace: Trace, pool: int, model: Model | None) -> Model:
    usable = model is not None and model.trace is trace and model.pool == pool
    return model if usable else Model(trace, pool)  # type: ignore[return-value]


def _undecided_diagnosis(model: Model, requested: int, recorded: RecordedFailure) -> Diagnosis:
    """What the heap at the model's step says, as of a question; the verdict is not decided."""
    origin, table = model.trace.origin, model.table
    pool = origin.pools[model.pool]
    settings = settings_of(origin, model.pool)
    chunks = model.chunks()
    return Diagnosis(
        pool=model.pool,
        pool_name=pool.name,
        step=model.step,
        event=None,
        verdict=Verdict.UNKNOWN,
        label="",
        requested=requested,
        rounded=recorded.rounded or settings.rounded(requested),
        free_bytes=table.free_bytes,
        largest_free_chunk=table.largest_free_chunk,
        free_chunks=table.chunks_free,
        bytes_in_use=table.bytes_in_use,
        chunks_in_use=table.chunks_in_use,
        pool_bytes=table.pool_bytes,
        bytes_limit=_diagnosed_pool_limit(pool.limit, settings, recorded),
        wasted=_wasted_bytes_in_use(model, recorded),
        largest_waste=int(np.where(chunks["in_use"], chunks["size"] - chunks["requested"], 0).max(initial=0)),
        regions=_region_totals(model, chunks),
        runs=(),
        hole=_largest_hole(model, chunks),
        recorded=recorded,
        settings=settings,
        is_state_only=origin.details.get("history") == STATE_ONLY,
        gaps=_gaps_of_heap(origin, pool.name),
        unknown=frozenset(name for name, value in _stated_pool_facts(model).items() if value is None),
    )


def _judged_diagnosis(model: Model, found: Diagnosis, runs: int, *, tries: bool = True) -> Diagnosis:
    """With verdict, runs and advice; `tries`: settings are tried on the requests up to the failure."""
    found = replace(found, verdict=_verdict_on_request(found))
    if runs == 0:
        return found
    has_chunks = found.knows("largest_free_chunk")
    if has_chunks and found.verdict not in {Verdict.ABOVE_LIMIT, Verdict.NO_FAILURE}:
        found = replace(found, runs=_runs_with_pins(model, found.rounded, runs))
    from bfcviz.analysis.advice import advice_for  # noqa: PLC0415  with the tables of all messages: `info` needs none

    return replace(found, advice=tuple(advice_for(found, model.trace if tries else None)))


def _verdict_on_request(found: Diagnosis) -> Verdict:
    is_question, rounded = found.event is None, found.rounded
    if found.bytes_limit is not None and rounded > found.bytes_limit:
        return Verdict.ABOVE_LIMIT
    has_chunks = found.knows("largest_free_chunk")
    if has_chunks and not found.exceeds_limit and found.largest_usable >= rounded:
        return Verdict.NO_FAILURE if is_question else Verdict.UNKNOWN
    if found.knows("pool_bytes") and _may_grow(found):
        return Verdict.NO_FAILURE if is_question else Verdict.REFUSED
    is_open = found.room is None and found.deciding_limit is not None
    if has_chunks and is_question and (is_open or found.may_unmap):
        return Verdict.UNKNOWN
    if found.exceeds_limit or (found.knows("free_bytes") and found.free_bytes < rounded):
        return Verdict.CAPACITY
    return _scattered_memory_verdict(found) if has_chunks else Verdict.UNKNOWN


def _may_grow(found: Diagnosis) -> bool:
    """Whether the limit leaves room; for a question after what the allocator gives back before it fails."""
    if found.room is None or found.room_after_release is None:
        return False
    if found.event is not None:
        return found.room >= found.rounded
    return found.room_after_release >= found.growth


def _scattered_memory_verdict(found: Diagnosis) -> Verdict:
    """Why enough free memory does not hold the request: regions that are too small, or chunks in use between it."""
    regions = found.regions
    together = regions.free_bytes + (found.spare or 0) >= found.rounded
    return Verdict.REGIONS if regions.largest < found.rounded or together else Verdict.FRAGMENTATION


def _gaps_of_heap(origin: Origin, name: str) -> tuple[str, ...]:
    """What is missing of a heap, as the file's own reasons say."""
    if origin.status in {Status.COMPLETE, Status.RECORDING}:
        return ()
    start = f"{name}: "
    return tuple(reason.removeprefix(start) for reason in origin.reasons if reason.startswith(start))


def _diagnosed_pool_limit(limit: int | None, settings: HeapSettings, recorded: RecordedFailure) -> int | None:
    """The limit of the pool. PyTorch has none unless a part of the device was set."""
    total = recorded.device_total
    if settings.family is Family.TORCH and limit is not None and total is not None and limit >= total:
        return None
    return limit


_APART: Final = (Family.TORCH, Family.CUPY)
"""Allocators that keep the free memory of each stream apart."""

_private: WeakKeyDictionary[Trace, dict[int, str]] = WeakKeyDictionary()
"""The private pools of labels that were looked up."""


def usable_chunks(model: Model, rounded: int, settings: HeapSettings) -> NDArray[np.bool_]:
    """Which chunks at the model's step are free and may serve a request of a rounded size, whatever their own size is.

    PyTorch and CuPy keep free memory per stream, PyTorch also per private pool and apart for small requests. A question
    is one of the stream and pool that hold most. An empty region is free for any stream: it can be given back.
    """
    chunks = model.chunks()
    free = ~chunks["in_use"]
    if settings.family not in _APART or not len(chunks):
        return free
    _, regions = np.unique(chunks["region"], return_inverse=True)
    used = np.flatnonzero(chunks["in_use"])
    held = np.bincount(regions[used], minlength=int(regions.max()) + 1)
    owners = np.full(len(held), -1, np.int64)
    which, first = np.unique(regions[used], return_index=True)
    owners[which] = _chunk_owner_numbers(
        model.trace, chunks[used[first]], is_torch=settings.family is Family.TORCH
    )
    sums = np.bincount(owners[regions[used]], chunks["size"][used].astype(np.float64), minlength=1)
    mine = (owners < 0) | (owners == int(sums.argmax()))
    if settings.family is Family.TORCH:
        whole = np.bincount(regions, chunks["size"].astype(np.float64))
        large = np.bincount(regions, chunks["in_use"] & (chunks["requested"] > SMALL)) > 0
        is_small = np.where(held > 0, ~large, whole == SMALL_SEGMENT)
        mine &= is_small == (rounded <= SMALL)
    found: NDArray[np.bool_] = free & mine[regions]
    return found


def _chunk_owner_numbers(trace: Trace, chunks: NDArray[np.void], *, is_torch: bool) -> NDArray[np.int64]:
    """A number for the stream and the private pool of each chunk."""
    pools = _private.setdefault(trace, {})
    if is_torch:
        for label in set(chunks["label"].tolist()) - pools.keys():
            pools[label] = trace.labels[label].details.get("private_pool", "")
    keys = [(stream, pools.get(label, "")) for stream, label in chunks[["stream", "label"]].tolist()]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _with_usable(model: Model, found: Diagnosis) -> Diagnosis:
    """Of a question, what the allocator's rules allow: the largest free chunk, and what can grow in place."""
    settings = found.settings
    if not (settings.family in _APART or found.releases_first) or not found.knows("largest_free_chunk"):
        return found
    chunks, mine = model.chunks(), usable_chunks(model, found.rounded, settings)
    is_held = np.isin(chunks["region"], np.unique(chunks["region"][chunks["in_use"]]))
    if found.releases_first:
        mine &= is_held
    sizes = np.unique(chunks["size"][mine]).tolist()
    if settings.family is Family.TORCH:
        serving = [size for size in sizes if settings.torch.serves(found.rounded, size)]
        sizes = serving or [size for size in sizes if size < found.rounded]
    tail = 0
    if settings.family is Family.TORCH and settings.torch.expandable and len(chunks):
        is_last = np.append(chunks["region"][1:] != chunks["region"][:-1], True)
        tail = int(chunks["size"][mine & is_last & is_held].max(initial=0))
    return replace(found, usable_chunk=max(sizes, default=0), tail=tail)


def _wasted_bytes_in_use(model: Model, recorded: RecordedFailure) -> int | None:
    """Bytes of chunks in use that were not requested, from the best source that knows them."""
    in_use = model.table.bytes_in_use
    if recorded.in_use_requested is not None:
        return max(0, in_use - recorded.in_use_requested)
    own = _stated_pool_facts(model)
    requested = own.get("requested_bytes_in_use", 0)
    if requested is None:
        return None
    if model.trace.origin.details.get("history") != STATE_ONLY or "requested_bytes_in_use" not in own:
        requested = model.table.requested_bytes_in_use  # the fact is of the last event
    return max(0, int(in_use - requested))


def _stated_pool_facts(model: Model) -> Mapping[str, Any]:
    """The numbers of the pool that the file states, None for unknown ones."""
    facts = model.trace.origin.details.get("facts")
    found: Mapping[str, Any] = (
        facts[model.pool] if isinstance(facts, Sequence) and model.pool < len(facts) else {}
    )
    return found


def _region_totals(model: Model, chunks: NDArray[np.void]) -> RegionTotals:
    regions = model.regions()
    free = chunks[~chunks["in_use"]]
    # A wholly free region is one free chunk, or several that wait to merge.
    sums = np.zeros(len(regions), np.uint64)
    np.add.at(sums, np.searchsorted(regions["address"], free["address"], "right") - 1, free["size"])
    whole = regions[sums == regions["size"]]
    return RegionTotals(
        count=len(regions),
        largest=int(regions["size"].max(initial=0)),
        wholly_free=tuple(zip(whole["address"].tolist(), whole["size"].tolist(), strict=True)),
    )


def _runs_with_pins(model: Model, wanted: int, most: int) -> tuple[RunWithPins, ...]:
    chunks = model.chunks()
    return tuple(
        RunWithPins(**vars(run), pins=pins_of(model, chunks[run.first : run.stop]))
        for run in best_runs(chunks, wanted, most)
    )


def _largest_hole(model: Model, chunks: NDArray[np.void]) -> LargestHole:
    if model.table.chunks_free == 0:
        return LargestHole()
    at = int(np.argmax(np.where(chunks["in_use"], 0, chunks["size"])))
    hole = chunks[at]
    before, after = (
        chunks[i] if 0 <= i < len(chunks) and chunks[i]["region"] == hole["region"] else None
        for i in (at - 1, at + 1)
    )
    return LargestHole(hole, before, after)


# ------------------------------------------------------------------------------
# The first failed request of a trace, and the step at which a view of it opens.


def opening(trace: Trace, pool: int | None = None) -> tuple[int, int]:
    """The pool and the step of the first failed request; of the peak of the first pool where none failed.

    A failure whose heap the file has comes before one that the file only names.

    Args:
        trace: the events.
        pool: look only for this pool; None: for all.
    """
    return first_failure(trace, pool) or (pool or 0, peak(trace, pool or 0))


def failing_pool(trace: Trace) -> int:
    """The index of the heap whose request failed first; of the first heap where none failed."""
    found = first_failure(trace) if len(trace.origin.pools) > 1 else None
    return 0 if found is None else found[0]


def first_failure(trace: Trace, pool: int | None = None) -> tuple[int, int] | None:
    """The pool and the step of the first failed request; None where none failed.

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
